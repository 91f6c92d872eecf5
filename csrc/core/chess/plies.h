// core/chess/plies.h: which positions of a game a use gives, at a rate; see plies_at_rate of millstream.selfplay.sampling.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/order/permute.h"

namespace millstream {

// The numbers of order/shuffle.py: a word for each place of a key, a key for each part of one, a number in [0, 1) of a word.
constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t draw_word(std::uint64_t key, std::uint64_t place) { return mix64(key + (place + 1) * golden); }
constexpr std::uint64_t derive_key(std::uint64_t key, std::uint64_t part) { return draw_word(key, part) ^ golden; }
constexpr double uniform(std::uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

// A number from 0 on without its fraction; one that has no room is the largest: rates may be as small as they like.
constexpr std::uint64_t whole_part(double number) {
  return number < 0x1p64 ? static_cast<std::uint64_t>(number) : std::numeric_limits<std::uint64_t>::max();
}

// `rounds` is the key of the rounds of a game.
inline std::vector<std::uint32_t> plies_at_rate(std::uint64_t rounds, std::uint64_t use, std::size_t length, double rate) {
  if (!(rate > 0 && rate <= 1)) throw std::invalid_argument("plies: a rate lies above 0 and up to 1");
  std::vector<std::uint32_t> taken;
  std::vector<char> absent(length, 0);
  double carry = rate;
  for (std::uint64_t number = 0;; ++number) {
    const auto whole = whole_part((1 - carry) / rate + 1);  // uses that end in this round
    const auto key = derive_key(rounds, number);
    for (std::size_t ply = 0; ply < length; ++ply) {
      const double thrown = uniform(draw_word(key, ply));
      const auto interval = thrown < carry ? 0 : whole_part((thrown - carry) / rate + 1);
      if (!absent[ply] && interval == use) taken.push_back(static_cast<std::uint32_t>(ply));
      absent[ply] = !absent[ply] && interval >= whole;
    }
    if (use < whole) break;
    use -= whole;
    carry = rate - (1 - (carry + static_cast<double>(whole - 1) * rate));
  }
  std::sort(taken.begin(), taken.end());  // a use may lie in two rounds
  return taken;
}

}  // namespace millstream
