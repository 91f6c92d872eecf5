// tests/clock_test.cpp: the steps of a clock cover each epoch exactly once, and the ranks share out each step.
#include "core/order/clock.h"

#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

struct Expected {
  std::uint64_t epoch, offset, position, rows;
};

// The steps of the first epochs, counted off one by one.
std::vector<Expected> counted(const Clock& clock, std::uint64_t epochs) {
  std::vector<Expected> steps;
  std::uint64_t position = 0;
  for (std::uint64_t epoch = 0; epoch <= epochs; ++epoch) {
    const auto samples = epoch == 0 ? clock.left : clock.size;
    for (std::uint64_t offset = 0; offset < samples; offset += clock.global_rows) {
      const auto rows = samples - offset < clock.global_rows ? samples - offset : clock.global_rows;
      if (clock.drop_last && rows < clock.global_rows) break;
      steps.push_back({epoch, offset, position + offset, rows});
    }
    position += samples;
  }
  return steps;
}

// All ranks of one run with `ranks` ranks of `rows` rows each.
std::vector<Clock> ranks_of(std::uint64_t left, std::uint64_t size, std::uint64_t ranks, std::uint64_t rows, bool drop_last) {
  std::vector<Clock> clocks;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) clocks.push_back({left, size, ranks * rows, rank * rows, rows, drop_last});
  return clocks;
}

void check_run(const std::vector<Clock>& ranks) {
  const auto& clock = ranks[0];
  clock.check();
  const auto steps = counted(clock, 3);
  std::uint64_t next = 0;  // the first position that no step has used
  for (std::uint64_t number = 0; number < steps.size(); ++number) {
    const auto& expected = steps[number];
    const auto step = clock.step(number);
    CHECK(step.epoch == expected.epoch && step.offset == expected.offset);
    CHECK(step.position == expected.position && step.rows == expected.rows);
    CHECK(clock.drop_last || step.position == next);
    next = step.position + step.rows;
    auto first = step.position;
    for (const auto& rank : ranks) {  // neighbours, in the order of the ranks, and nothing left over
      const auto own = rank.step(number);
      CHECK(own.first == first && own.own <= rank.rank_rows && own.rows == step.rows);
      first += own.own;
    }
    CHECK(first == next);
    for (auto position = step.position; position < next; ++position) CHECK(clock.number_of(position) == number);
  }
  CHECK(clock.steps_in(clock.left) + 3 * clock.steps_in(clock.size) == steps.size());
}

void steps_cover_each_epoch_once_and_ranks_share_them_out() {
  for (std::uint64_t left = 0; left <= 13; ++left)
    for (std::uint64_t size = 1; size <= 13; ++size)
      for (std::uint64_t ranks = 1; ranks <= 4; ++ranks)
        for (std::uint64_t rows = 1; rows <= 4; ++rows)
          for (const bool drop_last : {false, true}) {
            if (drop_last && size < ranks * rows) continue;
            check_run(ranks_of(left, size, ranks, rows, drop_last));
          }
}

// A left-out position belongs to the first step behind it, so that a run may be continued there.
void a_position_that_is_left_out_leads_to_the_next_step() {
  const Clock clock{5, 7, 3, 0, 3, true};
  const std::vector<std::uint64_t> expected = {0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5};
  for (std::size_t position = 0; position < expected.size(); ++position) CHECK(clock.number_of(position) == expected[position]);
}

void random_runs_hold_too() {
  Random random;
  for (int round = 0; round < 2000; ++round) {
    const auto ranks = random.between(1, 9), rows = random.between(1, 9);
    const bool drop_last = random.chance(2);
    const auto size = random.between(drop_last ? ranks * rows : 1, 300);
    check_run(ranks_of(random.below(301), size, ranks, rows, drop_last));
  }
}

