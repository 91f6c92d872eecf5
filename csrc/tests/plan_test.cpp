// tests/plan_test.cpp: however a phase is cut into batches, its rows are the same, and each source gives each sample of an
// epoch once.
#include "core/order/plan.h"

#include <algorithm>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

std::vector<RowPlan> rows_of(const Plan& plan, std::uint64_t first, std::uint64_t count) {
  PlanScratch scratch;
  plan.rows(first, count, scratch);
  return scratch.rows;
}

bool equal(const RowPlan& a, const RowPlan& b) { return a.source == b.source && a.sample == b.sample; }

// The sample that a course uses for the `number`-th time, worked out by hand.
std::uint64_t sample_of(const Course& course, std::uint64_t number) {
  if (number < course.left()) {
    const auto position = course.offset + number;
    return EpochOrder(course.begun, course.epoch).at(position / course.split) * course.split + position % course.split;
  }
  const auto later = number - course.left();
  return EpochOrder(course.order, course.epoch + 1 + later / course.order.samples).at(later % course.order.samples);
}

OrderSpec some_order(Random& random, std::uint64_t samples) {
  return {static_cast<Shuffle>(random.below(3)), samples, random.word(), random.between(1, 9), random.between(1, 4)};
}

Course some_course(Random& random) {
  Course course;
  course.split = random.chance(2) ? 1 : random.between(2, 4);
  course.begun = some_order(random, random.between(1, 40));
  course.order = some_order(random, course.begun.samples * course.split + (random.chance(3) ? random.below(course.split) : 0));
  course.epoch = random.below(5);
  course.offset = random.below(course.begun.samples * course.split + 1);
  return course;
}

Plan some_plan(Random& random) {
  std::vector<Course> courses;
  for (auto count = random.chance(2) ? 1 : random.between(2, 5); count > 0; --count) courses.push_back(some_course(random));
  if (courses.size() == 1 && random.chance(2)) return {courses, std::nullopt};
  std::vector<std::uint64_t> quotas;
  for (std::size_t i = 0; i < courses.size(); ++i) quotas.push_back(random.between(1, 12));
  return {courses, Mixture(quotas, random.word())};
}

void rows_do_not_depend_on_the_cuts() {
  Random random;
  for (int round = 0; round < 400; ++round) {
    const auto plan = some_plan(random);
    const auto whole = rows_of(plan, 0, 200);
    PlanScratch scratch;  // kept from cut to cut, as threads do; cuts come in any order
    for (int cut = 0; cut < 12; ++cut) {
      const auto first = random.below(200), count = random.below(201 - first);
      plan.rows(first, count, scratch);
      CHECK(scratch.rows.size() == count);
      for (std::uint64_t i = 0; i < count; ++i) CHECK(equal(scratch.rows[i], whole[first + i]));
    }
  }
}

void rows_are_the_ones_worked_out_by_hand() {
  Random random{5};
  for (int round = 0; round < 300; ++round) {
    const auto plan = some_plan(random);
    std::vector<std::uint64_t> uses(plan.courses().size());
    const auto rows = rows_of(plan, 0, 150);
    for (const auto& row : rows) CHECK(row.sample == sample_of(plan.courses()[row.source], uses[row.source]++));
  }
}

void uses_and_positions_invert_each_other() {
  Random random{7};
  for (int round = 0; round < 200; ++round) {
    const auto plan = some_plan(random);
    std::vector<std::uint64_t> uses(plan.courses().size());
    const auto rows = rows_of(plan, 0, 120);
    for (std::uint64_t position = 0; position < rows.size(); ++position) {
      for (std::uint32_t source = 0; source < uses.size(); ++source) CHECK(plan.used(source, position) == uses[source]);
      const auto source = rows[position].source;
      CHECK(plan.position_of(source, uses[source]) == position);
      ++uses[source];
    }
  }
}

// Samples of one source from its `first`-th use on, each of [0, samples) once, in any order.
void check_complete(std::vector<std::uint64_t> samples, std::uint64_t low, std::uint64_t high) {
  std::ranges::sort(samples);
  CHECK(samples.size() == high - low);
  for (std::uint64_t i = 0; i < samples.size(); ++i) CHECK(samples[i] == low + i);
}

void an_epoch_that_was_split_is_finished_exactly_once() {
  Random random{9};
  for (int round = 0; round < 300; ++round) {
    // An epoch of `samples` samples: the first part with rows of full length, the rest cut into `split` rows each.
    const auto samples = random.between(1, 60), used = random.below(samples + 1), split = random.between(1, 5);
    const auto spec = some_order(random, samples);
    const Plan before({Course{spec, spec, 1, 3, 0}}, std::nullopt);
    auto later = spec;
    later.samples = samples * split;
    const Plan after({Course{later, spec, split, 3, used * split}}, std::nullopt);
    std::vector<std::uint64_t> pieces;
    for (const auto& row : rows_of(before, 0, used))
      for (std::uint64_t i = 0; i < split; ++i) pieces.push_back(row.sample * split + i);
    for (const auto& row : rows_of(after, 0, (samples - used) * split)) pieces.push_back(row.sample);
    check_complete(pieces, 0, samples * split);
    std::vector<std::uint64_t> next;  // and the epoch after it is whole
    for (const auto& row : rows_of(after, (samples - used) * split, samples * split)) next.push_back(row.sample);
    check_complete(next, 0, samples * split);
  }
}

