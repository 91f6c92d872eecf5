// bind/positions.cpp: positions, moves, rules and rescoring of self-play games for millstream.games.
//
// Only what takes long for a game gives up the interpreter's lock: where several threads want it, getting it back costs more
// than the few microseconds of the rest.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/games.h"
#include "core/encode.h"
#include "core/legal.h"
#include "core/policy.h"
#include "core/positions.h"
#include "core/rescore.h"
#include "core/rules.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Squares = Array<const std::int8_t>;
using MoveArrays = std::tuple<Squares, Squares, Squares>;  // origins, targets, promotions
using MadeMoves = std::tuple<Made<std::int8_t>, Made<std::int8_t>, Made<std::int8_t>>;
using FoundFault = std::tuple<std::size_t, std::string, double, bool>;
using Transforms = Array<const std::uint8_t>;

// Positions, checked: everything behind this trusts their files.
std::span<const Position> positions_in(const Bytes& bytes) {
  const auto game = records<Position>(bytes);
  const auto is_file = [](std::int8_t file) { return file >= -1 && file < 8; };
  for (const auto& position : game)
    if (!is_file(position.en_passant) || !std::ranges::all_of(position.castling, is_file))
      throw std::invalid_argument("games: there is no such file");
  return game;
}

// At most so many moves, checked: everything behind this trusts their squares.
std::vector<Move> moves_in(const MoveArrays& arrays, std::size_t most) {
  const auto& [origins, targets, promotions] = arrays;
  const auto count = origins.size();
  if (targets.size() != count || promotions.size() != count || count > most)
    throw std::invalid_argument("games: moves do not fit their positions");
  std::vector<Move> moves(count);
  for (std::size_t i = 0; i < count; ++i) {
    moves[i] = {origins.data()[i], targets.data()[i], promotions.data()[i]};
    const auto [origin, target, promotion] = moves[i];
    if (origin < -1 || origin > 63 || (origin >= 0 && (target < 0 || target > 63)) || promotion < 0 || promotion > queen)
      throw std::invalid_argument("games: there is no such square or piece");
  }
  return moves;
}

MadeMoves handed_over(const std::vector<Move>& moves) {
  std::vector<std::int8_t> origins, targets, promotions;
  for (const auto& move : moves) origins.push_back(move.origin), targets.push_back(move.target), promotions.push_back(move.promotion);
  return {made(std::move(origins)), made(std::move(targets)), made(std::move(promotions))};
}

std::vector<FoundFault> handed_over(const std::vector<Fault>& faults) {
  std::vector<FoundFault> found;
  for (const auto& fault : faults) found.emplace_back(fault.ply, fault.reason, fault.found, fault.is_whole);
  return found;
}

std::span<const std::uint8_t> transforms_in(const Transforms& transforms, std::size_t count) {
  const auto all = view(transforms);
  if (all.size() != count || std::ranges::any_of(all, [](auto how) { return how > 7; }))
    throw std::invalid_argument("games: one transform for each move");
  return all;
}

// What `work` gives, made without the interpreter's lock; the arguments keep their buffers alive.
template <typename Work>
auto unlocked(Work&& work) {
  nb::gil_scoped_release released;
  return work();
}

void bind_positions(nb::module_& m) {
  m.def("positions_of", [](const Bytes& fields) {
    return made_bytes(positions_of(records<GameFrame>(fields)));
  }, "fields"_a, "The bytes of the positions that frames show.");
  m.def("count_repeats", [](const Bytes& positions) {
    return made(count_repeats(positions_in(positions)));
  }, "positions"_a, "How often each position was there before.");
  m.def("moves_between", [](const Bytes& positions) {
    return handed_over(moves_of(positions_in(positions)));
  }, "positions"_a, "(origins, targets, promotions) of the moves of a game.");
  m.def("wrong_moves", [](const Bytes& positions, const MoveArrays& arrays) {
    const auto game = positions_in(positions);
    const auto found = wrong_moves(game, moves_in(arrays, game.size()));
    std::vector<std::uint8_t> numbers(found.size());
    std::ranges::transform(found, numbers.begin(), [](Wrong wrong) { return static_cast<std::uint8_t>(wrong); });
    return made(std::move(numbers));
  }, "positions"_a, "moves"_a, "What is wrong with each move (`Wrong` of legal.h): 0 for nothing, 1 for one that is not legal.");
  m.def("encode_positions", [](const Array<std::uint8_t>& fields, const Bytes& positions, std::uint32_t format) {
    encode_positions(records<GameFrame>(fields), positions_in(positions), format);
  }, "fields"_a, "positions"_a, "format"_a, "Write positions into frames, in an input format.");
}

