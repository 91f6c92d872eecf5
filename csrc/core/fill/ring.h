// core/fill/ring.h: threads that fill batches ahead of the trainer, handed over in order.
//
// A thread waits until the ring has room, takes a buffer from the pool and then a ticket (the next step), fills the buffer and
// puts it into the ring's slot for that ticket. Tickets make the order independent of how fast any thread is; the buffer comes
// first, so that the step that is due next never waits for a buffer that a later step holds. Nothing here knows Python.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/fill/filler.h"
#include "core/fill/step_fill.h"
#include "core/memory/batch.h"
#include "core/memory/pool.h"
#include "core/order/clock.h"

namespace millstream {

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
  enum class Outcome { ready, waiting, starved, closed };  // starved: the user holds all that there is room for

  Ring(std::shared_ptr<const Feed> feed, const Clock& clock, std::uint64_t first_step, std::size_t threads,
       std::size_t depth, std::shared_ptr<Pool> pool, bool pad_last, std::uint64_t steps_per_update = 0,
       std::uint64_t end_step = ~std::uint64_t{0})
      : feed_(std::move(feed)),
        fill_(*feed_, clock, first_step, {pad_last, steps_per_update}),
        pool_(std::move(pool)),
        scratch_(std::in_place, pool_->budget(), scratch_bytes(*feed_, clock, threads)),
        end_step_(end_step),
        thread_count_(threads),
        slots_(depth),
        next_ticket_(first_step),
        head_(first_step) {
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
  Outcome take(std::int64_t patience_ns, std::optional<Batch>& out) {
    const std::lock_guard one_at_a_time(taking_);
    if (stopping_.load() || head_.load(std::memory_order_relaxed) >= end_step_) return Outcome::closed;
    auto& slot = slots_[head_.load(std::memory_order_relaxed) % slots_.size()];
    const bool there = slot.ready.load(std::memory_order_acquire);
    waits_in_a_row_ = there ? std::max(0, waits_in_a_row_ - 1) : std::min(64, waits_in_a_row_ + 4);
    if (!there) {
      const auto start = now_ns();
      const bool ready = spin(slot) || nap(slot, patience_ns) || sleep(slot, patience_ns);
      take_wait_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
      if (stopping_.load()) return Outcome::closed;
      if (!ready) return starved(slot) ? Outcome::starved : Outcome::waiting;
    }
    if (slot.failure) std::rethrow_exception(slot.failure);  // it stays, so that every later call says the same
    out.emplace(std::move(*slot.batch));
    slot.batch.reset();
    slot.ready.store(false, std::memory_order_relaxed);
    taken_.fetch_add(1, std::memory_order_relaxed);
    head_.fetch_add(1);
    make_room();
    return Outcome::ready;
  }

  // True if the next take() will not wait.
  bool ready() const { return slots_[head_.load() % slots_.size()].ready.load(std::memory_order_acquire); }

  std::size_t filled() const {
    std::size_t count = 0;
    for (const auto& slot : slots_) count += slot.ready.load(std::memory_order_acquire);
    return count;
  }

  // What the threads need besides buffers: each its scratch, and one plan to look ahead with.
  static std::size_t scratch_bytes(const Feed& feed, const Clock& clock, std::size_t threads) {
    return threads * feed.scratch_bytes(clock.rank_rows) + feed.plan().scratch_bytes(clock.rank_rows);
  }

  RingCounters counters() const {
    return {taken_.load(), filled_.load(), fill_ns_.load(), room_wait_ns_.load(), take_wait_ns_.load()};
  }

  // Stops the threads, each after the row it is writing, sends away whoever waits in take(), and lets go of every buffer
  // that is not in the user's hands.
  void close() {
    const std::lock_guard one_at_a_time(closing_);
    stopping_.store(true);
    for (auto& thread : threads_) thread.request_stop();
    pass_lock();
    room_.notify_all();
    filled_slot_.notify_all();
    pool_->wake();
    threads_.clear();
    const std::lock_guard nobody_takes(taking_);
    for (auto& slot : slots_) {
      slot.ready.store(false);
      slot.batch.reset();
    }
    pool_->retire();
    scratch_.reset();
  }

 private:
  static constexpr std::int64_t worth_spinning_ns = 30'000;
  static constexpr std::int64_t worth_napping_ns = 1'000'000;

  // A buffer on its way from the pool to a batch.
  struct GiveBack {
    Pool* pool;
    void operator()(std::byte* data) const { pool->give_back(data); }
  };
  using Loan = std::unique_ptr<std::byte, GiveBack>;

  struct Slot {
    std::atomic<bool> ready = false;
    std::optional<Batch> batch;
    std::exception_ptr failure;
  };

  void work(const std::stop_token& stop) {
    StepScratch scratch;
    while (wait_for_room(stop)) {
      std::exception_ptr failure;
      Loan buffer(nullptr, GiveBack{pool_.get()});
      try {
        buffer.reset(pool_->take([&] { return !stop.stop_requested(); }));
        if (!buffer) return;  // closing
      } catch (...) {
        failure = std::current_exception();
      }
      const auto ticket = claim_ticket(stop);
      if (!ticket) return;
      auto& slot = slots_[*ticket % slots_.size()];
      try {
        if (!failure && !fill(*ticket, slot, buffer, scratch)) return;
      } catch (...) {
        failure = std::current_exception();
      }
      slot.failure = failure;
      hand_over(slot);
      if (failure) return;
    }
  }

  // Every thread waits for a buffer and all of them are in the user's hands: no batch is on its way. Asked in this order,
  // for a thread may have handed over the last one and gone to wait in between.
  bool starved(const Slot& slot) const { return pool_->starving(thread_count_) && !slot.ready.load(); }

  bool fill(std::uint64_t ticket, Slot& slot, Loan& buffer, StepScratch& scratch) {
    const auto start = now_ns();
    fill_start_ns_.store(start, std::memory_order_relaxed);
    auto& batch = slot.batch.emplace(pool_, buffer.get(), fill_.layout(ticket));
    (void)buffer.release();
    if (!fill_(ticket, batch, scratch, stopping_)) return false;
    const auto took = now_ns() - start;
    fill_ns_.fetch_add(took, std::memory_order_relaxed);
    last_fill_ns_.store(took, std::memory_order_relaxed);
    filled_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  bool has_room() const { return next_ticket_.load() < head_.load() + slots_.size(); }

  // Waits until a ticket can be had; false when the ring is closing.
  bool wait_for_room(const std::stop_token& stop) {
    if (has_room()) return !stop.stop_requested();
    std::unique_lock lock(mutex_);
    return wait_for_room(lock, stop);
  }

  bool wait_for_room(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    if (has_room()) return !stop.stop_requested();
    const auto start = now_ns();
    waiting_for_room_.fetch_add(1);
    room_.wait(lock, [&] { return has_room() || stop.stop_requested(); });
    waiting_for_room_.fetch_sub(1);
    room_wait_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return !stop.stop_requested();
  }

  // The next step, once it has room: nobody ever sleeps with a ticket in hand.
  std::optional<std::uint64_t> claim_ticket(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (next_ticket_.load() >= end_step_ || !wait_for_room(lock, stop) || next_ticket_.load() >= end_step_) return std::nullopt;
    return next_ticket_.fetch_add(1);
  }

  // Threads are woken when half the ring is empty, not for every batch: small batches would drown in wake-ups.
  void make_room() {
    if (waiting_for_room_.load() == 0) return;
    if (next_ticket_.load() - head_.load() > slots_.size() / 2) return;
    pass_lock();
    room_.notify_all();
  }

  void hand_over(Slot& slot) {
    slot.ready.store(true);
    if (!taker_waits_.load()) return;
    pass_lock();
    filled_slot_.notify_one();
  }

  // Whoever was about to sleep now does, or has seen the change. Notifying under the lock would wake it only to wait again.
  void pass_lock() { const std::lock_guard lock(mutex_); }

  // A batch that is due within microseconds is not worth a sleep.
  bool spin(const Slot& slot) const {
    const auto expected = last_fill_ns_.load(std::memory_order_relaxed);
    if (expected == 0 || expected > worth_spinning_ns) return false;
    const auto end = now_ns() + 2 * expected;
    while (now_ns() < end) {
      for (int i = 0; i < 16; ++i) pause_briefly();
      if (slot.ready.load(std::memory_order_acquire)) return true;
    }
    return false;
  }

  // A batch that is due within a millisecond is waited for by the clock: being woken would cost the thread that fills it
  // more than the nap costs us, and that thread is what everybody waits for. A batch that is late is slept for.
  bool nap(const Slot& slot, std::int64_t patience_ns) const {
    const auto give_up = now_ns() + std::min(patience_ns, worth_napping_ns);
    while (true) {
      const auto expected = last_fill_ns_.load(std::memory_order_relaxed);
      if (expected == 0 || expected > worth_napping_ns) return false;
      const auto now = now_ns();
      const auto due = fill_start_ns_.load(std::memory_order_relaxed) + batches_to_nap() * expected;
      const auto wake = std::min(give_up, std::max(due, now + expected / 8));
      std::this_thread::sleep_for(std::chrono::nanoseconds(wake - now));
      if (slot.ready.load(std::memory_order_acquire)) return true;
      if (now_ns() >= give_up || stopping_.load()) return false;
    }
  }

  // A trainer that waits for every batch is faster than the threads whatever it does: it may as well sleep for several.
  std::int64_t batches_to_nap() const {
    return std::clamp<std::int64_t>(waits_in_a_row_ / 8, 1, static_cast<std::int64_t>(slots_.size() / 3 + 1));
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
  StepFill fill_;
  std::shared_ptr<Pool> pool_;
  std::optional<Reservation> scratch_;  // of the threads, while there are any
  const std::uint64_t end_step_;        // what lies from here on is not known yet
  const std::size_t thread_count_;

  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_ticket_;
  std::atomic<std::uint64_t> head_;  // the step that is handed over next

  std::mutex mutex_, taking_, closing_;
  std::condition_variable room_, filled_slot_;
  std::atomic<int> waiting_for_room_ = 0;
  std::atomic<bool> taker_waits_ = false, stopping_ = false;
  int waits_in_a_row_ = 0;  // of the taker: more with every wait, fewer with every batch that was there

  std::atomic<std::uint64_t> taken_ = 0, filled_ = 0;
  std::atomic<std::int64_t> fill_ns_ = 0, last_fill_ns_ = 0, fill_start_ns_ = 0, room_wait_ns_ = 0, take_wait_ns_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace millstream
