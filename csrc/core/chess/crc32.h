// core/chess/crc32.h: the checksum of gzip files, at many bytes a cycle where the processor multiplies polynomials.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millstream {

namespace crc32s {

using Bytes = std::span<const std::uint8_t>;

// tables[k][byte] = what a byte does to the checksum, with k zeros behind it.
inline constexpr auto tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> made{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto word = byte;
    for (int bit = 0; bit < 8; ++bit) word = word >> 1 ^ (word & 1 ? 0xEDB88320U : 0U);
    made[0][byte] = word;
  }
  for (std::size_t zeros = 1; zeros < 8; ++zeros)
    for (std::size_t byte = 0; byte < 256; ++byte)
      made[zeros][byte] = made[zeros - 1][byte] >> 8 ^ made[0][made[zeros - 1][byte] & 0xFF];
  return made;
}();

// The state behind some bytes; it is inverted before the first and behind the last.
inline std::uint32_t update(std::uint32_t state, Bytes bytes) {
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      next ^= tables[7 - i][(i < 4 ? bytes[i] ^ state >> 8 * i : bytes[i]) & 0xFF];
    }
    state = next;
  }
  for (const auto byte : bytes) state = state >> 8 ^ tables[0][(state ^ byte) & 0xFF];
  return state;
}

#if defined(__x86_64__)
// x^n modulo the polynomial, which moves a half of a lane over n bits; the lowest bit is that of the highest power.
constexpr long long over(unsigned n) {
  std::uint32_t power = 1U << 31;
  for (; n > 0; --n) power = power >> 1 ^ (power & 1 ? 0xEDB88320U : 0U);
  return static_cast<long long>(power) << 1;
}

// x * (the polynomials that move both halves of x over the next bytes) + next
[[gnu::target("pclmul")]] inline void fold(__m128i& x, __m128i by, const __m128i& next) {
  x = _mm_clmulepi64_si128(x, by, 0x00) ^ _mm_clmulepi64_si128(x, by, 0x11) ^ next;
}
[[gnu::target("vpclmulqdq,avx2")]] inline void fold(__m256i& x, __m128i by, const __m256i& next) {
  const auto both = _mm256_broadcastsi128_si256(by);
  x = _mm256_clmulepi64_epi128(x, both, 0x00) ^ _mm256_clmulepi64_epi128(x, both, 0x11) ^ next;
}

// Four lanes are folded over the next four, then into each other: what is left has the same checksum. After Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction".
template <typename Lane>
[[gnu::always_inline]] inline std::uint32_t update_in_lanes(std::uint32_t state, Bytes bytes) {
  using AnywhereLane [[gnu::aligned(1), gnu::may_alias]] = Lane;
  constexpr unsigned bits = 8 * sizeof(Lane);
  const auto over_four = _mm_set_epi64x(over(4 * bits - 32), over(4 * bits + 32));
  const auto over_one = _mm_set_epi64x(over(bits - 32), over(bits + 32));
  const auto* next = reinterpret_cast<const AnywhereLane*>(bytes.data());
  const auto* end = next + bytes.size() / (4 * sizeof(Lane)) * 4;
  Lane lanes[4] = {next[0], next[1], next[2], next[3]};
  lanes[0][0] ^= state;
  for (next += 4; next < end; next += 4)
    for (int lane = 0; lane < 4; ++lane) {
      const Lane coming = next[lane];
      fold(lanes[lane], over_four, coming);
    }
  for (int lane = 0; lane < 3; ++lane) {
    fold(lanes[lane], over_one, lanes[lane + 1]);
    lanes[lane + 1] = lanes[lane];
  }
  std::uint8_t left[sizeof(Lane)];
  std::memcpy(left, &lanes[3], sizeof left);
  return update(update(0, left), bytes.last(bytes.size() % (4 * sizeof(Lane))));
}

[[gnu::target("pclmul")]] inline std::uint32_t update_in_16s(std::uint32_t state, Bytes bytes) {
  return update_in_lanes<__m128i>(state, bytes);
}
[[gnu::target("vpclmulqdq,avx2,pclmul")]] inline std::uint32_t update_in_32s(std::uint32_t state, Bytes bytes) {
  return update_in_lanes<__m256i>(state, bytes);
}
#endif

}  // namespace crc32s

inline std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
#if defined(__x86_64__)
  static const bool in_32s = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2");
  static const bool in_16s = __builtin_cpu_supports("pclmul");
  if (in_32s && bytes.size() >= 4 * 32) return ~crc32s::update_in_32s(~0U, bytes);
  if (in_16s && bytes.size() >= 4 * 16) return ~crc32s::update_in_16s(~0U, bytes);
#endif
  return ~crc32s::update(~0U, bytes);
}

}  // namespace millstream
