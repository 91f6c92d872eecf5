// core/fill/readahead.h: asks the system for the pages of coming rows. The future is known, so the disk can work on it early.
//
// Windows of a global shuffle are asked for one by one; blocks of a local shuffle, or of none, as a whole. Data that is in
// memory already costs one question per batch or block and nothing else.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include "core/fill/filler.h"
#include "core/order/clock.h"

namespace millstream {

class ReadAhead {
 public:
  ReadAhead(const Feed& feed, const Clock& clock, std::uint64_t first_step) : feed_(feed) { follow(clock, first_step); }

  // Looks ahead from a step of another clock on, which begins behind the steps of the one before. What was looked at then is
  // not looked at again: other steps cut the same samples. Only for who fills alone.
  void follow(const Clock& clock, std::uint64_t first_step) {
    clock_ = clock;
    next_step_ = looked_at_ > clock.start ? std::max(first_step, clock.number_of(looked_at_)) : first_step;
    const auto rows = std::max<std::uint64_t>(clock.rank_rows, 1);
    steps_ahead_ = std::clamp<std::uint64_t>(rows_ahead / rows, 2, 64);
    steps_per_question_ = std::max<std::uint64_t>(1, rows_per_question / rows);
  }

  // Called by the thread that starts to fill `step`; one thread at a time does the work, the others continue. An error in
  // the data of a later step is reported when that step is filled, not here.
  void before(std::uint64_t step, const std::atomic<bool>& stopping) {
    if (std::ranges::any_of(feed_.sources(), &FeedSource::whole_documents)) return;  // only an index knows where they lie
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    next_step_ = std::max(next_step_, step + 1);
    for (; next_step_ <= step + steps_ahead_ && !stopping.load(std::memory_order_relaxed); ++next_step_) {
      try {
        look_at(next_step_, stopping);
      } catch (const std::exception&) {
        continue;
      }
    }
  }

  // The next steps came from the disk although they looked warm.
  void missed() { cold_steps_.store(cold_memory, std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t rows_ahead = 2048;
  static constexpr std::uint64_t rows_per_question = 512;
  static constexpr std::uintptr_t wish_bytes = 128 << 10;
  static constexpr std::uint64_t blocks_ahead = 8;  // of a store that is read in file order
  static constexpr int cold_memory = 64;            // steps to go on asking for after something was not in memory

  void look_at(std::uint64_t number, const std::atomic<bool>& stopping) {
    const auto step = clock_.step(number);
    looked_at_ = step.position + step.rows;
    const bool ask = cold_steps_.load(std::memory_order_relaxed) > 0;
    if (step.own == 0 || (!ask && step.position < next_question_)) return;
    next_question_ = step.position + steps_per_question_ * clock_.global_rows;
    feed_.plan().rows(step.first, step.own, scratch_);
    if (ask) cold_steps_.fetch_sub(1, std::memory_order_relaxed);
    for (const auto& row : scratch_.rows) {
      if (stopping.load(std::memory_order_relaxed)) return;
      if (!one_by_one(row.source)) continue;
      if (!want(row.source, row.sample, 1, ask)) missed();
      if (cold_steps_.load(std::memory_order_relaxed) == 0) break;  // the first row answers for its batch
    }
    look_at_blocks(step);
  }

  // Neighbours in file order or local order are better asked for together. Windows have an order of their own, and what lies
  // between their rows may not be there.
  bool one_by_one(std::uint32_t source) const {
    const auto& order = feed_.plan().courses()[source].order;
    return feed_.plan().mixed() || order.shuffle == Shuffle::global || order.windows;
  }

  // In file order or local order, ask for the block that stands a group (or a few blocks) ahead.
  void look_at_blocks(const Step& step) {
    const auto& course = feed_.plan().courses()[0];
    if (one_by_one(0) || course.split != 1) return;
    const auto& spec = course.order;
    const bool begun = step.first < course.left();
    const auto epoch = course.epoch + (begun ? 0 : 1 + (step.first - course.left()) / spec.samples);
    const auto position = begun ? step.first + course.offset : (step.first - course.left()) % spec.samples;
    if (!order_ || order_->epoch() != epoch) {
      order_.emplace(spec, epoch);
      next_slot_ = position / spec.block_samples;
    }
    const auto distance = spec.shuffle == Shuffle::local ? spec.group_blocks : blocks_ahead;
    const auto blocks = (spec.samples - 1) / spec.block_samples + 1;
    const auto stop = std::min(blocks, position / spec.block_samples + distance + 1);
    for (; next_slot_ < stop; ++next_slot_)
      want(0, order_->block_at(next_slot_) * spec.block_samples, spec.block_samples, false);
  }

  // Asks for the pages of some samples unless their middle page is in memory (or `anyway`); tells whether it was.
  bool want(std::uint32_t source, std::uint64_t sample, std::uint64_t samples, bool anyway) {
    auto& shards = *feed_.sources()[source].shards;
    const auto length = feed_.shape().length;
    const auto token = sample * length;
    if (token >= shards.tokens()) return true;
    const auto number = shards.shard_of_token(token);
    const auto facts = shards.row(number);
    Shards::Reader reader(shards);
    const auto& shard = reader.at(number);
    const auto start = token - facts.first_token;
    if (start >= facts.tokens) return true;
    const auto count = std::min(samples * length + 1, facts.tokens - start);
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    std::span<const std::byte> bytes;
    if (!survives([&] { bytes = shard.bytes_of(start, count); }) || bytes.empty()) return true;
    const auto from = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
    const auto to = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size());
    // The middle answers for the whole: the first page may be in memory because of its neighbour.
    auto* const middle = reinterpret_cast<void*>((from + to) / 2 / page * page);
    unsigned char resident = 1;
    anyway = anyway || (samples > 1 && !shard.token_file->tells_residency());  // rows show by their faults that they are cold
    if (!anyway && ::mincore(middle, 1, &resident) == 0 && (resident & 1) != 0) return true;
    // The system cuts a wish to its read-ahead size, so large ones are made in pieces.
    for (auto piece = from; piece < to; piece += wish_bytes)
      ::madvise(reinterpret_cast<void*>(piece), std::min<std::uintptr_t>(wish_bytes, to - piece), MADV_WILLNEED);
    return anyway;
  }

  const Feed& feed_;
  Clock clock_;
  std::mutex mutex_;
  std::uint64_t next_step_ = 0;
  std::uint64_t looked_at_ = 0;      // positions of the plan before this one
  std::uint64_t next_question_ = 0;  // the position of it
  std::uint64_t steps_ahead_ = 1, steps_per_question_ = 1;
  std::atomic<int> cold_steps_ = 0;
  PlanScratch scratch_;
  std::optional<EpochOrder> order_;
  std::uint64_t next_slot_ = 0;  // of that order
};

}  // namespace millstream
