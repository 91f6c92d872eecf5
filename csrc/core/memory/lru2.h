// core/memory/lru2.h: the two things that were used last. Where a batch is weighed, and then filled, it crosses from one window
// to the next twice; who remembered only one of them would make both anew each time.
#pragma once

#include <array>
#include <cstddef>

namespace millstream {

template <typename Thing>
class LastTwo {
 public:
  // The one that is `wanted`; else the one that was used longer ago, for the caller to make anew.
  template <typename Wanted>
  Thing& find(const Wanted& wanted) {
    if (!wanted(things_[latest_])) latest_ = 1 - latest_;
    return things_[latest_];
  }

 private:
  std::array<Thing, 2> things_{};
  std::size_t latest_ = 0;
};

}  // namespace millstream
