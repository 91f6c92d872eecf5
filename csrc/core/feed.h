// core/feed.h: step -> batch. A feed joins a plan with the stores it speaks of; it has no state of its own, so any number
// of threads fill batches of one feed side by side, each with its own scratch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/plan.h"
#include "core/rows.h"
#include "core/shards.h"

namespace millstream {

struct FeedSource {
  std::shared_ptr<Shards> shards;
  std::uint32_t id_limit = 0;  // 0: ids were checked when the store was opened
};

struct FeedScratch {
  PlanScratch plan;
  RowScratch row;
};

class Feed {
 public:
  Feed(std::vector<FeedSource> sources, Plan plan, const FeedShape& shape)
      : sources_(std::move(sources)), plan_(std::move(plan)), shape_(shape) {
    if (sources_.size() != plan_.courses().size()) throw std::invalid_argument("a feed needs one store per course");
    if (std::ranges::any_of(sources_, [](const auto& source) { return source.shards == nullptr; }))
      throw std::invalid_argument("a feed needs its stores open");
    if (shape_.id_bytes != 4 && shape_.id_bytes != 8) throw std::invalid_argument("ids have 4 or 8 bytes");
    if (shape_.length == 0 || shape_.length > (std::size_t{1} << 30)) throw std::invalid_argument("rows of 1 to 2^30 tokens");
  }

  const FeedShape& shape() const { return shape_; }
  const Plan& plan() const { return plan_; }
  const std::vector<FeedSource>& sources() const { return sources_; }

  BatchLayout layout(std::size_t rows) const {
    constexpr std::size_t most_tokens = (std::size_t{1} << 31) - 1;  // segment starts are 32 bits wide
    if (rows > most_tokens / shape_.length) throw std::invalid_argument("a batch has less than 2^31 tokens");
    return {rows, shape_.length, shape_.id_bytes, shape_.documents == Documents::isolate};
  }

  // Fills `batch` with `own` rows from position `first` of the phase on; its remaining rows become filler. Returns early,
  // with a batch that nobody may use, when `stopping` is set.
  void fill(std::uint64_t first, std::uint64_t own, Batch& batch, FeedScratch& scratch,
            const std::atomic<bool>& stopping) const {
    if (own > batch.layout().rows) throw std::invalid_argument("more rows than the batch has room for");
    plan_.rows(first, own, scratch.plan);
    if (shape_.id_bytes == 8) fill_rows<std::int64_t>(batch, scratch, stopping);
    else fill_rows<std::int32_t>(batch, scratch, stopping);
  }

 private:
  template <typename Out>
  void fill_rows(Batch& batch, FeedScratch& scratch, const std::atomic<bool>& stopping) const {
    const auto layout = batch.layout();
    const auto& rows = scratch.plan.rows;
    const auto column = layout.rows * layout.length;
    BatchFacts facts{.rows = rows.size(), .filler = layout.rows - rows.size()};
    SegmentStarts starts{batch.starts()};
    auto* const kept = layout.isolated ? &starts : nullptr;
    const auto stopped = [&] { return stopping.load(std::memory_order_relaxed); };
    const auto space_of = [&](std::size_t number) {
      auto* const inputs = reinterpret_cast<Out*>(batch.data()) + number * layout.length;
      return RowSpace<Out>{inputs, inputs + column, layout.isolated ? inputs + 2 * column : nullptr};
    };
    std::size_t number = 0;
    while (number < rows.size() && !stopped()) {  // one store at a time: a writer holds a lock
      const auto source = rows[number].source;
      RowWriter writer(*sources_[source].shards, shape_, sources_[source].id_limit, scratch.row);
      for (; number < rows.size() && rows[number].source == source && !stopped(); ++number) {
        const auto tokens =
            writer.write(rows[number].sample, space_of(number), number * layout.length, kept, facts.cut);
        batch.sources()[number] = static_cast<std::int32_t>(source);
        batch.lengths()[number] = static_cast<std::int32_t>(tokens);
        facts.tokens += tokens;
      }
    }
    for (; number < layout.rows && !stopped(); ++number) {  // filler
      const RowShape shape{shape_.length, shape_.labels, shape_.pad_id};
      assemble_row<std::uint16_t, Out>({}, shape, space_of(number), number * layout.length, kept);
      batch.sources()[number] = -1;
      batch.lengths()[number] = 0;
    }
    if (layout.isolated) starts.starts[starts.count] = static_cast<std::int32_t>(column);
    facts.segments = starts.count;
    facts.longest_segment = starts.longest;
    batch.facts = facts;
  }

  std::vector<FeedSource> sources_;
  Plan plan_;
  FeedShape shape_;
};

}  // namespace millstream
