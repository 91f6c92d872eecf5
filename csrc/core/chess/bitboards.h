// core/chess/bitboards.h: chess boards as 64-bit words, a1 in the lowest bit, turned as canonical frames turn them.
#pragma once

#include <bit>
#include <cstdint>

namespace millstream {

using Board = std::uint64_t;

inline constexpr Board full_board = ~Board{0}, first_rank = 0xFF, last_rank = Board{0xFF} << 56;

// Bits of a transform: files reversed, then ranks reversed, then a1 swapped with h8.
inline constexpr unsigned flip_bit = 1, mirror_bit = 2, transpose_bit = 4;

// Swaps the bits of `low` with those so many places higher.
constexpr Board swap_bits(Board board, Board low, int higher) {
  const auto differ = (board ^ board >> higher) & low;
  return board ^ differ ^ differ << higher;
}

// The a-file and the h-file swapped, and so on. A frame keeps its boards so.
constexpr Board reverse_files(Board board) {
  board = swap_bits(board, 0x5555555555555555, 1);
  board = swap_bits(board, 0x3333333333333333, 2);
  return swap_bits(board, 0x0F0F0F0F0F0F0F0F, 4);
}

// The board as the other player sees it.
constexpr Board flip_ranks(Board board) { return __builtin_bswap64(board); }

// Mirrored at the diagonal from a8 to h1: squares of the whole board, then of its quarters, then of their quarters.
constexpr Board transpose(Board board) {
  board = swap_bits(board, 0x000000000F0F0F0F, 36);
  board = swap_bits(board, 0x0000333300003333, 18);
  return swap_bits(board, 0x0055005500550055, 9);
}

constexpr Board transform(Board board, unsigned how) {
  if (how & flip_bit) board = reverse_files(board);
  if (how & mirror_bit) board = flip_ranks(board);
  return how & transpose_bit ? transpose(board) : board;
}

// What `transform` was given.
constexpr Board undo_transform(Board board, unsigned how) {
  if (how & transpose_bit) board = transpose(board);
  if (how & mirror_bit) board = flip_ranks(board);
  return how & flip_bit ? reverse_files(board) : board;
}

constexpr bool is_single(Board board) { return std::has_single_bit(board); }

// The last square of a board, which is the only one of a single piece; -1 of an empty one.
constexpr int square_of(Board board) { return 63 - std::countl_zero(board); }

// A board with one piece; -1 gives an empty one.
constexpr Board board_of(int square) { return square < 0 ? 0 : Board{1} << square; }

}  // namespace millstream
