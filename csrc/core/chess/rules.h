// core/chess/rules.h: whether a game can be what it says: values in their ranges, policies that name what was played, frames that
// follow each other. `legal.h` says whether their moves are legal.
//
// A fault is one broken rule and the first frame that breaks it; faults come in the order of the rules.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/chess/bitboards.h"
#include "core/chess/frames.h"
#include "core/chess/legal.h"
#include "core/chess/policy.h"
#include "core/chess/positions.h"

namespace millstream {

struct Fault {
  std::size_t ply;
  const char* reason;  // short, so that it can be counted
  double found;
  bool is_whole;  // what was found is a whole number
};

namespace rules {

// Of `invariance_info`: a frame that only tells the history; its policy may call the move illegal.
inline bool is_placeholder(const GameFrame& frame) { return frame.invariance_info & 0x40; }

// The first fault of each rule. Every frame is held against the same rules in the same order.
class FirstFaults {
 public:
  void begin(std::size_t ply) { ply_ = ply, rule_ = 0; }

  template <typename T>
  void expect(bool kept, const char* reason, T found) {
    if (rule_ == first_.size()) first_.push_back({0, nullptr, 0, false});
    auto& fault = first_[rule_++];
    if (!kept && !fault.reason) fault = {ply_, reason, static_cast<double>(found), std::is_integral_v<T>};
  }

  template <typename T>
  void expect_within(T value, double least, double most, const char* reason) {
    expect(value >= least && value <= most, reason, value);
  }

  // The same for what an engine may not have known.
  void expect_known_within(float value, double least, double most, const char* reason) {
    expect(std::isnan(value) || (value >= least && value <= most), reason, value);
  }

  std::vector<Fault> found() && {
    std::erase_if(first_, [](const Fault& fault) { return !fault.reason; });
    return std::move(first_);
  }

