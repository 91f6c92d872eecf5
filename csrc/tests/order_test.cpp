// tests/order_test.cpp: every order of an epoch is a bijection with an inverse, and a local one stays inside its groups.
#include "core/order/order.h"

#include <algorithm>
#include <set>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

std::vector<std::uint64_t> whole_epoch(const OrderSpec& spec, std::uint64_t epoch) {
  EpochOrder order(spec, epoch);
  std::vector<std::uint64_t> samples(spec.samples);
  for (std::uint64_t position = 0; position < spec.samples; ++position) samples[position] = order.at(position);
  return samples;
}

void check_bijection(const OrderSpec& spec, std::uint64_t epoch) {
  EpochOrder order(spec, epoch);
  const auto samples = whole_epoch(spec, epoch);
  std::vector<bool> seen(spec.samples);
  for (std::uint64_t position = 0; position < spec.samples; ++position) {
    const auto sample = samples[position];
    CHECK(sample < spec.samples && !seen[sample]);
    seen[sample] = true;
    CHECK(order.inverse(sample) == position);
  }
}

// A group's positions hold exactly the samples of its own blocks.
void check_groups(const OrderSpec& spec, std::uint64_t epoch) {
  const EpochOrder order(spec, epoch);
  const auto samples = whole_epoch(spec, epoch);
  const auto blocks = (spec.samples - 1) / spec.block_samples + 1;
  std::size_t position = 0;
  for (std::uint64_t slot = 0; slot < blocks;) {
    std::set<std::uint64_t> expected, found;
    for (std::uint64_t i = 0; i < spec.group_blocks && slot < blocks; ++i, ++slot) {
      const auto start = order.block_at(slot) * spec.block_samples;
      for (auto sample = start; sample < std::min(start + spec.block_samples, spec.samples); ++sample)
        expected.insert(sample);
    }
    for (std::size_t i = 0; i < expected.size(); ++i) found.insert(samples[position++]);
    CHECK(found == expected);
  }
  CHECK(position == spec.samples);
}

void a_local_shuffle_uses_every_sample_once_and_stays_in_its_groups() {
  for (std::uint64_t samples = 1; samples <= 200; samples += samples < 40 ? 1 : 7)
    for (const std::uint64_t block : {1, 2, 3, 7, 16, 64, 199, 200, 500})
      for (const std::uint64_t group : {1, 2, 3, 5, 300}) {
        const OrderSpec spec{Shuffle::local, samples, samples * 31 + block, block, group};
        check_bijection(spec, group % 4);
        check_groups(spec, group % 4);
      }
}

void all_shuffles_use_every_sample_once() {
  for (const auto shuffle : {Shuffle::none, Shuffle::global, Shuffle::local})
    for (const std::uint64_t samples : {1, 2, 3, 100, 1023, 1024, 1025, 3000})
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) check_bijection({shuffle, samples, 5, 10, 4}, epoch);
}

// Units are ordered as samples are, and the samples of each follow each other.
void units_stay_together() {
  for (const auto shuffle : {Shuffle::none, Shuffle::global, Shuffle::local})
    for (const std::uint64_t units : {1, 2, 3, 100, 1025}) {
      const OrderSpec spec{shuffle, 2 * units, 5, 10, 4, nullptr, 2};
      check_bijection(spec, 1);
      const auto samples = whole_epoch(spec, 1), alone = whole_epoch({shuffle, units, 5, 10, 4}, 1);
      for (std::uint64_t i = 0; i < units; ++i) CHECK(samples[2 * i] == 2 * alone[i] && samples[2 * i + 1] == 2 * alone[i] + 1);
      std::vector<std::uint64_t> positions(samples.size()), together(samples.size());
      for (std::uint64_t i = 0; i < positions.size(); ++i) positions[i] = i;
      EpochOrder(spec, 1).at(positions, together);
      CHECK(together == samples);
    }
  CHECK_THROWS(EpochOrder({Shuffle::none, 5, 5, 10, 4, nullptr, 2}, 0), std::invalid_argument);
}

void units_stay_together_in_windows() {
  const auto windows = std::make_shared<Windows>(Windows{{3, 3, 2}, 3});
  for (const auto shuffle : {Shuffle::none, Shuffle::global}) {
    const OrderSpec spec{shuffle, 16, 5, 1, 1, windows, 2};
    EpochOrder order(spec, 2);
    for (std::uint64_t position = 0; position < 16; position += 2) {
      const auto sample = order.at(position);
      CHECK(sample % 2 == 0 && order.at(position + 1) == sample + 1);
      CHECK(order.has(sample) && order.has(sample + 1));
      CHECK(order.inverse(sample) == position && order.inverse(sample + 1) == position + 1);
    }
    CHECK(!order.has(16));
  }
}

