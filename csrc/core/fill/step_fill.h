// core/fill/step_fill.h: a step of a clock -> a filled batch. The threads of a ring fill by it, and so does a trainer that fills for
// itself: both give the same bytes.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/fill/filler.h"
#include "core/fill/readahead.h"
#include "core/memory/batch.h"
#include "core/memory/pool.h"
#include "core/order/clock.h"

namespace millstream {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How steps are filled, whatever their size.
struct StepShape {
  bool pad_last = false;
  std::uint64_t steps_per_update = 0;  // 0: what they weigh is not asked for
};

// What so many threads and a trainer that helps need besides buffers: each its scratch, and one plan to look ahead with.
inline std::size_t fill_scratch_bytes(const Feed& feed, const Clock& clock, std::size_t threads) {
  return (threads + 1) * feed.scratch_bytes(clock.rank_rows) + feed.plan().scratch_bytes(clock.rank_rows);
}

// What a thread keeps between batches.
struct StepScratch {
  FeedScratch feed;
  std::uint64_t update = ~std::uint64_t{0};  // that was weighed last
  StepWeight weight;                         // of that update
};

// Fills steps of a clock. Any number of threads may, each with its own scratch.
class StepFill {
 public:
  StepFill(const Feed& feed, const Clock& clock, std::uint64_t first_step, const StepShape& shape)
      : feed_(feed), clock_(clock), shape_(shape), ahead_(feed, clock, first_step) {}

  const Clock& clock() const { return clock_; }

  // Continues with steps of another clock. Only for a thread that fills alone.
  void follow(const Clock& clock, std::uint64_t first_step) {
    clock_ = clock;
    ahead_.follow(clock, first_step);
  }

  BatchLayout layout(std::uint64_t number) const {
    return feed_.layout(shape_.pad_last ? clock_.rank_rows : clock_.step(number).own);
  }

  // False where it stopped in the middle.
  bool operator()(std::uint64_t number, Batch& batch, StepScratch& scratch, const std::atomic<bool>& stopping) {
    const auto step = clock_.step(number);
    ahead_.before(number, stopping);
    const bool whole_update = shape_.steps_per_update == 1 && step.own == step.rows;
    feed_.fill(step.first, step.own, batch, scratch.feed, stopping, whole_update);
    if (shape_.steps_per_update > 0 && !whole_update)
      batch.facts.step_weight = weigh_update(number / shape_.steps_per_update, scratch, stopping);
    if (stopping.load()) return false;
    batch.facts.step = number;
    batch.facts.epoch = step.epoch;
    batch.facts.place = step.offset + step.first - step.position;
    note_misses();
    return true;
  }

 private:
  // What all rows weigh that one update of the model sees. A batch's worth at a time: that is what the scratch has room for.
  const StepWeight& weigh_update(std::uint64_t update, StepScratch& scratch, const std::atomic<bool>& stopping) const {
    if (scratch.update == update) return scratch.weight;
    StepWeight weight;
    for (auto number = update * shape_.steps_per_update; number < (update + 1) * shape_.steps_per_update; ++number) {
      const auto step = clock_.step(number);
      for (std::uint64_t done = 0; done < step.rows; done += clock_.rank_rows)
        feed_.weigh(step.position + done, std::min(clock_.rank_rows, step.rows - done), weight, scratch.feed, stopping);
    }
    scratch.update = update;
    return scratch.weight = weight;
  }

  // Waits for the disk show up as major faults of this thread; asking costs a system call, so not for every batch.
  void note_misses() {
    thread_local unsigned filled = 0;
    thread_local long seen = 0;
    if (filled++ % 8 != 0) return;
    struct rusage usage;
    if (::getrusage(RUSAGE_THREAD, &usage) != 0) return;
    if (usage.ru_majflt > seen) ahead_.missed();
    seen = usage.ru_majflt;
  }

