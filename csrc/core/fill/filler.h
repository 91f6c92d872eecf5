// core/fill/filler.h: positions of a phase -> batch. A feed joins a plan with the stores it speaks of.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/fill/gather.h"
#include "core/order/plan.h"

namespace millstream {

struct FeedScratch {
  PlanScratch plan;
  RowScratch row;
};

class Feed {
 public:
  Feed(std::vector<FeedSource> sources, Plan plan, const FeedShape& shape)
      : gather_(std::move(sources), shape), plan_(std::move(plan)) {
    if (this->sources().size() != plan_.courses().size()) throw std::invalid_argument("a feed needs one store per course");
  }

  const FeedShape& shape() const { return gather_.shape(); }
  const Plan& plan() const { return plan_; }
  const std::vector<FeedSource>& sources() const { return gather_.sources(); }

  BatchLayout layout(std::size_t samples) const { return gather_.layout(samples); }

  // What a FeedScratch may grow to when batches of so many samples are filled.
  std::size_t scratch_bytes(std::size_t samples) const { return plan_.scratch_bytes(samples) + gather_.scratch_bytes(samples); }

  // Adds up what the targets of `count` samples from position `first` on weigh.
  void weigh(std::uint64_t first, std::uint64_t count, StepWeight& weight, FeedScratch& scratch,
             const std::atomic<bool>& stopping) const {
    plan_.rows(first, count, scratch.plan);
    gather_.weigh(scratch.plan.rows, weight, scratch.row, stopping);
  }

  // Fills `batch` with `own` samples from position `first` of the phase on, and weighs them if asked to.
  void fill(std::uint64_t first, std::uint64_t own, Batch& batch, FeedScratch& scratch,
            const std::atomic<bool>& stopping, bool weighing = false) const {
    plan_.rows(first, own, scratch.plan);
    gather_.fill(scratch.plan.rows, batch, scratch.row, stopping, weighing);
  }

 private:
  Gather gather_;
  Plan plan_;
};

}  // namespace millstream
