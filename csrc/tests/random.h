// tests/random.h: numbers that look random and are the same in every run (xorshift64).
#pragma once

#include <cstdint>

struct Random {
  std::uint64_t state = 88172645463325252u;

  std::uint64_t word() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  std::uint64_t below(std::uint64_t limit) { return word() % limit; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
};
