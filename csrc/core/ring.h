// core/ring.h: threads that fill batches ahead of the trainer, handed over in order.
//
// A thread takes a ticket (the next step), waits until the ring has room for it, fills a buffer from the pool and puts it into
// the ring's slot for that ticket. Tickets make the order independent of how fast any thread is. Nothing here knows Python.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/ahead.h"
#include "core/batch.h"
#include "core/clock.h"
#include "core/feed.h"
#include "core/pool.h"

namespace millstream {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct RingCounters {
  std::uint64_t batches = 0, filled = 0;
  std::int64_t fill_ns = 0;       // threads at work
  std::int64_t room_wait_ns = 0;  // threads waiting for the trainer
  std::int64_t take_wait_ns = 0;  // the trainer waiting for a batch
};

class Ring {
 public:
  enum class Outcome { ready, waiting, starved, closed };  // starved: the user holds every buffer

  Ring(std::shared_ptr<const Feed> feed, const Clock& clock, std::uint64_t first_step, std::size_t threads,
       std::size_t depth, std::shared_ptr<Pool> pool, bool pad_last)
      : feed_(std::move(feed)),
        clock_(clock),
        pool_(std::move(pool)),
        pad_last_(pad_last),
        ahead_(*feed_, clock, first_step),
        slots_(depth),
        next_ticket_(first_step),
        head_(first_step),
        buffered_(first_step) {
    if (threads == 0 || depth == 0) throw std::invalid_argument("a ring needs a thread and a slot");
    if (pool_->buffer_bytes() < feed_->layout(clock.rank_rows).bytes())
      throw std::invalid_argument("the buffers are too small for a batch");
    install_guard();
    try {
      for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    } catch (...) {
      close();  // else those that did start would be waited for without being woken
      throw;
    }
  }

