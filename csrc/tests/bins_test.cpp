// tests/bins_test.cpp: bins hold each item once and never too much, are those of the plain definition, and windows are permuted.
#include "core/order/bins.h"

#include <numeric>
#include <set>

#include "check.h"
#include "core/order/windows.h"
#include "random.h"

using namespace millstream;

namespace {

std::vector<std::uint32_t> some_lengths(Random& random, std::size_t count, std::uint32_t capacity) {
  std::vector<std::uint32_t> lengths(count);
  const auto most = random.chance(2) ? capacity : std::max<std::uint32_t>(1, capacity / 7);
  for (auto& length : lengths) length = static_cast<std::uint32_t>(random.below(most + 1));
  return lengths;
}

// Best fit decreasing as it is defined, by looking at every bin.
std::vector<std::vector<std::uint32_t>> plain_best_fit(const std::vector<std::uint32_t>& lengths, std::uint32_t capacity) {
  std::vector<std::uint32_t> items(lengths.size());
  std::iota(items.begin(), items.end(), 0u);
  std::ranges::stable_sort(items, [&](auto a, auto b) { return lengths[a] > lengths[b]; });
  struct Bin {
    std::uint32_t room;
    std::size_t since;  // when it came to have this room
    std::vector<std::uint32_t> items;
  };
  std::vector<Bin> bins;
  std::size_t time = 0;
  for (const auto item : items) {
    if (lengths[item] == 0) continue;
    Bin* best = nullptr;
    for (auto& bin : bins)
      if (bin.room >= lengths[item] &&
          (best == nullptr || std::pair(bin.room, bin.since) < std::pair(best->room, best->since)))
        best = &bin;
    if (best == nullptr) best = &bins.emplace_back(Bin{capacity, 0, {}});
    best->room -= lengths[item];
    best->since = ++time;
    best->items.push_back(item);
  }
  std::vector<std::vector<std::uint32_t>> found;
  for (const auto& bin : bins) found.push_back(bin.items);
  return found;
}

void bins_are_those_of_best_fit_decreasing() {
  Random random;
  for (int round = 0; round < 400; ++round) {
    const auto capacity = static_cast<std::uint32_t>(random.chance(3) ? random.between(1, 9) : random.between(10, 9000));
    Packer packer(capacity);
    Bins bins;
    for (int again = 0; again < 3; ++again) {  // a packer forgets what it packed before
      const auto lengths = some_lengths(random, random.below(200), capacity);
      packer.pack(lengths, bins);
      const auto expected = plain_best_fit(lengths, capacity);
      CHECK(bins.count() == expected.size());
      for (std::size_t bin = 0; bin < bins.count(); ++bin)
        CHECK(std::ranges::equal(bins[bin], expected[bin]));
    }
  }
}

void each_item_lies_in_one_bin_that_holds_it() {
  Random random{3};
  for (const std::uint32_t capacity : {1u, 64u, 4096u, 4097u, most_capacity}) {
    Packer packer(capacity);
    Bins bins;
    const auto lengths = some_lengths(random, 20'000, capacity);
    packer.pack(lengths, bins);
    std::multiset<std::uint32_t> seen(bins.items.begin(), bins.items.end());
    for (std::uint32_t item = 0; item < lengths.size(); ++item) CHECK(seen.count(item) == (lengths[item] > 0));
    for (std::size_t bin = 0; bin < bins.count(); ++bin) {
      std::uint64_t sum = 0;
      for (const auto item : bins[bin]) sum += lengths[item];
      CHECK(sum > 0 && sum <= capacity);
    }
  }
}

void the_known_example_packs_as_known() {
  Packer packer(4);
  Bins bins;
  packer.pack(std::vector<std::uint32_t>{4, 2, 3, 1}, bins);  // trl 1.16.0, whose first item was cut to the capacity
  CHECK(bins.count() == 3);
  CHECK(std::ranges::equal(bins.items, std::vector<std::uint32_t>{0, 2, 3, 1}));
  CHECK(std::ranges::equal(bins.ends, std::vector<std::uint32_t>{1, 3, 4}));
}

void what_cannot_be_packed_is_refused() {
  CHECK_THROWS(Packer(0), std::invalid_argument);
  CHECK_THROWS(Packer(most_capacity + 1), std::invalid_argument);
  Bins bins;
  CHECK_THROWS(Packer(3).pack(std::vector<std::uint32_t>{4}, bins), std::invalid_argument);
}

void an_epoch_visits_every_bin_once_window_by_window() {
  Random random{5};
  for (int round = 0; round < 200; ++round) {
    auto windows = std::make_shared<Windows>();
    windows->rows = random.between(1, 40);
    windows->bins.resize(random.between(1, 30));
    for (auto& bins : windows->bins) bins = static_cast<std::uint32_t>(random.below(windows->rows + 1));
    const bool shuffled = random.chance(2);
    windows->block = random.below(5);
    windows->first_in_order = random.chance(2);
    const auto epoch = random.below(2);
    WindowOrder order(windows, shuffled ? std::optional(random.word()) : std::nullopt, epoch);
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> visited;  // windows, in turn
    for (std::uint64_t position = 0; position < windows->samples(); ++position) {
      const auto sample = order.at(position);
      CHECK(windows->has(sample) && order.inverse(sample) == position);
      seen.insert(sample);
      if (visited.empty() || visited.back() != sample / windows->rows) visited.push_back(sample / windows->rows);
    }
    CHECK(seen.size() == windows->samples());
    CHECK(std::set(visited.begin(), visited.end()).size() == visited.size());  // none is left and entered again
    if (!shuffled || (windows->first_in_order && epoch == 0)) CHECK(std::ranges::is_sorted(visited));
    CHECK_THROWS(order.at(windows->samples()), std::out_of_range);
  }
}

void bins_that_stand_by_length_leave_their_block_for_nothing_but_the_first_place() {
  Random random{6};
  for (int round = 0; round < 200; ++round) {
    auto windows = std::make_shared<Windows>();
    windows->rows = random.between(1, 40);
    windows->bins.resize(random.between(1, 10));
    for (auto& bins : windows->bins) bins = static_cast<std::uint32_t>(random.between(1, windows->rows));
    windows->block = random.between(1, 6);
    const auto key = random.word();
    WindowOrder plain(windows, key, 0);
    for (std::uint64_t position = 0; position < windows->samples(); ++position) {
      const auto window = plain.at(position) / windows->rows, start = position == 0 ? 0 : position - 1;
      const auto bin = plain.at(position) % windows->rows, before = plain.at(start) % windows->rows;
      if (plain.at(start) / windows->rows == window) CHECK(before / windows->block <= bin / windows->block);
    }
    const auto window = random.below(windows->bins.size());
    windows->foremost = window * windows->rows + random.below(windows->bins[window]);
    WindowOrder swapped(windows, key, 0), later(windows, key, 1);
    CHECK(swapped.at(0) == *windows->foremost);
    std::uint64_t moved = 0;
    for (std::uint64_t position = 0; position < windows->samples(); ++position) {
      CHECK(swapped.inverse(swapped.at(position)) == position);
      CHECK(later.at(position) == plain.at(position));
      moved += swapped.at(position) != plain.at(position);
    }
    CHECK(moved == 0 || moved == 2);
  }
}

}  // namespace

int main() {
  bins_are_those_of_best_fit_decreasing();
  each_item_lies_in_one_bin_that_holds_it();
  the_known_example_packs_as_known();
  what_cannot_be_packed_is_refused();
  an_epoch_visits_every_bin_once_window_by_window();
  bins_that_stand_by_length_leave_their_block_for_nothing_but_the_first_place();
}
