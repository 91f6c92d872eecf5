// core/text/scan.h: find the next of a few bytes, 16 at a time where the processor can.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace millstream {

// A set of up to four bytes; with `controls` also every byte below 0x20.
struct ByteSet {
  std::uint8_t bytes[4];
  bool controls;

  bool has(std::uint8_t byte) const {
    return (controls && byte < 0x20) || byte == bytes[0] || byte == bytes[1] || byte == bytes[2] || byte == bytes[3];
  }
};

#if defined(__SSE2__)
namespace scan {

template <ByteSet set>
unsigned hits(__m128i block) {
  const auto equal = [block](std::uint8_t byte) { return _mm_cmpeq_epi8(block, _mm_set1_epi8(static_cast<char>(byte))); };
  __m128i found = _mm_or_si128(equal(set.bytes[0]), equal(set.bytes[1]));
  if constexpr (set.bytes[2] != set.bytes[1]) found = _mm_or_si128(found, equal(set.bytes[2]));
  if constexpr (set.bytes[3] != set.bytes[2]) found = _mm_or_si128(found, equal(set.bytes[3]));
  if constexpr (set.controls) {
    const __m128i top = _mm_set1_epi8(0x1F);
    found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(block, top), block));
  }
  return static_cast<unsigned>(_mm_movemask_epi8(found));
}

}  // namespace scan
#endif

// The first byte of [at, end) that is in the set, or `end`.
template <ByteSet set>
const std::uint8_t* find_any(const std::uint8_t* at, const std::uint8_t* end) {
#if defined(__SSE2__)
  for (; end - at >= 16; at += 16) {
    const unsigned hits = scan::hits<set>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    if (hits) return at + std::countr_zero(hits);
  }
#endif
  while (at < end && !set.has(*at)) ++at;
  return at;
}

// The same, and copy what lies before it to `to`, which moves on. Up to 15 bytes behind it are overwritten.
template <ByteSet set>
inline const std::uint8_t* copy_until(const std::uint8_t* at, const std::uint8_t* end, std::uint8_t*& to) {
  std::uint8_t* out = to;
#if defined(__SSE2__)
  for (; end - at >= 16; at += 16, out += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), block);
    const unsigned hits = scan::hits<set>(block);
    if (hits) {
      to = out + std::countr_zero(hits);
      return at + std::countr_zero(hits);
    }
  }
#endif
  while (at < end && !set.has(*at)) *out++ = *at++;
  to = out;
  return at;
}

inline const std::uint8_t* find_byte(const std::uint8_t* at, const std::uint8_t* end, std::uint8_t byte) {
  if (at == end) return end;
  const void* found = std::memchr(at, byte, static_cast<std::size_t>(end - at));
  return found ? static_cast<const std::uint8_t*>(found) : end;
}

}  // namespace millstream
