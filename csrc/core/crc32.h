// core/crc32.h: the checksum of gzip files, at many bytes a cycle where the processor multiplies polynomials.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
// x * (the polynomials that move both halves of x over the next bytes) + next
__attribute__((target("pclmul"))) inline __m128i fold(__m128i x, __m128i over, __m128i next) {
  const auto low = _mm_clmulepi64_si128(x, over, 0x00), high = _mm_clmulepi64_si128(x, over, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Four lanes of 16 bytes are folded over the next 64 bytes, then into each other: what is left has the same checksum. After
// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction".
__attribute__((target("pclmul"))) inline std::uint32_t update_folding(std::uint32_t state, Bytes bytes) {
  const auto load = [](const std::uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  const auto over_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), over_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const auto* at = bytes.data();
  __m128i lanes[4];
  for (int lane = 0; lane < 4; ++lane) lanes[lane] = load(at + 16 * lane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  const auto* end = at + bytes.size();
  for (at += 64; end - at >= 64; at += 64)
    for (int lane = 0; lane < 4; ++lane) lanes[lane] = fold(lanes[lane], over_64, load(at + 16 * lane));
  for (int lane = 1; lane < 4; ++lane) lanes[lane] = fold(lanes[lane - 1], over_16, lanes[lane]);
  std::uint8_t left[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(left), lanes[3]);
  return update(update(0, left), {at, end});
}
#endif

}  // namespace crc32s

inline std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
#if defined(__x86_64__)
  static const bool folds = __builtin_cpu_supports("pclmul");
  if (folds && bytes.size() >= 64) return ~crc32s::update_folding(~0U, bytes);
#endif
  return ~crc32s::update(~0U, bytes);
}

}  // namespace millstream
