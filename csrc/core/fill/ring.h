// core/fill/ring.h: threads that fill batches ahead of the trainer, handed over in order.
//
// A thread waits until the ring has room, takes a buffer from the pool and then a ticket (the next step), fills the buffer and
// puts it into the ring's slot for that ticket. Tickets make the order independent of how fast any thread is; the buffer comes
// first, so that the step that is due next never waits for a buffer that a later step holds. A trainer that finds its batch not
// begun fills it itself instead of sleeping. Nothing here knows Python.
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
      : shape_{pad_last, steps_per_update},
        filling_(std::make_shared<Filling>(std::move(feed), clock, first_step, shape_)),
        pool_(std::move(pool)),
        scratch_(std::in_place, pool_->budget(), fill_scratch_bytes(*filling_->feed, clock, threads)),
        scratch_bytes_(fill_scratch_bytes(*filling_->feed, clock, threads)),
        end_step_(end_step),
        thread_count_(threads),
        slots_(depth),
        next_ticket_(first_step),
        head_(first_step) {
    if (threads == 0 || depth == 0) throw std::invalid_argument("a ring needs a thread and a slot");
    if (pool_->buffer_bytes() < filling_->feed->layout(clock.rank_rows).bytes())
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
    if (stopping_.load() || head_.load(std::memory_order_relaxed) >= end_step_.load()) return Outcome::closed;
    auto& slot = slots_[head_.load(std::memory_order_relaxed) % slots_.size()];
    const bool there = slot.ready.load(std::memory_order_acquire);
    waits_in_a_row_ = there ? std::max(0, waits_in_a_row_ - 1) : std::min(64, waits_in_a_row_ + 4);
    if (!there) {
      const auto start = now_ns();
      const bool ready = help(slot) || spin(slot) || nap(slot, patience_ns) || sleep(slot, patience_ns);
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

  // What fills some steps: a feed, and the clock that says which rows they have.
  struct Filling {
    const std::shared_ptr<const Feed> feed;
    StepFill fill;
    const std::uint64_t number;  // among those of a ring
    std::atomic<int> users = 0;  // threads that fill by it

    Filling(std::shared_ptr<const Feed> owned, const Clock& clock, std::uint64_t first_step, const StepShape& shape,
            std::uint64_t count = 0)
        : feed(std::move(owned)), fill(*feed, clock, first_step, shape), number(count) {}

    void wait_until_unused() const {
      while (users.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  };

  // Fills the steps that are not begun, up to a later end, by another feed that holds all of their rows. Gives what filled the
  // steps before: threads may still use it, each for one batch. Null, and nothing changes, if the clock is another one or the
  // feed needs more room. One caller at a time.
  std::shared_ptr<Filling> extend(std::shared_ptr<const Feed> feed, const Clock& clock, std::uint64_t end_step) {
    const bool fits = pool_->buffer_bytes() >= feed->layout(clock.rank_rows).bytes() &&
                      fill_scratch_bytes(*feed, clock, thread_count_) <= scratch_bytes_;
    if (!fits || end_step < end_step_.load()) return nullptr;
    auto filling = std::make_shared<Filling>(std::move(feed), clock, head_.load(), shape_, filling_->number + 1);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_.load() || !(filling_->fill.clock() == clock)) return nullptr;
      filling_.swap(filling);
      end_step_.store(end_step);
    }
    room_.notify_all();
    return filling;
  }

  RingCounters counters() const {
    return {taken_.load(), filled_.load(), fill_ns_.load(), room_wait_ns_.load(), take_wait_ns_.load()};
  }

  // Stops the threads, each after the row it is writing, wakes the callers of take(), and lets go of every buffer
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
  static constexpr std::int64_t worth_a_nap_ns = 20'000'000;  // of a thread: for slower trainers a wake-up costs nothing

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

  // A step to be filled, and what fills it: that stays as long as it has users.
  struct Leave {
    void operator()(Filling* filling) const { filling->users.fetch_sub(1); }
  };
  struct Ticket {
    std::uint64_t step;
    std::unique_ptr<Filling, Leave> filling;
  };

  // What a thread keeps between batches, which is about one feed.
  struct Scratch {
    std::uint64_t of = 0;  // the number of what filled them
    StepScratch kept;
  };

  // The next step; under the lock.
  Ticket next_ticket() {
    filling_->users.fetch_add(1);
    return {next_ticket_.fetch_add(1), std::unique_ptr<Filling, Leave>(filling_.get())};
  }

  void work(const std::stop_token& stop) {
    Scratch scratch;
    while (wait_for_room(stop)) {
      std::exception_ptr failure;
      Loan buffer(nullptr, GiveBack{pool_.get()});
      try {
        buffer.reset(pool_->take([&] { return !stop.stop_requested(); }));
        if (!buffer) return;  // closing
      } catch (...) {
        failure = std::current_exception();
      }
      auto ticket = claim_ticket(stop);
      if (!ticket) return;
      auto& slot = slots_[ticket->step % slots_.size()];
      try {
        if (!failure && !fill(*ticket, slot, buffer, scratch)) return;
      } catch (...) {
        failure = std::current_exception();
      }
      ticket.reset();
      slot.failure = failure;
      hand_over(slot);
      if (failure) return;
    }
  }

  // The trainer fills its batch itself if no thread has begun it: being woken takes longer. False where one has, where there is no
  // buffer, and where batches take so long that Ctrl-C would not be heard.
  bool help(Slot& slot) {
    const auto expected = last_fill_ns_.load(std::memory_order_relaxed);
    if (expected == 0 || expected > worth_napping_ns || next_ticket_.load() != head_.load()) return false;
    Loan buffer(pool_->try_take(), GiveBack{pool_.get()});
    if (!buffer) return false;
    auto ticket = claim_first();
    if (!ticket) return false;
    try {
      if (!fill(*ticket, slot, buffer, taker_scratch_)) return false;
    } catch (...) {
      slot.failure = std::current_exception();
    }
    slot.ready.store(true);
    return true;
  }

  // The step that is due, if no thread has begun it.
  std::optional<Ticket> claim_first() {
    const std::lock_guard lock(mutex_);
    if (stopping_.load() || next_ticket_.load() != head_.load()) return std::nullopt;
    return next_ticket();
  }

  // Every thread waits for a buffer and all of them are in the user's hands: no batch is on its way. Asked in this order,
  // for a thread may have handed over the last one and gone to wait in between.
  bool starved(const Slot& slot) const { return pool_->starving(thread_count_) && !slot.ready.load(); }

  bool fill(const Ticket& ticket, Slot& slot, Loan& buffer, Scratch& scratch) {
    const auto start = now_ns();
    fill_start_ns_.store(start, std::memory_order_relaxed);
    if (scratch.of != ticket.filling->number) scratch = {ticket.filling->number, {}};
    auto& batch = slot.batch.emplace(pool_, buffer.get(), ticket.filling->fill.layout(ticket.step));
    (void)buffer.release();
    if (!ticket.filling->fill(ticket.step, batch, scratch.kept, stopping_)) return false;
    const auto took = now_ns() - start;
    fill_ns_.fetch_add(took, std::memory_order_relaxed);
    last_fill_ns_.store(took, std::memory_order_relaxed);
    filled_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  // What lies from the end on is not known yet: threads wait until it is.
  bool has_room() const {
    const auto next = next_ticket_.load();
    return next < head_.load() + slots_.size() && next < end_step_.load();
  }

  // Waits until a ticket can be had; false when the ring is closing.
  bool wait_for_room(const std::stop_token& stop) {
    if (has_room()) return !stop.stop_requested();
    std::unique_lock lock(mutex_);
    return wait_for_room(lock, stop);
  }

  bool wait_for_room(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    if (has_room()) return !stop.stop_requested();
    const auto start = now_ns();
    nap_until_half_empty(lock, stop);
    waiting_for_room_.fetch_add(1);
    room_.wait(lock, [&] { return has_room() || stop.stop_requested(); });
    waiting_for_room_.fetch_sub(1);
    room_wait_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return !stop.stop_requested();
  }

  // Waits by the clock for a trainer that keeps its pace: to wake a thread costs it more than a short batch. One that becomes
  // faster wakes it when the ring is nearly empty; one that becomes slower finds it waiting to be woken.
  void nap_until_half_empty(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    const auto half = static_cast<std::int64_t>(slots_.size() / 2);
    const auto ahead = static_cast<std::int64_t>(next_ticket_.load() - head_.load());
    const auto nap = pace_ns_.load(std::memory_order_relaxed) * (ahead - half);
    if (nap <= 0 || nap > worth_a_nap_ns) return;
    napping_.fetch_add(1);
    room_.wait_for(lock, std::chrono::nanoseconds(nap), [&] { return nearly_empty() || stop.stop_requested(); });
    napping_.fetch_sub(1);
  }

  bool nearly_empty() const {
    const auto next = next_ticket_.load();
    return next - head_.load() <= slots_.size() / 4 && next < end_step_.load();
  }

  // The next step, once it has room: no thread ever sleeps with a ticket in hand.
  std::optional<Ticket> claim_ticket(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!wait_for_room(lock, stop)) return std::nullopt;
    return next_ticket();
  }

  // Threads are woken when half the ring is empty, not for every batch: small batches would drown in wake-ups.
  void make_room() {
    const auto now = now_ns();
    const auto took = std::min(now - last_take_ns_, worth_a_nap_ns);
    last_take_ns_ = now;
    pace_ns_.store((7 * pace_ns_.load(std::memory_order_relaxed) + took) / 8, std::memory_order_relaxed);
    if (napping_.load() > 0 && nearly_empty()) room_.notify_all();  // one that is missed wakes by itself
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

  // A thread that was about to sleep now does, or has seen the change. Notified under the lock, it would only wait again.
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

  const StepShape shape_;
  std::shared_ptr<Filling> filling_;  // of the steps that are not begun
  std::shared_ptr<Pool> pool_;
  std::optional<Reservation> scratch_;  // of all who fill, while there are any
  const std::size_t scratch_bytes_;     // that were reserved for it
  std::atomic<std::uint64_t> end_step_;
  const std::size_t thread_count_;

  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_ticket_;
  std::atomic<std::uint64_t> head_;  // the step that is handed over next

  std::mutex mutex_, taking_, closing_;
  std::condition_variable room_, filled_slot_;
  std::atomic<int> waiting_for_room_ = 0, napping_ = 0;
  std::atomic<std::int64_t> pace_ns_ = 0;  // between two batches that the trainer takes
  std::int64_t last_take_ns_ = 0;
  std::atomic<bool> taker_waits_ = false, stopping_ = false;
  Scratch taker_scratch_;
  int waits_in_a_row_ = 0;  // of the taker: more with every wait, fewer with every batch that was there

  std::atomic<std::uint64_t> taken_ = 0, filled_ = 0;
  std::atomic<std::int64_t> fill_ns_ = 0, last_fill_ns_ = 0, fill_start_ns_ = 0, room_wait_ns_ = 0, take_wait_ns_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace millstream
