// core/kernels/kernels.h: the few inner loops that decide the speed, compiled for several instruction sets (see kernels.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/kernels/weights.h"

namespace millstream {

// An alternating Feistel network on low_bits + high_bits bits (at most 32 each).
struct Feistel {
  static constexpr int wide_rounds = 8;
  // Few bits per half mix slowly, so small domains get more rounds.
  static constexpr int narrow_rounds = 40;

  int low_bits = 0;
  int high_bits = 0;
  std::array<std::uint64_t, narrow_rounds> keys{};

  // `bits` well-mixed bits of (half, key). Products of 32-bit words: every vector unit has those.
  static constexpr std::uint64_t scramble(std::uint64_t half, std::uint64_t key, int bits) {
    constexpr std::uint64_t word = 0xFFFFFFFFULL;
    auto x = ((half ^ key) & word) * 0x9E3779B1ULL;
    x = ((x ^ (x >> 32) ^ (key >> 32)) & word) * 0x85EBCA77ULL;
    return ((x ^ (x >> 32)) & word) >> (32 - bits);
  }

  // Encrypts by the rounds [first, stop), two at a time.
  constexpr std::uint64_t encrypt(std::uint64_t x, std::size_t first, std::size_t stop) const {
    auto low = x & ((1ULL << low_bits) - 1);
    auto high = x >> low_bits;
    for (std::size_t round = first; round < stop; round += 2) {
      high ^= scramble(low, keys[round], high_bits);
      low ^= scramble(high, keys[round + 1], low_bits);
    }
    return (high << low_bits) | low;
  }

  template <int rounds>
  constexpr std::uint64_t encrypt(std::uint64_t x) const {
    return encrypt(x, 0, rounds);
  }

  template <int rounds>
  constexpr std::uint64_t decrypt(std::uint64_t x) const {
    auto low = x & ((1ULL << low_bits) - 1);
    auto high = x >> low_bits;
    for (std::size_t round = rounds; round > 0; round -= 2) {
      low ^= scramble(high, keys[round - 1], low_bits);
      high ^= scramble(low, keys[round - 2], high_bits);
    }
    return (high << low_bits) | low;
  }
};

void encrypt_all(const Feistel& feistel, std::uint64_t* values, std::size_t count);
void decrypt_all(const Feistel& feistel, std::uint64_t* values, std::size_t count);
void encrypt_narrow(const Feistel& feistel, std::uint64_t* values, std::size_t count);  // with the rounds of small domains

// out[i] = in[i], widened. Overloads rather than a template: each is compiled once per instruction set.
void widen(const std::uint16_t* in, std::int64_t* out, std::size_t count);
void widen(const std::uint16_t* in, std::int32_t* out, std::size_t count);
void widen(const std::uint32_t* in, std::int64_t* out, std::size_t count);
void widen(const std::uint32_t* in, std::int32_t* out, std::size_t count);
void widen(const std::int32_t* in, std::int64_t* out, std::size_t count);
void widen(const std::int32_t* in, std::int32_t* out, std::size_t count);
void widen(const Weighted* in, std::int64_t* out, std::size_t count);  // the ids
void widen(const Weighted* in, std::int32_t* out, std::size_t count);

// out[i] = i.
void count_up(std::int64_t* out, std::size_t count);
void count_up(std::int32_t* out, std::size_t count);

// What targets weigh: how many weigh anything at all, and whether any weighs neither 0 nor 1.
struct TargetFacts {
  std::size_t count = 0;
  bool fractional = false;
};

inline constexpr int no_loss = -100;

// out[i] = the id of in[i], or `no_loss` where it weighs nothing.
TargetFacts write_targets(const Weighted* in, std::int64_t* out, std::size_t count);
TargetFacts write_targets(const Weighted* in, std::int32_t* out, std::size_t count);

// out[i] = in[i], or `no_loss` where the mask is 0.
TargetFacts write_targets(const std::uint32_t* in, const std::uint8_t* mask, std::int64_t* out, std::size_t count);
TargetFacts write_targets(const std::uint32_t* in, const std::uint8_t* mask, std::int32_t* out, std::size_t count);

// out[i] = in[i], or `value`, where the mask is not 0; else 0.
void keep_where(const std::uint8_t* mask, const float* in, float* out, std::size_t count);
void put_where(const std::uint8_t* mask, float value, float* out, std::size_t count);
// Whether anything but 0 stands where the mask does not hold.
bool said_outside(const std::uint8_t* mask, const float* in, std::size_t count);

// The largest id, read as unsigned, so that a negative id is larger than any vocabulary.
std::uint32_t largest(const std::uint16_t* in, std::size_t count);
std::uint32_t largest(const std::uint32_t* in, std::size_t count);
std::uint32_t largest(const std::int32_t* in, std::size_t count);
std::uint32_t largest(const Weighted* in, std::size_t count);

// minima[j] = the least of minima[j] and factors[j] * x + offsets[j] (mod 2^32) over all x of `values`.
void least_hashes(const std::uint32_t* values, std::size_t count, const std::uint32_t* factors,
                  const std::uint32_t* offsets, std::uint32_t* minima, std::size_t functions);

// out[i] = 1 or 0 for every bit of the boards, each byte from its highest bit on: 64 for each board; as floats of 32 bits, or
// of 16. What begins at a multiple of 64 bytes is written past the caches, since a batch does not fit into them.
void unpack_boards(const std::uint64_t* boards, std::size_t count, float* out);
void unpack_boards(const std::uint64_t* boards, std::size_t count, std::uint16_t* out);
// The same for bytes as they are.
void copy_past_caches(const void* in, std::size_t bytes, void* out);
// A thread that wrote past the caches calls this before another thread may read.
void finish_past_caches();

}  // namespace millstream
