// core/order/permute.h: a keyed bijection of [0, n), evaluated on demand. Nothing is stored, so nothing has to be restored.
//
// An alternating Feistel network on the smallest power of two that holds n (so at most 2n), with cycle walking back
// into [0, n). The two halves need not be equally wide. Changing anything here changes every order: it would be a new
// order version beside this one, never an edit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/kernels/kernels.h"

namespace millstream {

inline constexpr int order_version = 1;

// Positions and samples stay below this, so that two of them can be added without wrapping around.
inline constexpr std::uint64_t most_positions = 1ULL << 63;

// A full-avalanche mix of 64 bits (splitmix64's finaliser).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// The key of something named by `word` under `key`; used for epochs, groups and blocks alike.
constexpr std::uint64_t derive(std::uint64_t key, std::uint64_t word) {
  return mix64(mix64(key + 0x9E3779B97F4A7C15ULL) ^ (word * 0xD1342543DE82EF95ULL + 0x632BE59BD9B4E019ULL));
}

class Permutation {
 public:
  // Small domains are tabulated (at most 4 KB), so that their many rounds are paid once.
  static constexpr std::uint64_t narrow_limit = 1024;

  Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
    if (n == 0 || n > most_positions) throw std::invalid_argument("a permutation needs 1 to 2^63 elements");
    const auto bits = static_cast<int>(std::bit_width(n - 1));
    feistel_.low_bits = (bits + 1) / 2;
    feistel_.high_bits = bits - feistel_.low_bits;
    for (auto& word : feistel_.keys) word = mix64(key += 0x9E3779B97F4A7C15ULL);
    if (n <= narrow_limit) tabulate();
  }

  std::uint64_t size() const { return n_; }

  std::uint64_t at(std::uint64_t position) const {
    if (!forward_.empty()) return forward_[position];
    do position = feistel_.encrypt<Feistel::wide_rounds>(position);
    while (position >= n_);
    return position;
  }

  std::uint64_t inverse(std::uint64_t index) const {
    if (!backward_.empty()) return backward_[index];
    do index = feistel_.decrypt<Feistel::wide_rounds>(index);
    while (index >= n_);
    return index;
  }

  // Bounds are the caller's duty in the batch forms: they are checked once, at the boundary.
  void at(std::span<const std::uint64_t> positions, std::span<std::uint64_t> out) const {
    if (forward_.empty()) return walk(positions, out, encrypt_all);
    for (std::size_t i = 0; i < positions.size(); ++i) out[i] = forward_[positions[i]];
  }

  void inverse(std::span<const std::uint64_t> indices, std::span<std::uint64_t> out) const {
    if (backward_.empty()) return walk(indices, out, decrypt_all);
    for (std::size_t i = 0; i < indices.size(); ++i) out[i] = backward_[indices[i]];
  }

 private:
  using Pass = void (*)(const Feistel&, std::uint64_t* values, std::size_t count);

  // All values make a pass together, then those outside [0, n) make another: no branch depends on a single value. `out` may
  // be `in`.
  void walk(std::span<const std::uint64_t> in, std::span<std::uint64_t> out, Pass pass) const {
    constexpr std::size_t lanes = 512;
    std::array<std::uint64_t, lanes> values;
    std::array<std::uint32_t, lanes> homes;
    for (std::size_t start = 0; start < in.size(); start += lanes) {
      auto pending = std::min(lanes, in.size() - start);
      for (std::size_t i = 0; i < pending; ++i) {
        values[i] = in[start + i];
        homes[i] = static_cast<std::uint32_t>(i);
      }
      while (pending > 0) {
        pass(feistel_, values.data(), pending);
        std::size_t outside = 0;
        for (std::size_t i = 0; i < pending; ++i) {
          const auto value = values[i];
          const auto home = homes[i];
          out[start + home] = value;
          values[outside] = value;
          homes[outside] = home;
          outside += value >= n_;
        }
        pending = outside;
      }
    }
  }

  void tabulate() {
    std::array<std::uint64_t, narrow_limit> places;
    const auto all = std::span(places).first(n_);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    walk(all, all, encrypt_narrow);
    forward_.assign(all.begin(), all.end());
    backward_.resize(n_);
    for (std::size_t position = 0; position < n_; ++position) backward_[all[position]] = static_cast<std::uint16_t>(position);
  }

  std::uint64_t n_;
  Feistel feistel_;
  std::vector<std::uint16_t> forward_, backward_;
};

}  // namespace millstream
