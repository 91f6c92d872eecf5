// bind/chess.cpp: frames and positions of self-play games for millstream.games. All of it works without the interpreter's lock.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <tuple>

#include "bind/module.h"
#include "core/chess/encode.h"
#include "core/chess/frames.h"
#include "core/chess/inflate.h"
#include "core/chess/legal.h"
#include "core/chess/planes.h"
#include "core/chess/plies.h"
#include "core/chess/policy.h"
#include "core/chess/positions.h"
#include "core/chess/rescore.h"
#include "core/chess/reservoir.h"
#include "core/chess/rules.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Bytes = Array<const std::uint8_t>;
using MadeBytes = Made<std::uint8_t>;
// Bytes of the fields, ends, moves, probabilities.
using Columns = std::tuple<Bytes, Array<const std::uint32_t>, Array<const std::uint16_t>, Array<const float>>;

// Bytes as records of a type that fits their size and address.
template <typename T, typename Byte>
auto records(const Array<Byte>& bytes) {
  using Record = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  if (bytes.size() % sizeof(T) != 0) throw std::invalid_argument("games: no whole number of records");
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0) throw std::invalid_argument("games: crooked records");
  return std::span<Record>(reinterpret_cast<Record*>(bytes.data()), bytes.size() / sizeof(T));
}

millstream::FrameColumns columns_of(const Columns& arrays) {
  const auto& [fields, ends, moves, probabilities] = arrays;
  const auto is_crooked = [](const auto& array) { return reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() != 0; };
  if (is_crooked(ends) || is_crooked(moves) || is_crooked(probabilities)) throw std::invalid_argument("games: crooked columns");
  const millstream::FrameColumns columns{records<millstream::GameFrame>(fields), view(ends), view(moves), view(probabilities)};
  columns.check();
  return columns;
}

// Records as bytes that own them.
template <typename T>
MadeBytes made_bytes(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return {reinterpret_cast<std::uint8_t*>(kept->data()), {kept->size() * sizeof(T)}, owner};
}

using MadeColumns = std::tuple<MadeBytes, Made<std::uint32_t>, Made<std::uint16_t>, Made<float>>;
// Columns, origins, slots, and the origins of what is there now.
using MadeEmitted = std::tuple<MadeColumns, MadeBytes, Made<std::uint32_t>>;

template <typename To, typename From>
Made<To> owned(std::unique_ptr<From[]> values, std::size_t size) {
  From* data = values.release();
  nb::capsule owner(data, [](void* kept) noexcept { delete[] static_cast<From*>(kept); });
  return {reinterpret_cast<To*>(data), {size}, owner};
}

MadeColumns handed_over(FrameStore&& store) {
  store.fit();
  const auto entries = store.entries();
  return {owned<std::uint8_t>(std::move(store.fields), store.size() * sizeof(GameFrame)), made(std::move(store.ends)),
          owned<std::uint16_t>(std::move(store.moves), entries), owned<float>(std::move(store.probabilities), entries)};
}

MadeEmitted handed_over(Reservoir::Emitted&& out) {
  return {handed_over(std::move(out.frames)), made_bytes(std::move(out.origins)), made(std::move(out.slots))};
}

template <typename Real>
std::span<Real> reals(const Array<std::uint8_t>& bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(Real) != 0 || bytes.size() % sizeof(Real) != 0)
    throw std::invalid_argument("games: an output is cut or crooked");
  return {reinterpret_cast<Real*>(bytes.data()), bytes.size() / sizeof(Real)};
}

template <typename Real>
void fill(const Columns& arrays, const Array<std::uint8_t>& planes, const Array<std::uint8_t>& policy,
          const Array<std::uint8_t>& values) {
  nb::gil_scoped_release released;
  fill_tensors<Real>(columns_of(arrays), reals<Real>(planes), reals<Real>(policy), reals<Real>(values));
}

std::span<const std::uint8_t> bytes_in(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.c_str()), bytes.size()};
}

// So many bytes that `fills` writes without the interpreter's lock, or None if it says that it could not.
template <typename Fills>
std::optional<nb::bytes> bytes_of(std::size_t size, Fills&& fills) {
  auto out = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!out.is_valid()) throw nb::python_error();
  const std::span into(reinterpret_cast<std::uint8_t*>(PyBytes_AsString(out.ptr())), size);
  const bool filled = [&] {
    nb::gil_scoped_release released;  // nothing else has seen `out`
    return fills(into);
  }();
  if (!filled) return std::nullopt;
  return out;
}

// One call at a time, from any thread.
struct SharedReservoir {
  std::mutex mutex;
  Reservoir reservoir;

  SharedReservoir(std::size_t capacity, std::uint64_t seed) : reservoir(capacity, seed) {}