// Samples that are numbered through, in windows that come in order in every epoch: some have no bins, some are large.
void numbered_windows_come_in_order_in_every_epoch() {
  Random random{8};
  for (int round = 0; round < 100; ++round) {
    auto windows = std::make_shared<Windows>();
    windows->rows = 0;
    windows->always_in_order = true;
    for (auto count = random.between(1, 12); count > 0; --count) windows->bins.push_back(random.chance(3) ? 0 : random.between(1, 40));
    windows->block = random.below(5);
    const auto bins = windows->samples();
    if (bins == 0) continue;
    const OrderSpec spec{Shuffle::global, bins + random.below(100), 5, 1, 1, windows};
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      EpochOrder order(spec, epoch);
      std::uint64_t first = 0;
      for (const auto count : windows->bins) {
        std::set<std::uint64_t> seen;
        for (auto position = first; position < first + count; ++position) {
          const auto sample = order.at(position);
          CHECK(sample >= first && sample < first + count && order.has(sample) && windows->has(sample));
          CHECK(order.inverse(sample) == position);
          seen.insert(sample);
        }
        CHECK(seen.size() == count);
        first += count;
      }
      CHECK(!order.has(bins) && !windows->has(bins));
      if (spec.samples > bins) CHECK_THROWS(order.at(bins), std::out_of_range);
    }
  }
}

// Numbers do not follow the order of the windows where an epoch permutes them.
void numbered_windows_may_be_permuted() {
  const auto windows = std::make_shared<Windows>(Windows{{3, 0, 5, 1, 0}, 0});
  for (std::uint64_t epoch = 0; epoch < 5; ++epoch) check_bijection({Shuffle::global, 9, 5, 1, 1, windows}, epoch);
  auto first = *windows;
  first.foremost = 7;
  const OrderSpec spec{Shuffle::global, 9, 5, 1, 1, std::make_shared<Windows>(first)};
  check_bijection(spec, 0);
  CHECK(EpochOrder(spec, 0).at(0) == 7);
  CHECK_THROWS(EpochOrder({Shuffle::global, 10, 5, 1, 1, windows}, 0), std::invalid_argument);
}

// What is known of a gap is its size; the windows behind it are what they would be if all were known.
void a_gap_costs_nothing_and_changes_nothing_behind_it() {
  constexpr auto most = std::uint64_t{1} << 62;
  const Windows known{{most / 2, most / 4, most / 4, 50, 0, 30}, 0, false, 0, std::nullopt, true, {}};
  const Windows skipped{{most, 0, 0, 50, 0, 30}, 0, false, 0, std::nullopt, true, {0}};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EpochOrder order({Shuffle::global, most + 80, 5, 1, 1, std::make_shared<Windows>(known)}, epoch);
    EpochOrder behind({Shuffle::global, most + 80, 5, 1, 1, std::make_shared<Windows>(skipped)}, epoch);
    for (auto position = most; position < most + 80; ++position) {
      CHECK(behind.at(position) == order.at(position));
      CHECK(behind.inverse(behind.at(position)) == position);
    }
    CHECK_THROWS(behind.at(most - 1), std::out_of_range);
    CHECK_THROWS(behind.inverse(0), std::out_of_range);
  }
  EpochOrder plain({Shuffle::none, most + 80, 5, 1, 1, std::make_shared<Windows>(skipped)}, 1);
  CHECK(plain.at(5) == 5 && plain.inverse(most + 7) == most + 7);
  const auto many = std::make_shared<Windows>(Windows{{most, most, most}, 0});
  CHECK_THROWS(EpochOrder({Shuffle::none, 5, 5, 1, 1, many}, 0), std::invalid_argument);
}

void no_shuffle_is_file_order() {
  EpochOrder order({Shuffle::none, 100, 5, 10, 4}, 7);
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(order.at(i) == i && order.inverse(i) == i && order.block_at(i) == i);
}

