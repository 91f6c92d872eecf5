// core/order/plan.h: position in a phase -> sample of a source. Pure arithmetic over the orders; no data is touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/order/mix.h"
#include "core/order/order.h"

namespace millstream {

// How a phase goes through one source. The epoch the source was in when the phase began continues in the order it had
// then, in samples that may since have become shorter by the factor `split`; later epochs follow `order`.
struct Course {
  OrderSpec order;
  OrderSpec begun;
  std::uint64_t split = 1;
  std::uint64_t epoch = 0;
  std::uint64_t offset = 0;  // samples of the begun epoch, in their present length, that earlier phases used

  std::uint64_t left() const { return begun.samples * split - offset; }
};

struct RowPlan {
  std::uint32_t source;
  std::uint64_t sample;
};

// What a thread keeps between plans.
struct PlanScratch {
  struct Orders {
    std::optional<EpochOrder> begun, later;
  };
  std::vector<Orders> orders;
  std::vector<Mixture::Place> table, places;
  std::uint64_t table_number = ~0ULL;
  std::vector<std::uint64_t> positions, samples;
  std::vector<std::size_t> homes;
  std::vector<RowPlan> rows;
};

class Plan {
 public:
  // The phase begins at place `start` of the mixture: a change that leaves the mixture as it is leaves its places too.
  Plan(std::vector<Course> courses, std::optional<Mixture> mixture, std::uint64_t start = 0)
      : courses_(std::move(courses)), mixture_(std::move(mixture)), start_(start) {
    if (start > most_positions) throw std::invalid_argument("a mixture begins behind 2^63 places");
    if (courses_.empty()) throw std::invalid_argument("a plan needs a source");
    if (mixture_ && mixture_->sources() != courses_.size())
      throw std::invalid_argument("a mixture needs one quota per source");
    for (const auto& course : courses_) check(course);
    for (std::uint32_t source = 0; mixture_ && source < courses_.size(); ++source)
      used_before_.push_back(used_in_all(source, start_));
  }

  const std::vector<Course>& courses() const { return courses_; }

  // What a PlanScratch may grow to when `count` rows are planned at a time, and what making a table takes meanwhile.
  std::size_t scratch_bytes(std::size_t count) const {
    constexpr auto per_row = sizeof(Mixture::Place) + 2 * sizeof(std::uint64_t) + sizeof(std::size_t) + sizeof(RowPlan);
    const auto tables = mixture_ ? mixture_->places() * (2 * sizeof(Mixture::Place) + sizeof(std::uint32_t)) : 0;
    std::size_t windows = 0;
    for (const auto& course : courses_)
      for (const auto* order : {&course.order, &course.begun})
        if (order->windows) windows += sizeof(WindowOrder) + WindowOrder::bytes(*order->windows);
    return courses_.size() * sizeof(PlanScratch::Orders) + count * per_row + tables + windows;
  }

  bool mixed() const { return mixture_.has_value(); }

  // Fills scratch.rows for `count` positions from `first` on.
  void rows(std::uint64_t first, std::uint64_t count, PlanScratch& scratch) const {
    if (first > most_positions - start_ || count > most_positions - start_ - first)
      throw std::out_of_range("a position over 2^63 was asked for");
    scratch.orders.resize(courses_.size());
    scratch.rows.resize(count);
    scratch.homes.clear();
    scratch.positions.clear();
    scratch.positions.reserve(count);
    if (!mixture_) {
      for (std::uint64_t i = 0; i < count; ++i) scratch.positions.push_back(first + i);
      return order_rows(0, scratch);
    }
    scratch.homes.reserve(count);
    scratch.places.reserve(count);
    scratch.places.clear();  // all at once: source by source, the tables of a stretch of several blocks would be made again
    for (std::uint64_t i = 0; i < count; ++i) scratch.places.push_back(place_at(start_ + first + i, scratch));
    for (std::uint32_t source = 0; source < courses_.size(); ++source) {
      scratch.homes.clear();
      scratch.positions.clear();
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto& place = scratch.places[i];
        if (place.source != source) continue;
        const auto uses = (start_ + first + i) / mixture_->places() * mixture_->quota(source) + place.rank;
        scratch.positions.push_back(uses - used_before_[source]);
        scratch.homes.push_back(i);
      }
      order_rows(source, scratch);
    }
  }

