// core/filter/counts.h: how often each 64-bit hash was seen, and where first. Made for many small documents: kept and reused.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/kernels/hash.h"

namespace millstream {

class Tally {
 public:
  struct Slot {
    std::uint64_t tag;  // 56 bits of the mixed hash, and the round in which it was written
    std::uint32_t count;
    std::uint32_t first;
  };

  // Forgets everything, and makes room for `most` different hashes. What earlier rounds left behind counts as free.
  void reset(std::size_t most) {
    const std::size_t wanted = std::bit_ceil(std::max<std::size_t>(16, 2 * most));
    if (slots_.size() < wanted || round_ == last_round) {
      slots_.assign(std::max(slots_.size(), wanted), Slot{});
      round_ = 0;
    }
    ++round_;
    shift_ = 64 - std::countr_zero(wanted);
    mask_ = wanted - 1;
  }

  // Counts `hash` once more; `place` is kept when it is new.
  const Slot& add(std::uint64_t hash, std::size_t place) {
    const std::uint64_t mixed = (hash ^ (hash >> 32)) * xxh::prime1;
    const std::uint64_t tag = (mixed & ~last_round) | round_;
    std::size_t at = mixed >> shift_;
    while (slots_[at].tag != tag && (slots_[at].tag & last_round) == round_) at = (at + 1) & mask_;
    Slot& slot = slots_[at];
    if (slot.tag == tag)
      ++slot.count;
    else
      slot = {tag, 1, static_cast<std::uint32_t>(place)};
    return slot;
  }

 private:
  static constexpr std::uint64_t last_round = 255;

  std::vector<Slot> slots_;
  std::uint64_t round_ = 0;  // 0 marks slots that were never written
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace millstream
