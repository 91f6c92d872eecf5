// core/chess/policy.h: the moves that a policy names, in their order, and how transforms of canonical frames turn them.
//
// An entry is a move of the player who moves up the board: first every pair of squares that a queen or a knight joins on an
// empty board, then pawns that become a queen, a rook or a bishop. One that becomes a knight has the plain name.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "core/chess/bitboards.h"
#include "core/chess/frames.h"
#include "core/chess/positions.h"

namespace millstream {

inline constexpr std::int16_t no_entry = -1;

namespace policy {

// Where a square goes. Planes are transposed; later engines turn the squares of their policies by 180 degrees instead.
constexpr int turned_square(int square, unsigned how, bool half_turn) {
  if (how & flip_bit) square ^= 7;
  if (how & mirror_bit) square ^= 56;
  if (!(how & transpose_bit)) return square;
  return half_turn ? 63 - square : 63 - ((square & 7) << 3 | square >> 3);
}

struct Tables {
  std::array<Move, policy_size> moves;
  std::array<std::int16_t, 64 * 64 * 5> entries;
  std::array<std::array<std::array<std::int8_t, 64>, 8>, 2> there, back;  // [half turn][transform][square]

  Tables() {
    entries.fill(no_entry);
    std::int16_t entry = 0;
    for (int origin = 0; origin < 64; ++origin)
      for (int target = 0; target < 64; ++target) {
        const int up = std::abs((target >> 3) - (origin >> 3)), aside = std::abs((target & 7) - (origin & 7));
        if (origin == target || !(up == 0 || aside == 0 || up == aside || up + aside == 3)) continue;
        at(origin, target, 0) = at(origin, target, knight) = entry;
        name(entry++, origin, target, 0);
      }
    for (int file = 0; file < 8; ++file)
      for (int to = std::max(file - 1, 0); to < std::min(file + 2, 8); ++to)
        for (const int piece : {queen, rook, bishop}) {
          at(48 + file, 56 + to, piece) = entry;
          name(entry++, 48 + file, 56 + to, piece);
        }
    for (int rule = 0; rule < 2; ++rule)
      for (unsigned how = 0; how < 8; ++how)
        for (int square = 0; square < 64; ++square) {
          const auto turned = turned_square(square, how, rule != 0);
          there[rule][how][square] = static_cast<std::int8_t>(turned);
          back[rule][how][turned] = static_cast<std::int8_t>(square);
        }
  }

  std::int16_t& at(int origin, int target, int promotion) { return entries[(origin * 64 + target) * 5 + promotion]; }
  std::int16_t at(int origin, int target, int promotion) const { return entries[(origin * 64 + target) * 5 + promotion]; }

 private:
  void name(int entry, int origin, int target, int piece) {
    moves[entry] = {static_cast<std::int8_t>(origin), static_cast<std::int8_t>(target), static_cast<std::int8_t>(piece)};
  }
};

inline const Tables tables;

}  // namespace policy

// The entry of a move in the policy of a frame, or `no_entry`.
inline std::int16_t entry_of(Move move, unsigned how, bool half_turn = false) {
  if (move.origin < 0) return no_entry;
  const auto& turned = policy::tables.there[half_turn][how];
  return policy::tables.at(turned[move.origin], turned[move.target], move.promotion);
}

// The move that an entry of the policy of a frame names, if there is such an entry.
inline Move move_of(std::uint16_t entry, unsigned how, bool half_turn = false) {
  if (entry >= policy_size) return {};
  const auto [origin, target, promotion] = policy::tables.moves[entry];
  const auto& back = policy::tables.back[half_turn][how];
  return {back[origin], back[target], promotion};
}

// The entry of the same move under another transform, or `no_entry`. `half_turn`: the old ones are by the later rule.
inline std::int16_t turn_entry(std::uint16_t entry, unsigned from, unsigned to, bool half_turn = false) {
  return entry_of(move_of(entry, from, half_turn), to);
}

}  // namespace millstream