  // How many of the first `position` positions of the phase belong to `source`.
  std::uint64_t used(std::uint32_t source, std::uint64_t position) const {
    check(source);
    return mixture_ ? used_in_all(source, start_ + position) - used_before_[source] : position;
  }

  // The position of the phase at which `source` is used for the `number`-th time (from 0).
  std::uint64_t position_of(std::uint32_t source, std::uint64_t number) const {
    check(source);
    if (!mixture_) return number;
    number += used_before_[source];
    const auto block = number / mixture_->quota(source);
    const auto rank = number % mixture_->quota(source);
    const auto table = mixture_->block(block);
    const auto place = std::ranges::find_if(
        table, [&](const Mixture::Place& candidate) { return candidate.source == source && candidate.rank == rank; });
    return block * mixture_->places() + static_cast<std::uint64_t>(place - table.begin()) - start_;
  }

 private:
  // How many of the first `position` places of the mixture belong to `source`.
  std::uint64_t used_in_all(std::uint32_t source, std::uint64_t position) const {
    const auto whole = position / mixture_->places() * mixture_->quota(source);
    const auto table = mixture_->block(position / mixture_->places());
    const auto rest = std::span(table).first(position % mixture_->places());
    return whole + static_cast<std::uint64_t>(std::ranges::count(rest, source, &Mixture::Place::source));
  }

  static void check(const Course& course) {
    if (course.order.samples == 0 || course.order.samples > most_positions || course.split == 0 ||
        course.begun.samples > most_positions / course.split)
      throw std::invalid_argument("an epoch of a source has 1 to 2^63 samples");
    if (course.offset > course.begun.samples * course.split)
      throw std::invalid_argument("a source begins behind the end of its epoch");
  }

  void check(std::uint32_t source) const {
    if (source >= courses_.size()) throw std::out_of_range("a plan has no source " + std::to_string(source));
  }

  const Mixture::Place& place_at(std::uint64_t position, PlanScratch& scratch) const {
    const auto number = position / mixture_->places();
    if (scratch.table_number != number) {
      scratch.table = mixture_->block(number);
      scratch.table_number = number;
    }
    return scratch.table[position % mixture_->places()];
  }

  // Turns scratch.positions of one source (uses since the phase began, rising) into samples, an epoch at a time.
  void order_rows(std::uint32_t source, PlanScratch& scratch) const {
    auto& positions = scratch.positions;
    scratch.samples.resize(positions.size());
    for (std::size_t done = 0; done < positions.size();) done = order_epoch(source, done, scratch);
    for (std::size_t i = 0; i < positions.size(); ++i)
      scratch.rows[scratch.homes.empty() ? i : scratch.homes[i]] = {source, scratch.samples[i]};
  }

  // Orders those positions from `done` on that lie in one epoch; returns where the next epoch starts.
  std::size_t order_epoch(std::uint32_t source, std::size_t done, PlanScratch& scratch) const {
    const auto& course = courses_[source];
    auto& orders = scratch.orders[source];
    const auto positions = std::span(scratch.positions).subspan(done);
    const auto left = course.left();
    const bool begun = positions[0] < left;
    const auto passed = begun ? 0 : (positions[0] - left) / course.order.samples;
    const auto end = begun ? left : left + (passed + 1) * course.order.samples;
    const auto count = static_cast<std::size_t>(std::ranges::lower_bound(positions, end) - positions.begin());
    const auto in = positions.first(count);
    const auto out = std::span(scratch.samples).subspan(done, count);
    if (begun) {
      if (!orders.begun) orders.begun.emplace(course.begun, course.epoch);
      for (auto& position : in) position += course.offset;
      finish_begun(course, *orders.begun, in, out);
    } else {
      const auto epoch = course.epoch + 1 + passed;
      if (!orders.later || orders.later->epoch() != epoch) orders.later.emplace(course.order, epoch);
      for (auto& position : in) position -= end - course.order.samples;
      orders.later->at(in, out);
    }
    return done + count;
  }

  static void finish_begun(const Course& course, EpochOrder& order, std::span<const std::uint64_t> positions,
                           std::span<std::uint64_t> out) {
    if (course.split == 1) return order.at(positions, out);
    for (std::size_t i = 0; i < positions.size(); ++i)
      out[i] = order.at(positions[i] / course.split) * course.split + positions[i] % course.split;
  }

  std::vector<Course> courses_;
  std::optional<Mixture> mixture_;
  std::uint64_t start_ = 0;
  std::vector<std::uint64_t> used_before_;  // by each source, before the phase
};

}  // namespace millstream
