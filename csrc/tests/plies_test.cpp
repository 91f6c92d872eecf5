// tests/plies_test.cpp: the uses of a game give each position once in a round, at any rate.
#include "core/chess/plies.h"

#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"

using namespace millstream;

namespace {

constexpr std::uint64_t key = 5;
using Plies = std::vector<std::uint32_t>;

void a_round_gives_each_position_once() {
  for (const std::uint64_t uses : {1, 2, 3, 7, 32}) {
    for (const std::size_t length : {0, 1, 9, 200}) {
      std::vector<int> times(length, 0);
      for (std::uint64_t use = 0; use < uses; ++use) {
        for (const auto ply : plies_at_rate(key, use, length, 1.0 / static_cast<double>(uses))) ++times.at(ply);
      }
      for (const int each : times) CHECK(each == 1);
    }
  }
}

void plies_are_the_ones_that_were_pinned() {
  const std::vector<Plies> expected = {{0, 2, 3, 5, 6, 8}, {4, 7}, {1}, {1, 2, 7}, {4, 8}, {0, 3, 5, 6}, {}, {1, 3}};
  for (std::size_t use = 0; use < expected.size(); ++use) CHECK(plies_at_rate(key, use, 9, 0.3) == expected[use]);
}

void a_rate_may_be_as_small_as_it_likes() {
  for (const double rate : {1e-19, 1e-25, std::numeric_limits<double>::denorm_min()}) {
    for (const std::uint64_t use : {std::uint64_t{0}, std::uint64_t{1} << 63}) CHECK(plies_at_rate(key, use, 200, rate).empty());
  }
}

void impossible_rates_are_refused() {
  for (const double rate : {0.0, -0.5, 1.5, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS(plies_at_rate(key, 0, 9, rate), std::invalid_argument);
}

}  // namespace

int main() {
  a_round_gives_each_position_once();
  plies_are_the_ones_that_were_pinned();
  a_rate_may_be_as_small_as_it_likes();
  impossible_rates_are_refused();
}
