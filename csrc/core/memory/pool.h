// core/memory/pool.h: buffers of one size, 64-byte aligned, used again and again. The last one given back is the next one handed
// out, because it is still warm in the cache.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "core/memory/budget.h"
#include "core/memory/fork.h"

namespace millstream {

// Large buffers are mapped, not taken from the heap: what is freed goes back to the system, and the budget means what it says.
inline constexpr std::size_t worth_mapping = std::size_t{128} << 10;

inline std::byte* aligned_bytes(std::size_t bytes) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  if (bytes > PTRDIFF_MAX - huge_page) throw std::bad_alloc();  // rounding up would wrap around
  void* data = nullptr;
  if (bytes < worth_mapping) {
    if (::posix_memalign(&data, 64, bytes) != 0) throw std::bad_alloc();
    return static_cast<std::byte*>(data);
  }
  const std::size_t spare = bytes < huge_page ? 0 : huge_page;
  data = ::mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(data);
  if (!spare) return begin;
  // One page fault instead of 512 needs whole huge pages: begin at one, and give back what lies around.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  const std::size_t kept = (bytes + page - 1) / page * page;
  if (before) ::munmap(begin, before);
  if (before + kept < bytes + spare) ::munmap(begin + before + kept, bytes + spare - before - kept);
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

inline void free_bytes(std::byte* data, std::size_t bytes) {
  if (bytes < worth_mapping) std::free(data);
  else ::munmap(data, bytes);
}

class Pool {
 public:
  struct Free {
    std::size_t bytes;
    void operator()(std::byte* data) const { free_bytes(data, bytes); }
  };
  using Owned = std::unique_ptr<std::byte, Free>;

  // Buffers of `bytes` each, as many as `budget` has room for; `keep` of them stay for reuse when they are not needed.
  Pool(std::size_t bytes, std::shared_ptr<Budget> budget, std::size_t keep)
      : bytes_(bytes), budget_(std::move(budget)), keep_(keep) {}
  ~Pool() { retire(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t buffer_bytes() const { return bytes_; }
  const std::shared_ptr<Budget>& budget() const { return budget_; }

  // Null when there is no room.
  std::byte* try_take() {
    {
      const auto locked = budget_->lock();
      if (!free_.empty()) {
        auto* const data = free_.back().release();
        free_.pop_back();
        ++out_;
        return data;
      }
      if (!budget_->fits(locked, bytes_)) return nullptr;
      budget_->reserve(locked, bytes_);
      ++out_;
    }
    try {
      return aligned_bytes(bytes_);
    } catch (...) {
      const auto locked = budget_->lock();
      budget_->release(locked, bytes_);
      --out_;
      throw;
    }
  }

  // Waits for a buffer as long as `go_on` holds; it is asked again after every `wake`.
  template <typename GoOn>
  std::byte* take(const GoOn& go_on) {
    while (true) {
      if (auto* const data = try_take()) return data;
      auto locked = budget_->lock();
      if (!go_on()) return nullptr;
      if (!free_.empty() || budget_->fits(locked, bytes_)) continue;
      ++waiting_;
      budget_->wait(locked);
      --waiting_;
    }
  }

  void give_back(std::byte* data) noexcept {
    if (generation_ != fork_generation()) return;  // the lock may be held by a thread that is not here
    Owned surplus(data, Free{bytes_});
    {
      const auto locked = budget_->lock();
      --out_;
      if (free_.size() < keep_) free_.push_back(std::move(surplus));
      else budget_->release(locked, bytes_);
    }
    budget_->wake();
  }

  void wake() {
    { const auto locked = budget_->lock(); }  // a thread that was about to wait now does, or has asked `go_on`
    budget_->wake();
  }

  // Keeps nothing from now on: others need the room. What is out may still come back.
  void retire() noexcept {
    if (generation_ != fork_generation()) return;
    std::vector<Owned> unused;
    {
      const auto locked = budget_->lock();
      keep_ = 0;
      unused.swap(free_);
      budget_->release(locked, unused.size() * bytes_);
    }
    budget_->wake();
  }

  // So many wait for a buffer, and there is no room for one.
  bool starving(std::size_t waiters) const {
    const auto locked = budget_->lock();
    return waiting_ >= waiters && free_.empty() && !budget_->fits(locked, bytes_);
  }

  std::size_t out() const {
    const auto locked = budget_->lock();
    return out_;
  }

 private:
  const std::size_t bytes_;
  const std::shared_ptr<Budget> budget_;
  const unsigned generation_ = fork_generation();
  std::size_t keep_;
  std::vector<Owned> free_;
  std::size_t out_ = 0, waiting_ = 0;
};

}  // namespace millstream
