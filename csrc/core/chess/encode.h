// core/chess/encode.h: positions of a game -> the position part of its frames, in any input format. `position_of` is the way back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/chess/bitboards.h"
#include "core/chess/frames.h"
#include "core/chess/policy.h"
#include "core/chess/positions.h"

namespace millstream {

namespace encode {

inline constexpr std::size_t slots = 8;
inline constexpr Board left = 0x0F0F0F0F0F0F0F0F, upper = 0xFFFFFFFF00000000;
inline constexpr Board beyond = 0xE0C08000, diagonal = 0x10204080;  // where a king stands that is beyond the diagonal, or on it

// Whether the first board that differs from itself transposed is bigger than that.
inline bool is_bigger(const Position& position, unsigned how) {
  const auto& pieces = position.pieces;
  const auto both = [&](std::size_t piece) { return pieces[piece] | pieces[6 + piece]; };
  const Board deciding[] = {position.own() | position.other(), position.own(), both(king), both(queen),
                            both(rook), both(knight), both(bishop)};
  for (const auto board : deciding) {
    const auto kept = transform(board, how), turned = transpose(kept);
    if (kept != turned) return kept > turned;
  }
  return false;
}

}  // namespace encode

// How canonical formats turn a position, so that equal ones look equal: the king to the right, where pawns allow also down and
// below the diagonal. A king on the diagonal leaves the choice to the other pieces.
inline unsigned choose_transform(const Position& position) {
  const auto& pieces = position.pieces;
  if (position.can_castle()) return 0;
  unsigned how = pieces[king] & encode::left ? flip_bit : 0;
  if (pieces[pawn] | pieces[6 + pawn]) return how;
  if (pieces[king] & encode::upper) how |= mirror_bit;
  const auto turned = transform(pieces[king], how);
  const bool across = turned & encode::beyond || (turned & encode::diagonal && encode::is_bigger(position, how));
  return across ? how | transpose_bit : how;
}

namespace encode {

using Slot = std::array<Board, positions::slot>;

// A position as a slot of the history of one so many plies later.
inline Slot shown(const Position& position, std::size_t later, bool repeated) {
  Slot slot;
  for (std::size_t piece = 0; piece < 6; ++piece) {
    const Board own = position.pieces[piece], other = position.pieces[6 + piece];
    slot[piece] = later % 2 ? flip_ranks(other) : own;
    slot[6 + piece] = later % 2 ? flip_ranks(own) : other;
  }
  slot[12] = repeated ? full_board : 0;
  return slot;
}

inline bool same_rights(const Position& now, const Position& then, std::size_t later) {
  const auto turn = later % 2 * 2;
  for (std::size_t right = 0; right < 4; ++right)
    if (now.castling[right] != then.castling[right ^ turn]) return false;
  return true;
}

// The positions of the past that a frame shows, newest first; gives how many.
inline std::size_t history(std::span<const Position> game, std::span<const std::uint32_t> repeats, std::size_t ply, std::uint32_t format,
                           std::array<std::size_t, slots>& chosen) {
  const bool canonical = input_format::is_canonical(format), repeats_only = input_format::shows_repeats_only(format);
  std::size_t count = 0;
  for (auto then = ply;; --then) {
    const bool ends = canonical && (!same_rights(game[ply], game[then], ply - then) || (then < ply && game[then].en_passant >= 0));
    if (ends) break;
    if (!repeats_only || count == 0 || repeats[then]) chosen[count++] = then;
    if (then == 0 || count == slots || (canonical && game[then].rule50 == 0)) break;
  }
  return count;
}

// The first position before its last push: a pawn that can be taken en passant is shown so, since nothing else tells it.
inline Position before_push(Position first) {
  first.pieces[6 + pawn] ^= (Board{1} << 32 | Board{1} << 48) << first.en_passant;
  return first;
}

inline void write_planes(GameFrame& frame, std::span<const Position> game, std::span<const std::uint32_t> repeats, std::size_t ply,
                         std::uint32_t format, unsigned how) {
  std::array<std::size_t, slots> chosen{};
  const auto count = history(game, repeats, ply, format, chosen);
  std::memset(frame.planes, 0, sizeof frame.planes);
  const auto write = [&](std::size_t slot, const Slot& boards) {
    for (std::size_t plane = 0; plane < boards.size(); ++plane)
      frame.planes[slot * boards.size() + plane] = reverse_files(transform(boards[plane], how));
  };
  for (std::size_t slot = 0; slot < count; ++slot) write(slot, shown(game[chosen[slot]], ply - chosen[slot], repeats[chosen[slot]] > 0));
  if (!input_format::is_canonical(format) && ply + 1 < slots && game[0].en_passant >= 0) write(ply + 1, shown(before_push(game[0]), ply, false));
}

inline void write_bytes(GameFrame& frame, const Position& position, std::uint32_t format, unsigned how) {
  const auto right = [&](std::size_t which) {
    const int file = position.castling[which];
    return static_cast<std::uint8_t>(file < 0 ? 0 : input_format::has_rook_files(format) ? 1U << file : 1U);
  };
  frame.castling_us_ooo = right(0), frame.castling_us_oo = right(1), frame.castling_them_ooo = right(2), frame.castling_them_oo = right(3);
  unsigned info = frame.invariance_info & ~(positions::black_moves | positions::transform_bits), side = position.black;
  if (input_format::is_canonical(format)) {
    const auto passed = board_of(position.en_passant);
    side = static_cast<unsigned>((how & flip_bit ? reverse_files(passed) : passed) & 0xFF);
    info |= how | (position.black ? positions::black_moves : 0);
  }
  frame.side_to_move_or_enpassant = static_cast<std::uint8_t>(side);
  frame.invariance_info = static_cast<std::uint8_t>(info);
}

}  // namespace encode

// Writes the positions of a game into its frames, in an input format; everything else of them stays. The history begins with
// the first position, since a frame does not tell what led there.
inline void encode_positions(std::span<GameFrame> frames, std::span<const Position> game, std::uint32_t format) {
  if (frames.size() != game.size()) throw std::invalid_argument("encode: one position for each frame");
  const auto repeats = count_repeats(game);
  for (std::size_t ply = 0; ply < frames.size(); ++ply) {
    const auto how = input_format::is_canonical(format) ? choose_transform(game[ply]) : 0;
    frames[ply].input_format = format;
    encode::write_planes(frames[ply], game, repeats, ply, format, how);
    encode::write_bytes(frames[ply], game[ply], format, how);
  }
}

// A game in another input format: fields, and the policies as they are seen from there, whose sizes stay.
struct Converted {
  std::vector<GameFrame> fields;
  std::vector<std::uint16_t> moves;
  std::vector<float> probabilities;
};

// `half_turn`: by which rule the policies of transposed frames are written; the new ones are by the one that fits the planes.
inline Converted convert(const FrameColumns& game, std::span<const Position> positions, std::uint32_t format, bool half_turn) {
  Converted made{{game.fields.begin(), game.fields.end()}, {}, {}};
  encode_positions(made.fields, positions, format);
  made.moves.reserve(game.moves.size()), made.probabilities.reserve(game.moves.size());
  std::vector<std::pair<std::uint16_t, float>> row;
  for (std::size_t ply = 0; ply < game.size(); ++ply) {
    auto& frame = made.fields[ply];
    const auto turn = [&, from = transform_of(game.fields[ply]), to = transform_of(frame)](std::uint16_t entry) {
      const auto turned = turn_entry(entry, from, to, half_turn);
      if (turned == no_entry) throw FrameError("move without an entry", "the policy has a move that has no name in the new input format");
      return static_cast<std::uint16_t>(turned);
    };
    row.clear();
    for (auto at = game.begin_of(ply); at < game.ends[ply]; ++at) row.emplace_back(turn(game.moves[at]), game.probabilities[at]);
    std::ranges::stable_sort(row, {}, &std::pair<std::uint16_t, float>::first);
    for (const auto& [move, chance] : row) made.moves.push_back(move), made.probabilities.push_back(chance);
    if (frame.visits > 0) frame.played_idx = turn(frame.played_idx), frame.best_idx = turn(frame.best_idx);
  }
  return made;
}

}  // namespace millstream
