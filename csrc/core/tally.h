// core/tally.h: how often each 64-bit hash was seen, and where first. Made for many small documents: kept and reused.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/hash.h"

namespace millstream {

class Tally {
 public:
  struct Slot {
    std::uint64_t hash;
    std::uint32_t count;  // 0: free
    std::uint32_t first;
  };

  // Forgets everything, and makes room for `most` different hashes.
  void reset(std::size_t most) {
    const std::size_t wanted = std::bit_ceil(std::max<std::size_t>(16, most + most / 2));
    if (slots_.size() < wanted) slots_.resize(wanted);
    mask_ = wanted - 1;
    std::fill_n(slots_.begin(), wanted, Slot{});
  }

  // Counts `hash` once more; `place` is kept when it is new.
  Slot& add(std::uint64_t hash, std::size_t place) {
    std::size_t at = xxh::avalanche(hash) & mask_;
    while (slots_[at].count != 0 && slots_[at].hash != hash) at = (at + 1) & mask_;
    Slot& slot = slots_[at];
    if (slot.count++ == 0) slot = {hash, 1, static_cast<std::uint32_t>(place)};
    return slot;
  }

 private:
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

}  // namespace millstream