void a_mixture_uses_each_sample_of_a_source_epoch_once() {
  Random random{11};
  for (int round = 0; round < 100; ++round) {
    std::vector<Course> courses;
    std::vector<std::uint64_t> quotas;
    for (auto count = random.between(1, 4); count > 0; --count) {
      const auto spec = some_order(random, random.between(1, 30));
      courses.push_back({spec, spec, 1, 0, 0});
      quotas.push_back(random.between(1, 10));
    }
    const Plan plan(courses, Mixture(quotas, random.word()));
    const auto rows = rows_of(plan, 0, 600);
    for (std::uint32_t source = 0; source < courses.size(); ++source) {
      std::vector<std::uint64_t> epoch;
      for (const auto& row : rows) {
        if (row.source != source) continue;
        epoch.push_back(row.sample);
        if (epoch.size() < courses[source].order.samples) continue;
        check_complete(epoch, 0, courses[source].order.samples);
        epoch.clear();
      }
    }
  }
}

// Going on in another plan, with other quotas, where the first one stopped: nothing is lost and nothing comes twice.
void a_change_of_quotas_loses_nothing() {
  Random random{13};
  for (int round = 0; round < 100; ++round) {
    const OrderSpec web = some_order(random, 50), code = some_order(random, 40);
    const Plan before({{web, web, 1, 0, 0}, {code, code, 1, 0, 0}}, Mixture({7, 3}, 1));
    const auto stop = random.below(50);
    const auto used_web = before.used(0, stop), used_code = before.used(1, stop);
    const Plan after({{web, web, 1, 0, used_web}, {code, code, 1, 0, used_code}}, Mixture({2, 9}, 2));
    std::vector<std::uint64_t> seen_web, seen_code;
    const auto add = [&](const std::vector<RowPlan>& rows) {
      for (const auto& row : rows) (row.source == 0 ? seen_web : seen_code).push_back(row.sample);
    };
    add(rows_of(before, 0, stop));
    add(rows_of(after, 0, 400));
    seen_web.resize(50);
    seen_code.resize(40);
    check_complete(seen_web, 0, 50);
    check_complete(seen_code, 0, 40);
  }
}

void far_positions_are_exact_and_the_end_of_all_positions_is_an_error() {
  constexpr auto end = std::uint64_t{1} << 63;
  const OrderSpec small{Shuffle::global, 1'000'003, 5, 1, 1}, huge{Shuffle::global, end, 5, 1, 1};
  const Plan plain({{small, small, 1, 0, 10}}, std::nullopt);
  const Plan mixed({{small, small, 1, 0, 10}, {huge, huge, 1, 0, 10}}, Mixture({7, 3}, 5));
  const Plan long_one({{huge, huge, 1, 0, 10}}, std::nullopt);
  for (const auto* plan : {&plain, &mixed, &long_one}) {
    const auto rows = rows_of(*plan, end - 100, 100);
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      const auto number = plan->used(rows[i].source, end - 100 + i);
      CHECK(plan->position_of(rows[i].source, number) == end - 100 + i);
      CHECK(sample_of(plan->courses()[rows[i].source], number) == rows[i].sample);
    }
    CHECK_THROWS(rows_of(*plan, end - 100, 101), std::out_of_range);
    CHECK_THROWS(rows_of(*plan, ~std::uint64_t{0} - 1, 8), std::out_of_range);
    CHECK_THROWS(plan->used(7, 0), std::out_of_range);
    CHECK_THROWS(plan->position_of(7, 0), std::out_of_range);
  }
}

void impossible_plans_are_refused() {
  const OrderSpec ten{Shuffle::global, 10, 5, 1, 1}, none{Shuffle::none, 0, 5, 1, 1};
  const OrderSpec endless{Shuffle::none, ~std::uint64_t{0}, 5, 1, 1};
  const auto plan = [](Course course) { return Plan({course}, std::nullopt); };
  CHECK_THROWS(Plan({}, std::nullopt), std::invalid_argument);
  CHECK_THROWS(Plan({{ten, ten, 1, 0, 0}}, Mixture({1, 2}, 0)), std::invalid_argument);
  CHECK_THROWS(plan({none, ten, 1, 0, 0}), std::invalid_argument);
  CHECK_THROWS(plan({ten, ten, 0, 0, 0}), std::invalid_argument);
  CHECK_THROWS(plan({ten, ten, 1, 0, 11}), std::invalid_argument);
  CHECK_THROWS(plan({endless, ten, 1, 0, 0}), std::invalid_argument);
  CHECK_THROWS(plan({ten, endless, 1, 0, 0}), std::invalid_argument);
  CHECK_THROWS(plan({ten, ten, std::uint64_t{1} << 61, 0, 0}), std::invalid_argument);  // 10 * 2^61 wraps around
  CHECK(rows_of(plan({ten, ten, 1, 0, 10}), 0, 10).size() == 10);
  CHECK(rows_of(plan({ten, none, 1, 0, 0}), 0, 0).empty());
}

}  // namespace

int main() {
  rows_do_not_depend_on_the_cuts();
  rows_are_the_ones_worked_out_by_hand();
  uses_and_positions_invert_each_other();
  an_epoch_that_was_split_is_finished_exactly_once();
  a_mixture_uses_each_sample_of_a_source_epoch_once();
  a_change_of_quotas_loses_nothing();
  far_positions_are_exact_and_the_end_of_all_positions_is_an_error();
  impossible_plans_are_refused();
}