// A clock that begins at a position of the phase counts the same steps from there on.
void a_clock_that_begins_elsewhere_only_moves_positions() {
  for (const bool drop_last : {false, true}) {
    const Clock plain{11, 13, 4, 2, 2, drop_last}, moved{11, 13, 4, 2, 2, drop_last, 1000};
    for (std::uint64_t number = 0; number < 40; ++number) {
      const auto here = plain.step(number), there = moved.step(number);
      CHECK(there.epoch == here.epoch && there.offset == here.offset && there.rows == here.rows && there.own == here.own);
      CHECK(there.position == here.position + 1000 && there.first == here.first + 1000);
      CHECK(moved.number_of(there.position) == number);
    }
  }
  const auto last = std::uint64_t{1} << 63;
  CHECK_THROWS((Clock{10, 10, 1, 0, 1, false, last - 5}.step(100)), std::out_of_range);
  CHECK_THROWS((Clock{10, 10, 1, 0, 1, false, last + 1}.check()), std::invalid_argument);
}

// A clock that is resized gives the positions in order from where the step begins, and ends epochs where the old one does.
void a_resized_clock_begins_where_the_step_does() {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    const bool drop_last = random.chance(2);
    const auto size = random.between(20, 60), rows = random.between(1, 9), fresh = random.between(1, 9);
    const Clock clock{random.below(size + 1), size, rows, 0, rows, drop_last, random.below(1000)};
    const auto number = random.below(30);
    const auto [resized, begun] = clock.resized(number, fresh, 1, 1);
    CHECK(begun.position == clock.step(number).position && resized.start == begun.position);
    const auto end = begun.position + resized.left;  // of the epoch
    const auto whole = begun.epoch == 0 ? clock.left : clock.size;
    CHECK(end == begun.position - begun.offset + whole);
    CHECK(resized.step(resized.steps_in(resized.left)).position == end);
    if (resized.steps_in(resized.left) > 0) {
      CHECK(resized.step(0).position == begun.position && resized.step(0).rows == std::min(fresh, resized.left));
    }
  }
}

void far_steps_are_exact() {
  constexpr auto far = std::uint64_t{1} << 62;
  const Clock clock{1000, 1'000'003, 1024, 512, 512, false};
  const auto number = clock.number_of(far);
  const auto step = clock.step(number);
  CHECK(step.position <= far && far < step.position + step.rows);
  CHECK(step.position == 1000 + (step.epoch - 1) * 1'000'003 + step.offset && step.offset % 1024 == 0);
}

void a_step_behind_the_last_position_is_refused() {
  const Clock clock{1000, 1'000'003, 1024, 512, 512, false};
  CHECK_THROWS(clock.step(~std::uint64_t{0}), std::out_of_range);
  CHECK_THROWS(clock.step(std::uint64_t{1} << 54), std::out_of_range);
  CHECK_THROWS((Clock{0, std::uint64_t{1} << 63, 1, 0, 1, false}.step(std::uint64_t{1} << 63)), std::out_of_range);
  CHECK_THROWS((Clock{1, ~std::uint64_t{0}, 1, 0, 1, false}.step(std::uint64_t{1} << 63)), std::out_of_range);
  CHECK_THROWS((Clock{~std::uint64_t{0}, 1, 1, 0, 1, false}.step(std::uint64_t{1} << 63)), std::out_of_range);
  CHECK_THROWS((Clock{~std::uint64_t{0}, 1, ~std::uint64_t{0}, 0, 1, false}.step(0)), std::out_of_range);
  CHECK((Clock{0, (std::uint64_t{1} << 63) - 1, 1, 0, 1, false}.step((std::uint64_t{1} << 63) - 2).position ==
         (std::uint64_t{1} << 63) - 2));
}

void impossible_clocks_are_refused() {
  CHECK_THROWS((Clock{1, 0, 1, 0, 1, false}.check()), std::invalid_argument);
  CHECK_THROWS((Clock{1, 1, 0, 0, 1, false}.check()), std::invalid_argument);
  CHECK_THROWS((Clock{9, 7, 8, 0, 8, true}.check()), std::invalid_argument);
}

}  // namespace

int main() {
  steps_cover_each_epoch_once_and_ranks_share_them_out();
  a_position_that_is_left_out_leads_to_the_next_step();
  random_runs_hold_too();
  a_clock_that_begins_elsewhere_only_moves_positions();
  a_resized_clock_begins_where_the_step_does();
  far_steps_are_exact();
  a_step_behind_the_last_position_is_refused();
  impossible_clocks_are_refused();
}
