// core/text/utf8.h: how much of some bytes is valid UTF-8. ASCII is passed over 32 bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millstream {

namespace utf8 {

inline bool continues(std::uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the valid character that starts at `at`, or 0. No overlong forms, no surrogates, nothing above U+10FFFF.
inline std::size_t character(const std::uint8_t* at, std::size_t left) {
  const std::uint8_t lead = at[0];
  if (lead < 0x80) return 1;
  if (lead < 0xE0) return lead >= 0xC2 && left >= 2 && continues(at[1]) ? 2 : 0;
  if (lead < 0xF0) {
    if (left < 3 || !continues(at[1]) || !continues(at[2])) return 0;
    if (lead == 0xE0 && at[1] < 0xA0) return 0;
    return lead == 0xED && at[1] >= 0xA0 ? 0 : 3;
  }
  if (lead > 0xF4 || left < 4 || !continues(at[1]) || !continues(at[2]) || !continues(at[3])) return 0;
  if (lead == 0xF0 && at[1] < 0x90) return 0;
  return lead == 0xF4 && at[1] >= 0x90 ? 0 : 4;
}

inline std::size_t ascii_prefix(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t high = 0x8080808080808080;
  std::size_t at = 0;
  std::uint64_t words[4];
  for (; at + sizeof words <= size; at += sizeof words) {
    std::memcpy(words, data + at, sizeof words);
    if ((words[0] | words[1] | words[2] | words[3]) & high) break;
  }
  while (at < size && data[at] < 0x80) ++at;
  return at;
}

}  // namespace utf8

// The first byte that no valid UTF-8 character covers, or `size`.
inline std::size_t valid_utf8_prefix(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 0;
  while ((at += utf8::ascii_prefix(data + at, size - at)) < size) {
    do {
      const std::size_t step = utf8::character(data + at, size - at);
      if (step == 0) return at;
      at += step;
    } while (at < size && data[at] >= 0x80);
  }
  return size;
}

inline bool is_utf8(const std::uint8_t* data, std::size_t size) { return valid_utf8_prefix(data, size) == size; }

// Write a character as UTF-8 (`code` is a valid scalar value); gives the bytes written.
inline std::size_t encode_utf8(std::uint32_t code, std::uint8_t* out) {
  const auto tail = [code](int shift) { return static_cast<std::uint8_t>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out[0] = static_cast<std::uint8_t>(code);
    return 1;
  }
  if (code < 0x800) {
    out[0] = static_cast<std::uint8_t>(0xC0 | (code >> 6));
    out[1] = tail(0);
    return 2;
  }
  if (code < 0x10000) {
    out[0] = static_cast<std::uint8_t>(0xE0 | (code >> 12));
    out[1] = tail(6), out[2] = tail(0);
    return 3;
  }
  out[0] = static_cast<std::uint8_t>(0xF0 | (code >> 18));
  out[1] = tail(12), out[2] = tail(6), out[3] = tail(0);
  return 4;
}

}  // namespace millstream