  template <typename Work>
  auto ask(Work&& work) {
    nb::gil_scoped_release released;  // before waiting for a thread that may wait for the interpreter
    const std::lock_guard lock(mutex);
    return work(reservoir);
  }
};

void bind_reservoir(nb::module_& m) {
  nb::class_<SharedReservoir>(m, "Reservoir", "Frames in random order; see millstream.games.Reservoir.")
      .def(nb::init<std::size_t, std::uint64_t>(), "capacity"_a, "seed"_a)
      .def("__len__", [](SharedReservoir& self) { return self.ask([](const Reservoir& slots) { return slots.size(); }); })
      .def_prop_ro("counter", [](SharedReservoir& self) {
        return self.ask([](const Reservoir& slots) { return slots.counter(); });
      })
      .def_prop_ro("nbytes", [](SharedReservoir& self) {
        return self.ask([](const Reservoir& slots) { return slots.nbytes(); });
      })
      .def("exchange", [](SharedReservoir& self, const Columns& arrays, const Bytes& origins) {
        return handed_over(self.ask([&](Reservoir& slots) {
          return slots.exchange(columns_of(arrays), records<Origin>(origins));
        }));
      }, "columns"_a, "origins"_a, "(columns, origins, slots, origins of what is there now)")
      .def("drain", [](SharedReservoir& self, std::size_t most) {
        return handed_over(self.ask([&](Reservoir& slots) { return slots.drain(most); }));
      }, "most"_a, "The same for frames that are left.")
      .def("origins", [](SharedReservoir& self) {
        return made_bytes(self.ask([](const Reservoir& slots) { return slots.origins(); }));
      }, "Where the frame in each slot is from.")
      .def("restore", [](SharedReservoir& self, const Columns& arrays, const Bytes& origins, std::uint64_t counter) {
        self.ask([&](Reservoir& slots) { slots.restore(columns_of(arrays), records<Origin>(origins), counter); });
      }, "columns"_a, "origins"_a, "counter"_a, "Fill the slots in order.");
}

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

void register_chess(nb::module_& m) {
  nb::exception<FrameError>(m, "FrameError", PyExc_ValueError);
  m.def("read_frames", [](const Bytes& raw, const std::optional<Array<const std::uint32_t>>& plies, std::size_t behind) {
    auto store = [&] {
      nb::gil_scoped_release released;  // the arguments keep their buffers alive
      return plies ? read_frames(view(raw), view(*plies), behind) : read_frames(view(raw), {}, behind);
    }();
    return handed_over(std::move(store));
  }, "raw"_a, "plies"_a.none() = nb::none(), "behind"_a = 0,
     "The frames of a chunk, or some of them: (bytes of the fields, ends, moves, probabilities).");
  m.def("plies_at_rate", [](std::uint64_t rounds, std::uint64_t use, std::size_t length, double rate) {
    return made(plies_at_rate(rounds, use, length, rate));  // microseconds: not worth giving up the lock
  }, "rounds"_a, "use"_a, "length"_a, "rate"_a, "The positions that a use of a game gives.");
  m.def("gunzip", [](const nb::bytes& packed, std::size_t size) {
    return bytes_of(size, [from = bytes_in(packed)](auto out) { return gunzip(from, out); });
  }, "packed"_a, "size"_a, "The bytes of a gzip file of one member that has so many, or None for any other.");
  m.def("gunzip_front", [](const nb::bytes& packed, std::size_t size, std::uint32_t sum) {
    return bytes_of(size, [=, from = bytes_in(packed)](auto out) { return gunzip_front(from, sum, out); });
  }, "packed"_a, "size"_a, "sum"_a, "The first bytes of a gzip file that was found sound with this checksum, else None.");
  m.def("crc32", [](const nb::bytes& packed) {
    const auto bytes = bytes_in(packed);
    nb::gil_scoped_release released;
    return crc32(bytes);
  }, "packed"_a, "The checksum that `gunzip_front` asks for.");
  m.def("fill_tensors", &fill<float>, "columns"_a, "planes"_a, "policy"_a, "values"_a, "Write into the bytes of arrays of float32.");
  m.def("fill_half_tensors", &fill<Half>, "columns"_a, "planes"_a, "policy"_a, "values"_a, "Write into the bytes of arrays of float16.");
  m.def("fill_boards", [](const Bytes& fields, const Array<std::uint64_t>& boards, const Array<float>& rule50) {
    nb::gil_scoped_release released;
    fill_boards(records<GameFrame>(fields), view(boards), view(rule50));
  }, "fields"_a, "boards"_a, "rule50"_a, "Write the planes as boards of 64 bits, and what plane 109 stands for.");
  bind_reservoir(m);
  bind_positions(m);
  bind_policies(m);
  bind_rules(m);
  bind_rescoring(m);
}
