// tests/returns_test.cpp: scans step over what the policy did not sample, and sums see only what is masked.
#include "core/rl/returns.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool near(double found, double wanted, double tolerance = 1e-6) { return std::abs(found - wanted) <= tolerance; }

// Rollouts whose columns a test may fill as it likes.
struct Sample {
  std::vector<std::int64_t> ends;
  std::unique_ptr<bool[]> mask, done;  // a vector of bool has no data()
  std::vector<double> rewards, token_rewards, values, bootstrap, advantages, returns;
  std::size_t tokens = 0;

  explicit Sample(const std::vector<std::size_t>& lengths) {
    for (const auto length : lengths) ends.push_back(static_cast<std::int64_t>(tokens += length));
    mask = std::make_unique<bool[]>(tokens);
    done = std::make_unique<bool[]>(tokens);
    std::fill_n(mask.get(), tokens, true);
    rewards.assign(lengths.size(), 0);
    bootstrap.assign(lengths.size(), 0);
    for (auto* column : {&token_rewards, &values, &advantages, &returns}) column->assign(tokens, 0);
  }

  Mask masked() const { return {mask.get(), tokens}; }

  std::int64_t scan(double gamma, double lambda) {
    const Trajectories<double> from{ends, masked(), rewards, token_rewards, values, {done.get(), tokens}, bootstrap};
    return scan_returns<double>(from, gamma, lambda, advantages, returns);
  }
};

void the_known_advantages_come_out() {
  Sample one({4});
  one.rewards = {1};
  one.values = {.5, .6, .7, .8};
  CHECK(one.scan(.99, .95) == -1);
  const std::array wanted{.429226, .356434, .2801, .2};
  for (std::size_t token = 0; token < 4; ++token) {
    CHECK(near(one.advantages[token], wanted[token]));
    CHECK(near(one.returns[token], wanted[token] + one.values[token]));
  }
}

void a_cut_rollout_goes_on_with_what_would_have_followed() {
  Sample one({4});
  one.rewards = {1};
  one.values = {.5, .6, .7, .8};
  one.bootstrap = {.9};
  one.scan(.99, .95);
  CHECK(near(one.advantages[3], 1.091) && near(one.advantages[0], 1.170458));
}

void tokens_of_tools_are_stepped_over() {
  Sample one({5});
  one.rewards = {1};
  one.values = {.5, .6, nan, 7, .8};
  one.token_rewards = {0, 0, nan, 9, 0};
  one.mask[2] = one.mask[3] = false;
  CHECK(one.scan(.99, .95) == -1);
  CHECK(near(one.advantages[0], .451484) && near(one.advantages[1], .3801) && near(one.advantages[4], .2));
  CHECK(one.advantages[2] == 0 && one.returns[3] == 0);
}

void nothing_crosses_the_end_of_an_episode() {
  Sample one({6});
  one.token_rewards = {1, 0, 2, 0, 0, 3};
  one.values = {.1, .2, .3, .4, .5, .6};
  one.done[2] = one.done[5] = true;
  one.bootstrap = {100};
  one.scan(.9, .8);
  const std::array wanted{2.01168, 1.294, 1.7, 1.32296, 1.768, 2.4};
  for (std::size_t token = 0; token < 6; ++token) CHECK(near(one.advantages[token], wanted[token]));
}

void an_unscored_rollout_teaches_nothing() {
  Sample two({2, 2});
  two.rewards = {nan, 1};
  two.values = {.5, .6, .7, .8};
  CHECK(two.scan(1, 1) == -1);
  CHECK(two.advantages[0] == 0 && two.returns[0] == .5 && two.advantages[3] != 0);
}

void a_number_that_is_none_is_found() {
  Sample three({2, 0, 3});
  three.values[3] = std::numeric_limits<double>::infinity();
  CHECK(three.scan(1, 1) == 2);
}

void rollouts_do_not_touch_each_other() {
  Random random;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> lengths(random.between(1, 6));
    for (auto& length : lengths) length = random.between(0, 9);
    Sample all(lengths);
    const auto draw = [&] { return static_cast<double>(random.between(0, 1000)) / 500 - 1; };
    for (auto* column : {&all.rewards, &all.token_rewards, &all.values, &all.bootstrap})
      for (auto& value : *column) value = draw();
    for (std::size_t token = 0; token < all.tokens; ++token) all.mask[token] = random.between(0, 3) > 0;
    all.scan(.9, .7);
    each_rollout(all.ends, [&](std::size_t row, std::size_t start, std::size_t stop) {
      Sample alone({stop - start});
      alone.rewards = {all.rewards[row]};
      alone.bootstrap = {all.bootstrap[row]};
      for (auto token = start; token < stop; ++token) {
        alone.mask[token - start] = all.mask[token];
        alone.values[token - start] = all.values[token];
        alone.token_rewards[token - start] = all.token_rewards[token];
      }
      alone.scan(.9, .7);
      for (auto token = start; token < stop; ++token) CHECK(alone.advantages[token - start] == all.advantages[token]);
    });
  }
}

void sums_and_moments_see_what_is_masked() {
  Sample three({2, 0, 3});
  three.mask[4] = false;
  const std::vector<float> values{1, 2, 3, 4, 100};
  std::vector<std::int64_t> counts(3);
  std::vector<double> sums(3);
  masked_counts(three.masked(), three.ends, counts);
  masked_sums<float>(values, three.masked(), three.ends, sums);
  CHECK((counts == std::vector<std::int64_t>{2, 0, 2}) && (sums == std::vector<double>{3, 0, 7}));

  const auto moments = masked_moments<float>(values, three.masked());
  CHECK(moments.count == 4 && moments.mean == 2.5 && moments.squares == 5);
  std::vector<float> out(5);
  rescale<float>(values, three.masked(), 2.5, 2, 1, out);
  CHECK((out == std::vector<float>{-2, 0, 2, 4, 0}));
  spread_rows<float>(std::vector<double>{7, 8, 9}, three.masked(), three.ends, out);
  CHECK((out == std::vector<float>{7, 7, 9, 9, 0}));
}

void what_does_not_fit_is_refused() {
  Sample two({2, 3});
  std::vector<std::int64_t> counts(2);
  CHECK_THROWS(masked_counts(two.masked(), std::vector<std::int64_t>{3, 2}, counts), std::invalid_argument);
  CHECK_THROWS(masked_counts(two.masked(), std::vector<std::int64_t>{2, 6}, counts), std::invalid_argument);
  CHECK_THROWS(masked_counts(two.masked(), std::vector<std::int64_t>{-1, 5}, counts), std::invalid_argument);
  two.values.pop_back();
  CHECK_THROWS(two.scan(1, 1), std::invalid_argument);
}

}  // namespace

int main() {
  the_known_advantages_come_out();
  a_cut_rollout_goes_on_with_what_would_have_followed();
  tokens_of_tools_are_stepped_over();
  nothing_crosses_the_end_of_an_episode();
  an_unscored_rollout_teaches_nothing();
  a_number_that_is_none_is_found();
  rollouts_do_not_touch_each_other();
  sums_and_moments_see_what_is_masked();
  what_does_not_fit_is_refused();
}