  ~Ring() { close(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Waits at most `patience_ns` for the next batch. A failed fill is thrown here, in its turn.
  Outcome take(std::int64_t patience_ns, std::unique_ptr<Batch>& out) {
    const std::lock_guard one_at_a_time(taking_);
    auto& slot = slots_[head_.load(std::memory_order_relaxed) % slots_.size()];
    if (!slot.ready.load(std::memory_order_acquire)) {
      const auto start = now_ns();
      const bool ready = spin(slot) || sleep(slot, patience_ns);
      take_wait_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
      if (!ready) return why_not();
    }
    if (slot.failure) std::rethrow_exception(slot.failure);  // it stays, so that every later call says the same
    out = std::move(slot.batch);
    slot.ready.store(false, std::memory_order_relaxed);
    taken_.fetch_add(1, std::memory_order_relaxed);
    head_.fetch_add(1);
    make_room();
    return Outcome::ready;
  }

  // True if the next take() will not wait.
  bool ready() const { return slots_[head_.load() % slots_.size()].ready.load(std::memory_order_acquire); }

  std::size_t pool_bytes() const { return pool_->bytes_held(); }

  std::size_t filled() const {
    std::size_t count = 0;
    for (const auto& slot : slots_) count += slot.ready.load(std::memory_order_acquire);
    return count;
  }

  RingCounters counters() const {
    return {taken_.load(), filled_.load(), fill_ns_.load(), room_wait_ns_.load(), take_wait_ns_.load()};
  }

  // Stops the threads; each ends after the row it is writing. Batches that are ready can still be taken.
  void close() {
    const std::lock_guard one_at_a_time(closing_);
    stopping_.store(true);
    for (auto& thread : threads_) thread.request_stop();
    {
      const std::lock_guard lock(mutex_);
      room_.notify_all();
      filled_slot_.notify_all();
    }
    pool_->wake();
    threads_.clear();
  }

 private:
  static constexpr auto nobody = ~std::uint64_t{0};

  struct Slot {
    std::atomic<bool> ready = false;
    std::unique_ptr<Batch> batch;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop) {
    FeedScratch scratch;
    while (!stop.stop_requested()) {
      const auto ticket = next_ticket_.fetch_add(1);
      if (!wait_for_room(ticket, stop)) return;
      auto& slot = slots_[ticket % slots_.size()];
      bool failed = false;  // the slot is no longer ours to look at once it is handed over
      try {
        if (!fill(ticket, slot, scratch, stop)) return;
      } catch (...) {
        slot.failure = std::current_exception();
        failed = true;
      }
      hand_over(slot);
      if (failed) return;
    }
  }

  bool fill(std::uint64_t ticket, Slot& slot, FeedScratch& scratch, const std::stop_token& stop) {
    const auto step = clock_.step(ticket);
    const auto layout = feed_->layout(pad_last_ ? clock_.rank_rows : step.own);
    auto* const data = pool_->take([&] { return !stop.stop_requested(); });
    if (data == nullptr) return false;
    auto batch = std::make_unique<Batch>(pool_, data, layout);
    pass_on_buffers(ticket);
    const auto start = now_ns();
    ahead_.before(ticket);
    feed_->fill(step.first, step.own, *batch, scratch, stopping_);
    if (stopping_.load()) return false;  // it may have stopped in the middle
    batch->facts.step = ticket;
    note_misses(ticket);
    const auto took = now_ns() - start;
    fill_ns_.fetch_add(took, std::memory_order_relaxed);
    last_fill_ns_.store(took, std::memory_order_relaxed);
    filled_.fetch_add(1, std::memory_order_relaxed);
    slot.batch = std::move(batch);
    return true;
  }

  // Waits for the disk show up as major faults of this thread; asking costs a system call, so not for every batch.
  void note_misses(std::uint64_t ticket) {
    if (ticket % 8 != 0) return;
    thread_local long seen = 0;
    struct rusage usage;
    if (::getrusage(RUSAGE_THREAD, &usage) != 0) return;
    if (usage.ru_majflt > seen) ahead_.missed();
    seen = usage.ru_majflt;
  }

  // Where buffers are limited they go to tickets in order: else later batches could hold all that the trainer leaves, and
  // the one it waits for would get none.
  bool wait_for_room(std::uint64_t ticket, const std::stop_token& stop) {
    const auto fits = [&] {
      return ticket < head_.load() + slots_.size() && (!pool_->limited() || buffered_.load() == ticket);
    };
    if (fits()) return !stop.stop_requested();
    const auto start = now_ns();
    std::unique_lock lock(mutex_);
    while (true) {
      first_waiting_.store(std::min(first_waiting_.load(), ticket));  // before asking, so that nobody misses both
      if (fits() || stop.stop_requested()) break;
      room_.wait(lock);
    }
    room_wait_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return !stop.stop_requested();
  }

  // A thread is woken when its batch is due within half a ring, not as soon as there is room: small batches would drown in
  // wake-ups.
  void make_room() {
    if (first_waiting_.load() <= head_.load() + slots_.size() / 2) wake_waiting();
  }

  void pass_on_buffers(std::uint64_t ticket) {
    if (!pool_->limited()) return;
    buffered_.store(ticket + 1);
    if (first_waiting_.load() < head_.load() + slots_.size()) wake_waiting();
  }

  // Whoever still has no room says so again.
  void wake_waiting() {
    const std::lock_guard lock(mutex_);
    first_waiting_.store(nobody);
    room_.notify_all();
  }

  // Tickets get their buffers in order, so if the next batch has none, no later one has: the user holds them all.
  Outcome why_not() const {
    if (stopping_.load()) return Outcome::closed;
    return pool_->starving() && buffered_.load() == head_.load() ? Outcome::starved : Outcome::waiting;
  }

  void hand_over(Slot& slot) {
    slot.ready.store(true);
    if (!taker_waits_.load()) return;
    const std::lock_guard lock(mutex_);
    filled_slot_.notify_one();
  }

  // A batch that is due within microseconds is not worth a sleep.
  bool spin(const Slot& slot) const {
    constexpr std::int64_t worth_spinning_ns = 30'000;
    const auto expected = last_fill_ns_.load(std::memory_order_relaxed);
    if (expected == 0 || expected > worth_spinning_ns) return false;
    const auto end = now_ns() + 2 * expected;
    while (now_ns() < end) {
      for (int i = 0; i < 16; ++i) pause_briefly();
      if (slot.ready.load(std::memory_order_acquire)) return true;
    }
    return false;
  }

  bool sleep(const Slot& slot, std::int64_t patience_ns) {
    std::unique_lock lock(mutex_);
    taker_waits_.store(true);
    filled_slot_.wait_for(lock, std::chrono::nanoseconds(patience_ns),
                          [&] { return slot.ready.load() || stopping_.load(); });
    taker_waits_.store(false);
    return slot.ready.load();
  }

  std::shared_ptr<const Feed> feed_;
  const Clock clock_;
  std::shared_ptr<Pool> pool_;
  const bool pad_last_;
  ReadAhead ahead_;

  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_ticket_;
  std::atomic<std::uint64_t> head_;      // the step that is handed over next
  std::atomic<std::uint64_t> buffered_;  // the step that gets the next buffer, where buffers are limited
  std::atomic<std::uint64_t> first_waiting_ = nobody;  // no thread waits for room with an earlier ticket

  std::mutex mutex_, taking_, closing_;
  std::condition_variable room_, filled_slot_;
  std::atomic<bool> taker_waits_ = false, stopping_ = false;

  std::atomic<std::uint64_t> taken_ = 0, filled_ = 0;
  std::atomic<std::int64_t> fill_ns_ = 0, last_fill_ns_ = 0, room_wait_ns_ = 0, take_wait_ns_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace millstream
