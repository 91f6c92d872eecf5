// core/memory/mapped.h: which shards are mapped, of all stores together.
//
// Stores may have more shards than a process may have mappings, so the shard that was mapped first is let go when there are
// too many, whichever store it belongs to. It is unmapped only when no Reader is left that began before: what a Reader
// looks at cannot vanish, and no thread waits for another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/fork.h"

namespace millstream {

// Shard: what is mapped, and unmapped when it is destroyed.
template <typename Shard>
class MappedShards {
 public:
  using Slot = std::atomic<const Shard*>;  // null while its shard is not mapped

  explicit MappedShards(std::size_t most = 8'192) : most_(std::max<std::size_t>(most, 1)) {}

  // The one that all stores of this process share. A forked child begins its own: a thread that is not there may hold the lock.
  static std::shared_ptr<MappedShards> of_this_process() {
    static std::mutex choosing;
    static std::shared_ptr<MappedShards>* chosen = nullptr;
    static unsigned generation = 0;
    static const int registered = ::pthread_atfork([] { choosing.lock(); }, [] { choosing.unlock(); }, [] { choosing.unlock(); });
    (void)registered;
    const std::lock_guard lock(choosing);
    if (chosen == nullptr || generation != fork_generation()) {
      chosen = new std::shared_ptr<MappedShards>(std::make_shared<MappedShards>());  // the parent's is left behind
      generation = fork_generation();
    }
    return *chosen;
  }

  // A reader begins to look at shards; `leave` takes what was returned.
  std::uint64_t enter() {
    const std::lock_guard lock(mutex_);
    readers_.push_back(let_go_count_);
    return let_go_count_;
  }

  void leave(std::uint64_t began) {
    std::vector<std::unique_ptr<const Shard>> unseen;  // unmapped behind the lock's back
    const std::lock_guard lock(mutex_);
    std::swap(*std::ranges::find(readers_, began), readers_.back());
    readers_.pop_back();
    if (let_go_.empty()) return;
    const auto oldest = readers_.empty() ? let_go_count_ : *std::ranges::min_element(readers_);
    while (!let_go_.empty() && let_go_.front().first < oldest) {
      unseen.push_back(std::move(let_go_.front().second));
      let_go_.pop_front();
    }
  }

  // Puts a shard into its slot, unless another thread was faster. The caller has entered.
  const Shard& add(Slot& slot, std::unique_ptr<const Shard> fresh) {
    const std::lock_guard lock(mutex_);
    if (const auto* found = slot.load(std::memory_order_acquire)) return *found;
    mapped_.push_back(&slot);
    const auto& shard = *fresh.get();
    slot.store(fresh.release(), std::memory_order_release);
    while (mapped_.size() > most_) {
      let_go_.emplace_back(let_go_count_++, mapped_.front()->exchange(nullptr));
      mapped_.pop_front();
    }
    return shard;
  }

  // Unmaps the shards of a store that no reader looks at any more.
  void remove(std::span<Slot> slots) {
    const std::less<const Slot*> before;
    const auto* const end = slots.data() + slots.size();
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(mapped_, [&](const Slot* slot) { return !before(slot, slots.data()) && before(slot, end); });
    }
    for (auto& slot : slots) delete slot.exchange(nullptr);
  }

  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return mapped_.size();
  }

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::deque<Slot*> mapped_;  // oldest first
  std::uint64_t let_go_count_ = 0;
  std::deque<std::pair<std::uint64_t, std::unique_ptr<const Shard>>> let_go_;  // with their number, not yet unmapped
  std::vector<std::uint64_t> readers_;  // how many shards had been let go when each began
};

}  // namespace millstream
