// core/chess/positions.h: frames -> the positions that they show, whatever their input format; and the move between two of them.
//
// Every position is seen by its own mover, who plays up the board. No move is generated: two positions show what was played.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/chess/bitboards.h"
#include "core/chess/frames.h"

namespace millstream {

enum Piece : int { pawn, knight, bishop, rook, queen, king };

// The same bytes as `POSITION` of millstream.games.
struct Position {
  std::array<Board, 12> pieces;         // the mover's, in the order of `Piece`, then the other player's
  std::array<std::int8_t, 4> castling;  // files of rooks, -1 for none: the mover's a-side and h-side, then the other's
  std::int8_t en_passant;               // the file of a pawn that can be taken so, or -1
  std::uint8_t rule50, black, padding;

  Board own() const { return all(0); }
  Board other() const { return all(6); }
  bool can_castle() const { return std::ranges::any_of(castling, [](auto file) { return file >= 0; }); }

 private:
  Board all(std::size_t first) const {
    Board board = 0;
    for (auto piece = first; piece < first + 6; ++piece) board |= pieces[piece];
    return board;
  }
};
static_assert(sizeof(Position) == 104);

// A move as its own player sees it: from -1 if there is none; to castle, the king takes its own rook.
struct Move {
  std::int8_t origin = -1, target = -1, promotion = 0;
};
static_assert(sizeof(Move) == 3);

namespace positions {

inline constexpr unsigned black_moves = 0x80, transform_bits = 0x07;  // of `invariance_info`, in canonical formats
inline constexpr std::size_t slot = 13;  // planes of a position of the history: own pieces, the other's, whether it was there before

// The file of the other player's pawn that has just gone two ranks, or -1.
inline int pushed_file(Board pawns, Board before) {
  const auto came = pawns & ~before, gone = before & ~pawns;
  return is_single(came) && gone != 0 && gone == came << 16 ? square_of(came) & 7 : -1;
}

// The same file where a pawn of the mover stands beside the pushed one, else -1.
inline int takeable(Board own_pawns, int file) {
  const unsigned fifth = own_pawns >> 32 & 0xFF, there = file < 0 ? 0 : 1U << file;
  return ((there << 1 | there >> 1) & fifth) ? file : -1;
}

}  // namespace positions

// The transform of a frame; 0 where its format has none.
inline unsigned transform_of(const GameFrame& frame) {
  return input_format::is_canonical(frame.input_format) ? frame.invariance_info & positions::transform_bits : 0;
}

inline Position position_of(const GameFrame& frame) {
  const bool canonical = input_format::is_canonical(frame.input_format);
  const auto how = transform_of(frame);
  const auto shown = [&](std::size_t plane) { return undo_transform(reverse_files(frame.planes[plane]), how); };
  Position found{};
  for (std::size_t piece = 0; piece < 12; ++piece) found.pieces[piece] = shown(piece);
  const unsigned rights[] = {frame.castling_us_ooo, frame.castling_us_oo, frame.castling_them_ooo, frame.castling_them_oo};
  for (std::size_t right = 0; right < 4; ++right) {
    const int file = input_format::has_rook_files(frame.input_format) ? square_of(rights[right]) : right % 2 ? 7 : 0;
    found.castling[right] = static_cast<std::int8_t>(rights[right] ? file : -1);
  }
  const unsigned side = frame.side_to_move_or_enpassant;
  const auto mask = how & flip_bit ? reverse_files(side) & 0xFF : side;
  const auto pushed = canonical ? square_of(mask) : positions::pushed_file(found.pieces[6 + pawn], shown(positions::slot + 6 + pawn));
  found.en_passant = static_cast<std::int8_t>(positions::takeable(found.pieces[pawn], pushed));
  found.rule50 = frame.rule50_count;
  found.black = canonical ? (frame.invariance_info & positions::black_moves) != 0 : side != 0;
  return found;
}

inline std::vector<Position> positions_of(std::span<const GameFrame> frames) {
  std::vector<Position> found(frames.size());
  std::ranges::transform(frames, found.begin(), position_of);
  return found;
}

// How often each position was there before, as far as the game is known.
inline std::vector<std::uint32_t> count_repeats(std::span<const Position> game) {
  const auto same = [](const Position& one, const Position& other) {
    return one.pieces == other.pieces && one.castling == other.castling && one.en_passant == other.en_passant;
  };
  std::vector<std::uint32_t> counts(game.size());
  for (std::size_t now = 4; now < game.size(); ++now) {
    if (game[now].rule50 < 4) continue;
    for (auto then = now - 4;; then -= 2) {
      if (same(game[then], game[now])) {
        counts[now] = 1 + counts[then];
        break;
      }
      if (then < 2 || game[then].rule50 < 2) break;
    }
  }
  return counts;
}

namespace positions {

// What one player's pieces did between two positions.
struct Change {
  std::array<Board, 6> gone, came;
  Board left = 0, reached = 0;  // all of them
  int kinds = 0;                // of pieces that changed

