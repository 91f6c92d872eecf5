// core/chess/planes.h: frames -> what a network sees and learns: planes, policy and values.
//
// A plane is 8 ranks of 8 files. Planes 0 to 103 are those of the frame, 104 to 111 are made of its bytes, as its input
// format says. All but one hold ones and zeros: as boards they are 64 bits each, in the order of a file (a byte for each rank,
// whose highest bit is file a). Plane 109 is full and stands for the count of moves without progress, a number of its own.
// Transforms of canonical formats are part of what the network sees, and are left alone.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "core/chess/frames.h"
#include "core/kernels/kernels.h"

namespace millstream {

inline constexpr std::size_t input_planes = 112, rule50_plane = 109;
inline constexpr std::size_t plane_values = 64;
inline constexpr std::size_t value_rows = 6, value_columns = 3;

// An IEEE float of 16 bits; the nearest to the number given, of two the even one.
struct Half {
  std::uint16_t bits = 0;

  constexpr Half() = default;
  constexpr explicit Half(float number) {
    const auto word = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t sign = word >> 16 & 0x8000U, size = word & 0x7FFFFFFFU;
    std::uint32_t rounded = 0;
    if (size > 0x7F800000U) {
      rounded = 0x7E00U;  // NaN
    } else if (size >= 0x47800000U) {
      rounded = 0x7C00U;  // beyond 65504 and what rounds to it
    } else if (size >= 0x38800000U) {
      const auto rest = size - 0x38000000U;
      rounded = (rest + 0xFFFU + (rest >> 13 & 1U)) >> 13;
    } else if (size >= 0x33000000U) {  // below 2^-14 the exponent stays and the fraction shrinks
      const auto shift = 126U - (size >> 23);
      const auto fraction = (size & 0x7FFFFFU) | 0x800000U;
      const auto half = (1U << (shift - 1)) - 1;
      rounded = (fraction + half + (fraction >> shift & 1U)) >> shift;
    }
    bits = static_cast<std::uint16_t>(sign | rounded);
  }
};

namespace tensors {

constexpr std::uint64_t full = ~std::uint64_t{0};

constexpr std::uint64_t reversed(std::uint8_t byte) {
  std::uint64_t out = 0;
  for (int bit = 0; bit < 8; ++bit) out |= static_cast<std::uint64_t>(byte >> bit & 1) << (7 - bit);
  return out;
}

constexpr std::uint64_t ones_if(bool condition) { return condition ? full : 0; }

// The files that two bytes name, on our first rank and on theirs.
constexpr std::uint64_t on_first_ranks(std::uint8_t ours, std::uint8_t theirs) { return reversed(ours) | reversed(theirs) << 56; }

inline void check_format(const GameFrame& frame) {
  if (!input_format::is_known(frame.input_format))
    throw std::invalid_argument("tensors: there is no input format " + std::to_string(frame.input_format));
}

inline float rule50(const GameFrame& frame) {
  return static_cast<float>(frame.rule50_count) / (input_format::has_hectoplies(frame.input_format) ? 100.0F : 99.0F);
}

// out[0..112) = the planes of a frame as boards.
inline void put_boards(const GameFrame& frame, std::uint64_t* out) {
  const auto format = frame.input_format;
  std::memcpy(out, frame.planes, sizeof frame.planes);
  if (!input_format::has_rook_files(format)) {
    out[104] = ones_if(frame.castling_us_ooo);
    out[105] = ones_if(frame.castling_us_oo);
    out[106] = ones_if(frame.castling_them_ooo);
    out[107] = ones_if(frame.castling_them_oo);
  } else {
    out[104] = on_first_ranks(frame.castling_us_ooo, frame.castling_them_ooo);
    out[105] = on_first_ranks(frame.castling_us_oo, frame.castling_them_oo);
    out[106] = out[107] = 0;
  }
  const auto side = frame.side_to_move_or_enpassant;
  out[108] = input_format::is_canonical(format) ? on_first_ranks(0, side) : ones_if(side);
  out[rule50_plane] = full;
  out[110] = ones_if(input_format::is_armageddon(format) && frame.invariance_info >= 128);
  out[111] = full;
}

inline void unpack(std::span<const std::uint64_t> boards, float* out) { unpack_boards(boards.data(), boards.size(), out); }
inline void unpack(std::span<const std::uint64_t> boards, Half* out) { unpack_boards(boards.data(), boards.size(), &out->bits); }

template <typename Real>
void put_planes(const GameFrame& frame, Real* out) {
  std::array<std::uint64_t, input_planes> boards;
  put_boards(frame, boards.data());
  const auto all = std::span<const std::uint64_t>(boards);
  unpack(all.first(rule50_plane), out);
  std::fill_n(out + rule50_plane * plane_values, plane_values, Real(rule50(frame)));
  unpack(all.subspan(rule50_plane + 1), out + (rule50_plane + 1) * plane_values);
}

// A policy of illegal moves, into which one after the other is laid and taken out again. Old files say NaN for illegal.
template <typename Real>
class PolicyRow {
 public:
  PolicyRow() { row_.fill(Real(-1.0F)); }