 private:
  std::vector<Fault> first_;
  std::size_t ply_ = 0, rule_ = 0;
};

inline constexpr double any = std::numeric_limits<double>::infinity();

inline void check_values(const GameFrame& frame, FirstFaults& faults) {
  faults.expect(input_format::is_known(frame.input_format), "unknown input_format", std::uint32_t{frame.input_format});
  faults.expect_within(float{frame.root_q}, -1, 1, "root_q out of range");
  faults.expect_within(float{frame.best_q}, -1, 1, "best_q out of range");
  faults.expect_within(float{frame.played_q}, -1, 1, "played_q out of range");
  faults.expect_within(float{frame.result_q}, -1, 1, "result_q out of range");
  faults.expect_known_within(frame.orig_q, -1, 1, "orig_q out of range");
  faults.expect_within(float{frame.root_d}, 0, 1, "root_d out of range");
  faults.expect_within(float{frame.best_d}, 0, 1, "best_d out of range");
  faults.expect_within(float{frame.played_d}, 0, 1, "played_d out of range");
  faults.expect_known_within(frame.orig_d, 0, 1, "orig_d out of range");
  faults.expect_within(float{frame.root_m}, 0, any, "root_m out of range");
  faults.expect_within(float{frame.best_m}, 0, any, "best_m out of range");
  faults.expect_within(float{frame.played_m}, 0, any, "played_m out of range");
  faults.expect_known_within(frame.orig_m, 0, any, "orig_m out of range");
  faults.expect_within(float{frame.result_d}, 0, any, "result_d out of range");
  faults.expect_within(float{frame.plies_left}, 0, any, "plies_left out of range");
  faults.expect_within(unsigned{frame.rule50_count}, 0, 100, "rule50_count out of range");
  faults.expect_within(unsigned{frame.played_idx}, 0, policy_size - 1, "played_idx out of range");
  faults.expect_within(unsigned{frame.best_idx}, 0, policy_size - 1, "best_idx out of range");
}

// Castling is 0 or 1, or the mask of a file; the other byte is who moves, or the mask of a file.
inline void check_bytes(const GameFrame& frame, FirstFaults& faults) {
  const auto check = [&](unsigned mask, bool is_file, const char* reason) {
    faults.expect(std::popcount(mask) <= 1 && (is_file || mask <= 1), reason, mask);
  };
  const bool files = input_format::has_rook_files(frame.input_format);
  for (const unsigned mask : {frame.castling_us_ooo, frame.castling_us_oo, frame.castling_them_ooo, frame.castling_them_oo})
    check(mask, files, "bad castling");
  check(frame.side_to_move_or_enpassant, input_format::is_canonical(frame.input_format), "bad side_to_move_or_enpassant");
}

inline void check_board(const GameFrame& frame, FirstFaults& faults) {
  const Board own = frame.planes[king], other = frame.planes[6 + king];
  faults.expect(is_single(own) && is_single(other), "not one king each", std::popcount(own | other));
  Board squares = 0;
  int men = 0;
  for (std::size_t piece = 0; piece < 12; ++piece) squares |= frame.planes[piece], men += std::popcount(frame.planes[piece]);
  faults.expect(men == std::popcount(squares), "two pieces on a square", men);
}

// Whether the policy of a frame has an entry for a move; NaN is how old files say illegal.
inline bool is_marked(const FrameColumns& game, std::size_t ply, int entry) {
  for (auto at = game.begin_of(ply); at < game.ends[ply]; ++at)
    if (game.moves[at] == entry && !std::isnan(game.probabilities[at])) return true;
  return false;
}

inline void check_policy(const FrameColumns& game, std::size_t ply, FirstFaults& faults) {
  const auto& frame = game.fields[ply];
  float outside = 0;
  double sum = 0;
  for (auto at = game.begin_of(ply); at < game.ends[ply]; ++at) {
    const auto chance = game.probabilities[at];
    if (std::isnan(chance)) continue;
    if (!(chance >= 0 && chance <= 1) && outside == 0) outside = chance;
    sum += chance;
  }
  faults.expect(outside == 0, "probability out of range", outside);
  faults.expect_within(sum, 0.99, 1.01, "policy does not sum to 1");
  const bool searched = frame.visits > 0, shown = !is_placeholder(frame);
  const unsigned played = frame.played_idx, best = frame.best_idx;
  faults.expect(!searched || !shown || is_marked(game, ply, static_cast<int>(played)), "played_idx marked illegal", played);
  faults.expect(!searched || is_marked(game, ply, static_cast<int>(best)), "best_idx marked illegal", best);
}

// Whether a frame's own words agree with a move: it is among the legal ones, and the one that is called played, if it knows.
struct Agreement {
  bool marked, played;
};

inline Agreement agreement(const FrameColumns& game, std::size_t ply, int entry) {
  const auto& frame = game.fields[ply];
  return {is_marked(game, ply, entry), frame.visits == 0 || frame.played_idx == entry};
}

inline void check_move(const FrameColumns& game, std::size_t ply, Move move, bool half_turn, FirstFaults& faults) {
  const auto& frame = game.fields[ply];
  const bool follows = move.origin >= 0;
  const int entry = entry_of(move, transform_of(frame), half_turn);
  const auto [marked, played] = agreement(game, ply, entry);
  faults.expect(follows, "no move to the next frame", 0);
  faults.expect(!follows || entry >= 0, "move without an entry", int{move.target});
  faults.expect(entry < 0 || is_placeholder(frame) || marked, "move marked illegal", entry);
  faults.expect(entry < 0 || played, "move is not played_idx", unsigned{frame.played_idx});
}

}  // namespace rules

// Rules that each frame must keep by itself.
inline std::vector<Fault> value_faults(const FrameColumns& game) {
  rules::FirstFaults faults;
  for (std::size_t ply = 0; ply < game.size(); ++ply) {
    faults.begin(ply);
    rules::check_values(game.fields[ply], faults);
    rules::check_bytes(game.fields[ply], faults);
    rules::check_board(game.fields[ply], faults);
    rules::check_policy(game, ply, faults);
  }
  return std::move(faults).found();
}

namespace rules {

// Whether a transposed frame can have been written by a rule: its policy names legal moves, and the one that was played, if
// there is one. A placeholder knows no policy.
inline bool fits(const FrameColumns& game, std::size_t ply, const Position& position, Move played, bool half_turn) {
  const auto how = transform_of(game.fields[ply]);
  const bool shown = !is_placeholder(game.fields[ply]);
  if (played.origin >= 0) {
    const auto [is_marked, is_played] = agreement(game, ply, entry_of(played, how, half_turn));
    if ((shown && !is_marked) || !is_played) return false;
  }
  for (auto at = game.begin_of(ply); shown && at < game.ends[ply]; ++at)
    if (!std::isnan(game.probabilities[at]) && !is_legal(position, move_of(game.moves[at], how, half_turn))) return false;
  return true;
}

}  // namespace rules

// Whether the policies of transposed frames are turned by 180 degrees instead, as later engines do by mistake. The moves of the
// game and those of the policies tell; where both rules fit them, it is the one that fits the planes.
inline bool uses_half_turn(const FrameColumns& game, std::span<const Position> positions, std::span<const Move> moves) {
  bool by_planes = true, by_half_turn = true;
  for (std::size_t ply = 0; ply < positions.size(); ++ply) {
    if (!(transform_of(game.fields[ply]) & transpose_bit)) continue;
    const auto move = ply < moves.size() ? moves[ply] : Move{};
    by_planes = by_planes && rules::fits(game, ply, positions[ply], move, false);
    by_half_turn = by_half_turn && rules::fits(game, ply, positions[ply], move, true);
  }
  return !by_planes && by_half_turn;
}

// Rules between each frame and the next: a move leads there, and it is the one that the frame calls played.
inline std::vector<Fault> move_faults(const FrameColumns& game, std::span<const Position> positions, std::span<const Move> moves) {
  const bool half_turn = uses_half_turn(game, positions, moves);
  rules::FirstFaults faults;
  for (std::size_t ply = 0; ply < moves.size(); ++ply) {
    faults.begin(ply);
    rules::check_move(game, ply, moves[ply], half_turn, faults);
  }
  return std::move(faults).found();
}

// A game that was looked at: what is wrong with it, and what happens in it, if that was asked for.
struct Looked {
  std::vector<Fault> faults;
  std::vector<Position> positions;
  std::vector<Move> moves;
};

// Looks at each frame by itself, and then, if `follow`, at what leads from each to the next.
inline Looked look_at(const FrameColumns& game, bool follow) {
  Looked looked{value_faults(game), {}, {}};
  if (!looked.faults.empty()) return looked;
  if (!follow) return looked;
  looked.positions = positions_of(game.fields);
  looked.moves = moves_of(looked.positions);
  looked.faults = move_faults(game, looked.positions, looked.moves);
  return looked;
}

}  // namespace millstream
