// tests/balance_test.cpp: parts of about equal cost, against what Karmarkar and Karp's method is known to find.
#include "core/order/balance.h"

#include "check.h"
#include "random.h"

using namespace millstream;
using Costs = std::vector<std::int64_t>;

namespace {

struct Found {
  Costs part_of, sums, sizes;
};

Found found(const Costs& costs, std::size_t parts, bool equal_sizes, bool refine) {
  Found found{Costs(costs.size(), -1), Costs(parts), Costs(parts)};
  partition(costs, parts, equal_sizes, refine, found.part_of);
  for (std::size_t item = 0; item < costs.size(); ++item) {
    CHECK(found.part_of[item] >= 0 && found.part_of[item] < static_cast<std::int64_t>(parts));
    found.sums[static_cast<std::size_t>(found.part_of[item])] += costs[item];
    ++found.sizes[static_cast<std::size_t>(found.part_of[item])];
  }
  return found;
}

void known_partitions() {
  CHECK((found({8, 7, 6, 5, 4}, 2, false, false).sums == Costs{16, 14}));
  CHECK((found({8, 7, 6, 5, 4}, 2, false, true).sums == Costs{15, 15}));
  CHECK((found({10, 9, 8, 7, 6, 5, 4, 3}, 4, false, false).sums == Costs{13, 13, 13, 13}));
  CHECK((found({10, 2, 18, 4}, 2, true, false).part_of == Costs{1, 0, 0, 1}));
  CHECK((found({}, 3, false, true).sums == Costs{0, 0, 0}));
  CHECK((found({7}, 3, true, true).sums == Costs{7, 0, 0}));
}

void parts_are_ordered_and_refining_makes_none_heavier() {
  Random random;
  for (int round = 0; round < 2000; ++round) {
    Costs costs(random.below(40));
    const auto most = random.chance(2) ? 6 : 1'000'000;
    for (auto& cost : costs) cost = static_cast<std::int64_t>(random.below(most));
    const auto parts = random.between(1, 9);
    const bool equal_sizes = random.chance(2);
    const auto plain = found(costs, parts, equal_sizes, false), refined = found(costs, parts, equal_sizes, true);
    CHECK(refined.sums[0] <= plain.sums[0]);
    for (const auto& each : {plain, refined}) {
      CHECK(std::ranges::is_sorted(each.sums, std::greater{}));
      if (equal_sizes) CHECK(std::ranges::max(each.sizes) - std::ranges::min(each.sizes) <= 1);
    }
    CHECK(found(costs, parts, equal_sizes, true).part_of == refined.part_of);
  }
}

void what_cannot_be_is_refused() {
  Costs out(2);
  CHECK_THROWS(partition(Costs{1, 2}, 0, false, true, out), std::invalid_argument);
  CHECK_THROWS(partition(Costs{1, -2}, 1, false, true, out), std::invalid_argument);
  CHECK_THROWS(partition(Costs{1}, 1, false, true, out), std::invalid_argument);
  const auto much = std::numeric_limits<std::int64_t>::max() / 2;
  CHECK_THROWS(partition(Costs{much, much}, 1, false, true, out), std::overflow_error);
}

}  // namespace

int main() {
  known_partitions();
  parts_are_ordered_and_refining_makes_none_heavier();
  what_cannot_be_is_refused();
}