void a_batch_is_the_same_as_one_at_a_time() {
  Random random;
  for (const auto shuffle : {Shuffle::none, Shuffle::global, Shuffle::local}) {
    const OrderSpec spec{shuffle, 5000, 9, 64, 8};
    EpochOrder order(spec, 3), single(spec, 3);
    std::vector<std::uint64_t> in(1300), out(1300), back(1300);
    for (auto& value : in) value = random.below(spec.samples);
    order.at(in, out);
    order.inverse(out, back);
    CHECK(back == in);
    for (std::size_t i = 0; i < in.size(); ++i) CHECK(single.at(in[i]) == out[i]);
  }
}

void epochs_sources_and_shuffles_differ() {
  std::set<std::vector<std::uint64_t>> orders;
  for (const auto shuffle : {Shuffle::global, Shuffle::local})
    for (std::uint64_t key = 0; key < 4; ++key)
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
        const OrderSpec spec{shuffle, 50, key, 5, 3};
        CHECK(EpochOrder(spec, epoch).epoch() == epoch);
        orders.insert(whole_epoch(spec, epoch));
      }
  CHECK(orders.size() == 32);
}

void the_largest_orders_have_an_inverse() {
  Random random;
  constexpr auto most = std::uint64_t{1} << 63;
  for (const auto samples : {most, most - 1, most / 2 + 12345})
    for (const std::uint64_t block : {std::uint64_t{1}, std::uint64_t{1000}, most / 3, most, ~std::uint64_t{0}})
      for (const std::uint64_t group : {std::uint64_t{1}, std::uint64_t{64}, most, ~std::uint64_t{0}})
        for (const auto shuffle : {Shuffle::global, Shuffle::local}) {
          EpochOrder order({shuffle, samples, 1, block, group}, ~std::uint64_t{0});
          for (int i = 0; i < 20; ++i) {
            const auto value = i == 0 ? samples - 1 : random.below(samples);
            CHECK(order.at(value) < samples && order.inverse(order.at(value)) == value);
            CHECK(order.at(order.inverse(value)) == value);
          }
        }
}

void check_first(const OrderSpec& spec, std::uint64_t epoch, const std::vector<std::uint64_t>& expected) {
  EpochOrder order(spec, epoch);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (order.at(i) != expected[i]) std::fprintf(stderr, "%zu -> %llu\n", i, static_cast<unsigned long long>(order.at(i)));
    CHECK(order.at(i) == expected[i]);
  }
}

// A change of these changes the order of every run: that is a new order version, not an edit.
void the_order_is_the_one_that_was_pinned() {
  check_first({Shuffle::global, 1000, 42, 1, 1}, 0, {341, 495, 665, 191, 917, 627, 471, 336});
  check_first({Shuffle::global, 1000, 42, 1, 1}, 1, {484, 971, 394, 492, 105, 803, 99, 21});
  check_first({Shuffle::global, 1000000007, 42, 1, 1}, 0,
                 {36654975, 631802936, 147620445, 768809794, 92482245, 703883171, 503292010, 552017129});
  check_first({Shuffle::local, 103, 42, 10, 3}, 0, {45, 60, 32, 63, 37, 35, 67, 30});
  check_first({Shuffle::local, 103, 42, 10, 3}, 1, {53, 31, 58, 2, 6, 8, 39, 50});
  check_first({Shuffle::local, 1000000007, 42, 512, 64}, 0,
                 {71520542, 336935514, 479345672, 478460576, 788661864, 149567088, 813010709, 961172420});
}

void impossible_orders_are_refused() {
  CHECK_THROWS(EpochOrder({Shuffle::none, 0, 1, 1, 1}, 0), std::invalid_argument);
  CHECK_THROWS(EpochOrder({Shuffle::local, 10, 1, 0, 1}, 0), std::invalid_argument);
  CHECK_THROWS(EpochOrder({Shuffle::local, 10, 1, 1, 0}, 0), std::invalid_argument);
  CHECK_THROWS(EpochOrder({Shuffle::global, ~std::uint64_t{0}, 1, 1, 1}, 0), std::invalid_argument);
}

}  // namespace

int main() {
  a_local_shuffle_uses_every_sample_once_and_stays_in_its_groups();
  all_shuffles_use_every_sample_once();
  units_stay_together();
  units_stay_together_in_windows();
  numbered_windows_come_in_order_in_every_epoch();
  numbered_windows_may_be_permuted();
  a_gap_costs_nothing_and_changes_nothing_behind_it();
  no_shuffle_is_file_order();
  a_batch_is_the_same_as_one_at_a_time();
  epochs_sources_and_shuffles_differ();
  the_largest_orders_have_an_inverse();
  the_order_is_the_one_that_was_pinned();
  impossible_orders_are_refused();
}