  void put(std::span<const std::uint16_t> moves, std::span<const float> probabilities, Real* out) {
    for (std::size_t i = 0; i < moves.size(); ++i) row_[moves[i]] = Real(std::isnan(probabilities[i]) ? -1.0F : probabilities[i]);
    copy_past_caches(row_.data(), sizeof row_, out);
    for (const auto move : moves) row_[move] = Real(-1.0F);
  }

 private:
  std::array<Real, policy_size> row_;
};

template <typename Real>
void put_values(const GameFrame& frame, Real* out) {
  const float values[value_rows * value_columns] = {
      frame.result_q, frame.result_d, frame.plies_left, frame.best_q, frame.best_d, frame.best_m,
      frame.played_q, frame.played_d, frame.played_m,   frame.orig_q, frame.orig_d, frame.orig_m,
      frame.root_q,   frame.root_d,   frame.root_m,     frame.q_st,   frame.d_st,   std::numeric_limits<float>::quiet_NaN()};
  for (const float value : values) *out++ = Real(value);
}

}  // namespace tensors

// planes (n, 112, 8, 8), policy (n, 1858) with -1 for illegal moves, values (n, 6, 3). Columns must have been checked.
template <typename Real>
void fill_tensors(const FrameColumns& columns, std::span<Real> planes, std::span<Real> policy, std::span<Real> values) {
  constexpr auto plane_row = input_planes * plane_values, value_row = value_rows * value_columns;
  const auto rows = columns.size();
  if (planes.size() != rows * plane_row || policy.size() != rows * policy_size || values.size() != rows * value_row)
    throw std::invalid_argument("tensors: an output has another number of rows than there are frames");
  tensors::PolicyRow<Real> policy_row;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto& frame = columns.fields[row];
    tensors::check_format(frame);
    tensors::put_planes(frame, planes.data() + row * plane_row);
    tensors::put_values(frame, values.data() + row * value_row);
    const auto begin = columns.begin_of(row), size = columns.ends[row] - begin;
    policy_row.put(columns.moves.subspan(begin, size), columns.probabilities.subspan(begin, size),
                   policy.data() + row * policy_size);
  }
  finish_past_caches();
}

// The planes as boards (n, 112), and what plane 109 is to be multiplied by (n).
inline void fill_boards(std::span<const GameFrame> fields, std::span<std::uint64_t> boards, std::span<float> rule50) {
  if (boards.size() != fields.size() * input_planes || rule50.size() != fields.size())
    throw std::invalid_argument("tensors: an output has another number of rows than there are frames");
  for (std::size_t row = 0; row < fields.size(); ++row) {
    tensors::check_format(fields[row]);
    tensors::put_boards(fields[row], boards.data() + row * input_planes);
    rule50[row] = tensors::rule50(fields[row]);
  }
}

}  // namespace millstream
