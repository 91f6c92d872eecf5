// core/chess/legal.h: whether a move of a position is legal: its piece goes so, nothing is in its way, and its king is safe behind it;
// and whether it leads to what the next position says of sides, rights and counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/chess/bitboards.h"
#include "core/chess/positions.h"

namespace millstream {

namespace legal {

struct Step {
  int file, rank;
};

inline constexpr std::array<Step, 4> straight{{{1, 0}, {0, 1}, {-1, 0}, {0, -1}}}, diagonal{{{1, 1}, {-1, 1}, {-1, -1}, {1, -1}}};
inline constexpr std::array<Step, 8> hops{{{1, 2}, {2, 1}, {2, -1}, {1, -2}, {-1, -2}, {-2, -1}, {-2, 1}, {-1, 2}}};
inline constexpr std::array<Step, 2> up_aside{{{-1, 1}, {1, 1}}};

// The squares that some steps reach; `slides`: each is repeated until something is in its way.
template <std::size_t count>
Board reached(int square, const std::array<Step, count>& steps, bool slides = false, Board occupied = 0) {
  Board found = 0;
  for (const auto& [file_step, rank_step] : steps) {
    int file = square & 7, rank = square >> 3;
    do {
      file += file_step, rank += rank_step;
      if (file < 0 || file > 7 || rank < 0 || rank > 7) break;
      found |= board_of(rank * 8 + file);
    } while (slides && !(occupied & board_of(rank * 8 + file)));
  }
  return found;
}

inline Board king_steps(int square) { return reached(square, straight) | reached(square, diagonal); }

// Whether one of some pieces, which play down the board, attacks a square.
inline bool is_attacked(int square, std::span<const Board, 6> by, Board occupied) {
  return (reached(square, straight, true, occupied) & (by[rook] | by[queen])) ||
         (reached(square, diagonal, true, occupied) & (by[bishop] | by[queen])) || (reached(square, hops) & by[knight]) ||
         (king_steps(square) & by[king]) || (reached(square, up_aside) & by[pawn]);
}

// The squares of the first rank from one to another, both of them too.
inline Board between(int one, int other) {
  Board squares = 0;
  for (int square = std::min(one, other); square <= std::max(one, other); ++square) squares |= board_of(square);
  return squares;
}

// The king takes its own rook: it has the right to, nothing stands where the two go, and no piece attacks where the king goes.
inline bool may_castle(const Position& position, Move move) {
  const auto from = board_of(move.origin), rook_from = board_of(move.target), occupied = position.own() | position.other();
  const bool a_side = move.target < move.origin;
  const auto [king_to, rook_to] = positions::castled(a_side);
  if (!(from & first_rank) || !(from & position.pieces[king]) || !(rook_from & position.pieces[rook])) return false;
  if (move.promotion || position.castling[a_side ? 0 : 1] != move.target) return false;
  const auto path = between(move.origin, king_to);
  if ((occupied & ~from & ~rook_from) & (path | between(move.target, rook_to))) return false;
  const std::span<const Board, 6> others(position.pieces.data() + 6, 6);
  for (auto passed = from | (path & ~board_of(king_to)); passed; passed &= passed - 1)
    if (is_attacked(std::countr_zero(passed), others, occupied & ~from)) return false;
  return !is_attacked(king_to, others, (occupied & ~from & ~rook_from) | board_of(rook_to));  // the rook may have been a shield
}

inline bool takes_in_passing(const Position& position, Move move) {
  return move.origin >> 3 == 4 && position.en_passant == (move.target & 7) && !(position.other() & board_of(move.target));
}

// Whether a pawn goes so: one or two ranks up, or aside where it takes something. On the last rank it becomes something.
inline bool pawn_goes(const Position& position, Move move) {
  const auto target = board_of(move.target), occupied = position.own() | position.other();
  if (((target & last_rank) != 0) != (move.promotion != 0)) return false;
  if (reached(move.origin, up_aside) & target) return (position.other() & target) || takes_in_passing(position, move);
  if (occupied & target) return false;
  if (move.target == move.origin + 8) return true;
  return move.target == move.origin + 16 && move.origin >> 3 == 1 && !(occupied & board_of(move.origin + 8));
}

inline bool piece_goes(const Position& position, Move move, std::size_t piece) {
  const auto target = board_of(move.target), occupied = position.own() | position.other();
  if (piece == pawn) return pawn_goes(position, move);
  if (move.promotion) return false;
  if (piece == knight) return reached(move.origin, hops) & target;
  if (piece == king) return king_steps(move.origin) & target;
  return (piece != bishop && reached(move.origin, straight, true, occupied) & target) ||
         (piece != rook && reached(move.origin, diagonal, true, occupied) & target);
}

// Whether the mover's king is safe behind a move that is not castling.
inline bool is_safe_behind(const Position& position, Move move, std::size_t piece) {
  const auto from = board_of(move.origin), to = board_of(move.target);
  auto taken = to;
  if (piece == pawn && (move.origin & 7) != (move.target & 7) && takes_in_passing(position, move)) taken = to >> 8;
  std::array<Board, 6> others;
  std::transform(position.pieces.begin() + 6, position.pieces.end(), others.begin(), [&](auto board) { return board & ~taken; });
  const auto occupied = ((position.own() | position.other()) & ~from & ~taken) | to;
  return !is_attacked(piece == king ? move.target : square_of(position.pieces[king]), others, occupied);
}

}  // namespace legal

inline bool is_legal(const Position& position, Move move) {
  if (move.origin < 0 || move.origin > 63 || move.target < 0 || move.target > 63) return false;
  if (position.own() & board_of(move.target)) return legal::may_castle(position, move);
  for (std::size_t piece = 0; piece < 6; ++piece)
    if (position.pieces[piece] & board_of(move.origin))
      return legal::piece_goes(position, move, piece) && legal::is_safe_behind(position, move, piece);
  return false;
}

// What is wrong with a move; the first that is.
enum class Wrong : std::uint8_t { nothing, illegal, side, castling, en_passant, rule50 };

namespace legal {

// Whether it is a piece of this kind that moves.
inline bool moves_from(const Position& now, Move move, std::size_t piece) { return now.pieces[piece] & board_of(move.origin); }

// Whether a right of the next position, seen by its mover, may still be there: it was, and its king and rook were left alone.
inline bool keeps_right(const Position& now, Move move, std::size_t right, int file) {
  const bool own = right < 2;
  if (file != now.castling[right]) return false;
  if (own) return !moves_from(now, move, king) && move.origin != file;
  return move.target != file + 56;
}

}  // namespace legal

// What is wrong with a legal move, by what the next position says. A right that is not there any more is not missed.
inline Wrong wrong_behind(const Position& now, Move move, const Position& next) {
  if (next.black == now.black) return Wrong::side;
  for (std::size_t right = 0; right < 4; ++right) {
    const int file = next.castling[right ^ 2];
    if (file >= 0 && !legal::keeps_right(now, move, right, file)) return Wrong::castling;
  }
  const bool pawn_moved = legal::moves_from(now, move, pawn);
  const bool pushed = pawn_moved && move.target == move.origin + 16;
  if (next.en_passant >= 0 && !(pushed && next.en_passant == (move.target & 7))) return Wrong::en_passant;
  const bool zeroes = pawn_moved || now.other() & board_of(move.target);
  return next.rule50 == (zeroes ? 0 : now.rule50 + 1) ? Wrong::nothing : Wrong::rule50;
}

// What is wrong with each move of a game; where none is known, nothing is.
inline std::vector<Wrong> wrong_moves(std::span<const Position> game, std::span<const Move> moves) {
  std::vector<Wrong> found(moves.size());
  for (std::size_t ply = 0; ply < moves.size(); ++ply) {
    if (moves[ply].origin < 0) continue;
    if (!is_legal(game[ply], moves[ply])) found[ply] = Wrong::illegal;
    else if (ply + 1 < game.size()) found[ply] = wrong_behind(game[ply], moves[ply], game[ply + 1]);
  }
  return found;
}

}  // namespace millstream
