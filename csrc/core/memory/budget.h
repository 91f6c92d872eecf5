// core/memory/budget.h: bytes that everything of one loader shares, in whichever of its pools or threads they lie.
//
// It is also the lock of those pools: a buffer that comes back to an old pool is room for a buffer of the present one, and
// a thread that waits for room is woken by either.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace millstream {

// What is needed to begin at all is in the user's hands.
struct BudgetFull : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Budget {
 public:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr auto no_limit = std::numeric_limits<std::size_t>::max();

  explicit Budget(std::size_t most_bytes = no_limit) : most_bytes_(most_bytes) {}

  std::size_t most_bytes() const { return most_bytes_; }
  std::size_t used_bytes() const {
    const auto locked = lock();
    return used_bytes_;
  }

  Lock lock() const { return Lock(mutex_); }

  // These want to see the lock.
  bool fits(const Lock&, std::size_t bytes) const { return bytes <= most_bytes_ - used_bytes_; }
  void reserve(const Lock&, std::size_t bytes) { used_bytes_ += bytes; }
  void release(const Lock&, std::size_t bytes) { used_bytes_ -= bytes; }
  void wait(Lock& locked) { changed_.wait(locked); }

  void wake() { changed_.notify_all(); }

 private:
  const std::size_t most_bytes_;
  std::size_t used_bytes_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

// Bytes that are counted for as long as this lives.
class Reservation {
 public:
  Reservation(std::shared_ptr<Budget> budget, std::size_t bytes) : budget_(std::move(budget)), bytes_(bytes) {
    const auto locked = budget_->lock();
    if (!budget_->fits(locked, bytes)) throw BudgetFull("the budget has no room for the threads' own memory");
    budget_->reserve(locked, bytes);
  }
  ~Reservation() {
    {
      const auto locked = budget_->lock();
      budget_->release(locked, bytes_);
    }
    budget_->wake();
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  std::shared_ptr<Budget> budget_;
  std::size_t bytes_;
};

}  // namespace millstream