  const Feed& feed_;
  Clock clock_;
  const StepShape shape_;
  ReadAhead ahead_;
};

// Buffers for batches of sizes that change: a pool for each size, so that those of a size that comes again are used again.
// Without a limit sizes are rounded up to a power of two: then there are few of them.
class SizedBuffers {
 public:
  explicit SizedBuffers(std::shared_ptr<Budget> budget) : budget_(std::move(budget)) {}
  ~SizedBuffers() { retire(); }
  SizedBuffers(const SizedBuffers&) = delete;
  SizedBuffers& operator=(const SizedBuffers&) = delete;

  // Nothing where the budget has no room.
  std::optional<Batch> take(const BatchLayout& layout) {
    const auto bytes = budget_->most_bytes() == Budget::no_limit ? std::bit_ceil(layout.bytes()) : layout.bytes();
    if (auto batch = take_from(bytes, layout)) return batch;
    retire();  // what lies in the other pools is room
    return take_from(bytes, layout);
  }

  void retire() {
    for (auto& [bytes, pool] : pools_) pool->retire();
    pools_.clear();
  }

 private:
  static constexpr std::size_t keep = 2;  // one in the user's hands, one that is filled

  std::optional<Batch> take_from(std::size_t bytes, const BatchLayout& layout) {
    auto& pool = pools_[bytes];
    if (pool == nullptr) pool = std::make_shared<Pool>(bytes, budget_, keep);
    auto* const data = pool->try_take();
    return data == nullptr ? std::nullopt : std::optional<Batch>(std::in_place, pool, data, layout);
  }

  const std::shared_ptr<Budget> budget_;
  std::map<std::size_t, std::shared_ptr<Pool>> pools_;
};

// Fills steps in the thread that asks for them: for a trainer whose steps change their size more often than threads pay.
class DirectFill {
 public:
  enum class Outcome { ready, starved, stopped };

  struct Counters {
    std::uint64_t batches = 0;
    std::int64_t fill_ns = 0;
  };

  DirectFill(std::shared_ptr<const Feed> feed, std::shared_ptr<Budget> budget, const StepShape& shape)
      : feed_(std::move(feed)), budget_(std::move(budget)), shape_(shape), buffers_(budget_) {
    install_guard();
  }

  // One thread at a time. Throws BudgetFull where there is no room to begin, and what is wrong with the data.
  Outcome take(const Clock& clock, std::uint64_t number, std::optional<Batch>& out) {
    const auto start = now_ns();
    follow(clock, number);
    auto batch = buffers_.take(fill_->layout(number));
    if (!batch) return Outcome::starved;
    if (!(*fill_)(number, *batch, scratch_, stopping_)) return Outcome::stopped;
    out.emplace(std::move(*batch));
    const auto took = now_ns() - start;
    since_change_.batches += 1;
    since_change_.fill_ns += took;
    batches_.fetch_add(1, std::memory_order_relaxed);
    fill_ns_.fetch_add(took, std::memory_order_relaxed);
    return Outcome::ready;
  }

  // Stops the threads that fill, each after the row it is writing. Any thread may call it.
  void stop() { stopping_.store(true); }

  Counters counters() const { return {batches_.load(), fill_ns_.load()}; }
  const Counters& since_change() const { return since_change_; }  // of the clock

 private:
  void follow(const Clock& clock, std::uint64_t number) {
    if (fill_ && fill_->clock() == clock) return;
    if (clock.rank_rows > most_rows_) {
      reserved_.reset();  // both at once may be too much
      most_rows_ = 0;
      reserved_.emplace(budget_, fill_scratch_bytes(*feed_, clock, 1));  // a budget refuses the same, whichever thread fills
      most_rows_ = clock.rank_rows;
    }
    if (fill_) fill_->follow(clock, number);
    else fill_.emplace(*feed_, clock, number, shape_);
    scratch_.update = ~std::uint64_t{0};
    since_change_ = {};
  }

  std::shared_ptr<const Feed> feed_;
  std::shared_ptr<Budget> budget_;
  const StepShape shape_;
  SizedBuffers buffers_;
  std::optional<Reservation> reserved_;  // for the scratch
  std::uint64_t most_rows_ = 0;          // that it is reserved for
  std::optional<StepFill> fill_;
  StepScratch scratch_;
  Counters since_change_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> batches_ = 0;
  std::atomic<std::int64_t> fill_ns_ = 0;
};

}  // namespace millstream