  Change(const Board* before, const Board* after) {
    for (std::size_t piece = 0; piece < 6; ++piece) {
      const auto then = flip_ranks(after[piece]);
      gone[piece] = before[piece] & ~then, came[piece] = then & ~before[piece];
      left |= gone[piece], reached |= came[piece];
      kinds += (gone[piece] | came[piece]) != 0;
    }
  }

  bool moved(std::size_t piece) const { return is_single(gone[piece]) && is_single(came[piece]); }
};

// Where king and rook stand on the first rank when they have castled.
struct Castled {
  int king, rook;
};

inline constexpr Castled castled(bool a_side) { return a_side ? Castled{2, 3} : Castled{6, 5}; }

// Where the rook stood with which the king castled, or -1. In Chess960 the king or the rook may stand where it will stand:
// then the other one jumps over it.
inline int castled_rook(const Position& now, const Change& own) {
  const bool king_moved = own.moved(king), rook_moved = own.moved(rook);
  const int from = square_of(now.pieces[king]);
  if (own.kinds == 0 || own.kinds != king_moved + rook_moved || from > 7) return -1;
  for (const bool a_side : {true, false}) {
    const auto [king_to, rook_to] = castled(a_side);
    const int rook_from = rook_moved ? square_of(own.gone[rook]) : rook_to;
    const bool lands = king_moved ? own.came[king] == board_of(king_to) : from == king_to;
    const bool beside = (rook_moved ? own.came[rook] : now.pieces[rook]) & board_of(rook_to);
    if (lands && beside && rook_from < 8 && (rook_from < from) == a_side) return rook_from;
  }
  return -1;
}

// The piece that a pawn became, or 0.
inline std::int8_t promotion(const Change& own) {
  const bool one_pawn = own.kinds == 2 && is_single(own.gone[pawn]) && own.came[pawn] == 0 && own.left == own.gone[pawn];
  if (!one_pawn || own.came[king] || !is_single(own.reached)) return 0;
  std::int8_t became = knight;
  while (!own.came[static_cast<std::size_t>(became)]) ++became;
  return became;
}

// Whether the other player has lost the piece on the target, or the pawn taken en passant, and nothing else.
inline bool explains_the_rest(const Position& now, const Position& next, const Change& own, Move move, bool castles) {
  const Change theirs(now.pieces.data() + 6, next.pieces.data());
  auto taken = castles ? 0 : now.other() & board_of(move.target);
  const bool aside = (own.gone[pawn] | own.came[pawn]) && (move.origin & 7) != (move.target & 7) && taken == 0;
  if (aside) taken = board_of(move.target) >> 8;
  return theirs.left == taken && theirs.reached == 0 && (!aside || theirs.gone[pawn] == taken);
}

}  // namespace positions

// The move that leads from a position to the next.
inline Move move_between(const Position& now, const Position& next) {
  const positions::Change own(now.pieces.data(), next.pieces.data() + 6);
  const int rook_square = positions::castled_rook(now, own);
  const bool castles = rook_square >= 0;
  const auto became = castles ? std::int8_t{0} : positions::promotion(own);
  bool moved = castles || became != 0;
  for (std::size_t piece = 0; piece < 6 && own.kinds == 1; ++piece) moved |= own.moved(piece);
  const int origin = square_of(castles ? now.pieces[king] : own.left), target = castles ? rook_square : square_of(own.reached);
  const Move move{static_cast<std::int8_t>(origin), static_cast<std::int8_t>(target), became};
  return moved && positions::explains_the_rest(now, next, own, move, castles) ? move : Move{};
}

// The moves of a game: one less than positions.
inline std::vector<Move> moves_of(std::span<const Position> game) {
  std::vector<Move> moves(game.empty() ? 0 : game.size() - 1);
  for (std::size_t ply = 0; ply < moves.size(); ++ply) moves[ply] = move_between(game[ply], game[ply + 1]);
  return moves;
}

}  // namespace millstream
