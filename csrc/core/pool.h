// core/pool.h: buffers of one size, 64-byte aligned, used again and again. The last one given back is the next one handed
// out, because it is still warm in the cache.
#pragma once

#include <sys/mman.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "core/fork.h"

namespace millstream {

inline std::byte* aligned_bytes(std::size_t bytes) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  if (bytes > PTRDIFF_MAX - huge_page) throw std::bad_alloc();  // rounding up would wrap around
  const auto alignment = bytes >= huge_page ? huge_page : std::size_t{64};
  void* data = nullptr;
  if (::posix_memalign(&data, alignment, bytes) != 0) throw std::bad_alloc();
  if (bytes >= huge_page) ::madvise(data, bytes / huge_page * huge_page, MADV_HUGEPAGE);  // one page fault instead of 512
  return static_cast<std::byte*>(data);
}

class Pool {
 public:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  using Owned = std::unique_ptr<std::byte, Free>;

  // At most `most` buffers of `bytes` each; `keep` of them stay for reuse when nobody needs them.
  Pool(std::size_t bytes, std::size_t most, std::size_t keep) : bytes_(bytes), most_(most), keep_(keep) {}

  std::size_t buffer_bytes() const { return bytes_; }

  // Null when all buffers are out.
  std::byte* try_take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto* const data = free_.back().release();
        free_.pop_back();
        ++out_;
        return data;
      }
      if (out_ >= most_) return nullptr;
      ++out_;
    }
    try {
      return aligned_bytes(bytes_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      --out_;
      throw;
    }
  }

  // Waits for a buffer as long as `go_on` holds; it is asked again after every `wake`.
  template <typename GoOn>
  std::byte* take(const GoOn& go_on) {
    while (true) {
      if (auto* const data = try_take()) return data;
      std::unique_lock lock(mutex_);
      if (!go_on()) return nullptr;
      if (!free_.empty() || out_ < most_) continue;
      ++waiting_;
      returned_.wait(lock);
      --waiting_;
    }
  }

  void give_back(std::byte* data) noexcept {
    if (generation_ != fork_generation()) return;  // the lock may be held by a thread that is not here
    Owned surplus(data);
    {
      const std::lock_guard lock(mutex_);
      --out_;
      if (free_.size() < keep_) free_.push_back(std::move(surplus));
    }
    returned_.notify_one();
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    returned_.notify_all();
  }

  // So many wait for a buffer, and all of them are out.
  bool starving(std::size_t waiters) const {
    const std::lock_guard lock(mutex_);
    return waiting_ >= waiters && free_.empty() && out_ >= most_;
  }

  std::size_t out() const {
    const std::lock_guard lock(mutex_);
    return out_;
  }

  std::size_t bytes_held() const {
    const std::lock_guard lock(mutex_);
    return (out_ + free_.size()) * bytes_;
  }

 private:
  const std::size_t bytes_, most_, keep_;
  const unsigned generation_ = fork_generation();
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Owned> free_;
  std::size_t out_ = 0, waiting_ = 0;
};

}  // namespace millstream