void bind_policies(nb::module_& m) {
  m.def("move_entries", [](const MoveArrays& arrays, const Transforms& transforms, bool half_turn) {
    const auto moves = moves_in(arrays, transforms.size());
    const auto how = transforms_in(transforms, moves.size());
    std::vector<std::int16_t> entries(moves.size());
    for (std::size_t i = 0; i < moves.size(); ++i) entries[i] = entry_of(moves[i], how[i], half_turn);
    return made(std::move(entries));
  }, "moves"_a, "transforms"_a, "half_turn"_a, "The entry of each move in the policy of its frame, or -1.");
  m.def("turn_entries", [](const Array<const std::uint16_t>& entries, const Transforms& old, const Transforms& now, bool half_turn) {
    const auto from = transforms_in(old, entries.size()), to = transforms_in(now, entries.size());
    std::vector<std::int16_t> turned(entries.size());
    for (std::size_t i = 0; i < turned.size(); ++i) turned[i] = turn_entry(entries.data()[i], from[i], to[i], half_turn);
    return made(std::move(turned));
  }, "entries"_a, "old"_a, "new"_a, "half_turn"_a, "The entries of the same moves under other transforms, or -1.");
}

void bind_rules(nb::module_& m) {
  m.def("look_at_game", [](const Columns& arrays, bool follow) {
    auto looked = unlocked([&] { return look_at(columns_of(arrays), follow); });
    return std::tuple(handed_over(looked.faults), made_bytes(std::move(looked.positions)), handed_over(looked.moves));
  }, "columns"_a, "follow"_a,
     "(faults, bytes of the positions, moves). A fault: ply, reason, what was found, whether that is a whole number.");
  m.def("uses_half_turn", [](const Columns& arrays, const Bytes& positions, const MoveArrays& moves) {
    const auto columns = columns_of(arrays);
    const auto game = positions_in(positions);
    if (game.size() != columns.size()) throw std::invalid_argument("games: one position for each frame");
    return uses_half_turn(columns, game, moves_in(moves, game.size()));
  }, "columns"_a, "positions"_a, "moves"_a, "Whether policies of transposed frames are turned by 180 degrees.");
}

void bind_rescoring(nb::module_& m) {
  m.def("convert_game", [](const Columns& arrays, const Bytes& positions, std::uint32_t format, bool half_turn) {
    auto game = unlocked([&] { return convert(columns_of(arrays), positions_in(positions), format, half_turn); });
    return std::tuple(made_bytes(std::move(game.fields)), made(std::move(game.moves)), made(std::move(game.probabilities)));
  }, "columns"_a, "positions"_a, "format"_a, "half_turn"_a, "(bytes of the fields, moves, probabilities) in another input format.");
  m.def("deblunder", [](const Array<std::uint8_t>& fields, std::size_t last, double threshold, double width, bool own_result) {
    deblunder(records<GameFrame>(fields), last, {threshold, width, own_result});
  }, "fields"_a, "last"_a, "threshold"_a, "width"_a, "own_result"_a, "Write results without blunders.");
  m.def("add_averages", [](const Array<std::uint8_t>& fields, double theta) {
    add_averages(records<GameFrame>(fields), theta);
  }, "fields"_a, "theta"_a, "Write averages of later plies.");
  m.def("adjust_policies", [](const Columns& arrays, const Array<const double>& more, double offset, double power) {
    return made(unlocked([&] { return adjust_policies(columns_of(arrays), view(more), offset, power); }));
  }, "columns"_a, "more"_a, "offset"_a, "power"_a, "Other probabilities for the same moves.");
}

}  // namespace

void register_positions(nb::module_& m) {
  bind_positions(m);
  bind_policies(m);
  bind_rules(m);
  bind_rescoring(m);
}
