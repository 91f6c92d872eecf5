// tests/permute_test.cpp: a permutation hits everything once, has an inverse, and is the one it was when it was pinned.
#include "core/order/permute.h"

#include <algorithm>
#include <array>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

constexpr std::uint64_t most = std::uint64_t{1} << 63;

void check_bijection(std::uint64_t n, std::uint64_t key) {
  const Permutation order(n, key);
  CHECK(order.size() == n);
  std::vector<bool> seen(n);
  for (std::uint64_t position = 0; position < n; ++position) {
    const auto index = order.at(position);
    CHECK(index < n && !seen[index]);
    seen[index] = true;
    CHECK(order.inverse(index) == position);
  }
}

void every_small_size_is_hit_exactly_once() {
  for (std::uint64_t n = 1; n <= 300; ++n)
    for (std::uint64_t key = 0; key < 3; ++key) check_bijection(n, key);
}

void powers_of_two_and_their_neighbours_are_hit_exactly_once() {
  for (std::uint64_t power = 2; power <= 65536; power *= 2)
    for (const auto n : {power - 1, power, power + 1}) check_bijection(n, power);
  check_bijection(Permutation::narrow_limit, 7);
  check_bijection(Permutation::narrow_limit + 1, 7);
}

void large_sizes_have_an_inverse() {
  Random random;
  for (int bits = 17; bits <= 63; ++bits) {
    const auto power = std::uint64_t{1} << bits;
    for (const auto n : {power - 1, power, std::min(power + 1, most)}) {
      const Permutation order(n, random.word());
      const auto check = [&](std::uint64_t value) {
        CHECK(order.at(value) < n && order.inverse(order.at(value)) == value);
        CHECK(order.inverse(value) < n && order.at(order.inverse(value)) == value);
      };
      for (const auto value : {std::uint64_t{0}, std::uint64_t{1}, n / 2, n - 2, n - 1}) check(value);
      for (int i = 0; i < 50; ++i) check(random.below(n));
    }
  }
}

void a_batch_is_the_same_as_one_at_a_time() {
  Random random;
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{5}, std::uint64_t{1024}, std::uint64_t{1025},
                                std::uint64_t{65536}, std::uint64_t{65537}, std::uint64_t{1} << 40, most - 1, most}) {
    const Permutation order(n, n + 3);
    for (const std::size_t count : {0u, 1u, 2u, 511u, 512u, 513u, 1024u, 1537u}) {
      std::vector<std::uint64_t> in(count), out(count), back(count);
      for (auto& value : in) value = random.below(n);
      order.at(in, out);
      order.inverse(out, back);
      CHECK(back == in);
      for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == order.at(in[i]));
      order.inverse(in, out);
      for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == order.inverse(in[i]));
    }
  }
}

void a_batch_may_be_written_over_itself() {
  const Permutation order(5000, 1);
  std::vector<std::uint64_t> values(1500), expected(1500);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i;
  order.at(values, expected);
  order.at(values, values);
  CHECK(values == expected);
}

template <std::size_t count>
void check_first(std::uint64_t n, std::uint64_t key, const std::array<std::uint64_t, count>& expected) {
  const Permutation order(n, key);
  for (std::size_t i = 0; i < count; ++i) {
    if (order.at(i) != expected[i])
      std::fprintf(stderr, "n %llu key %llu: %zu -> %llu\n", static_cast<unsigned long long>(n),
                   static_cast<unsigned long long>(key), i, static_cast<unsigned long long>(order.at(i)));
    CHECK(order.at(i) == expected[i]);
  }
}

// A change of these changes the order of every run: that is a new order version, not an edit.
void the_order_is_the_one_that_was_pinned() {
  CHECK(order_version == 1);
  check_first<8>(10u, 0, {4u, 5u, 8u, 3u, 6u, 7u, 9u, 1u});
  check_first<8>(10u, 1, {1u, 5u, 6u, 8u, 0u, 2u, 9u, 7u});
  check_first<8>(1024u, 42, {464u, 781u, 678u, 669u, 574u, 878u, 654u, 561u});
  check_first<8>(1025u, 42, {964u, 601u, 848u, 653u, 98u, 809u, 539u, 346u});
  check_first<8>(1000000u, 7, {803636u, 897045u, 990775u, 816248u, 635766u, 508159u, 867979u, 854678u});
  check_first<8>(1099511627776u, 7,
                 {948615027595u, 170334647786u, 476738008201u, 575333952043u, 596409518882u, 649259267703u,
                  609604095802u, 220344937834u});
  check_first<8>(9223372036854775807u, 9,
                 {7897743562128721839u, 3839496266288033716u, 2370427419116586680u, 5294993304319436278u,
                  6768099967801378251u, 3005942896446971802u, 2683937854795799342u, 7279704793147997947u});
  check_first<8>(9223372036854775808u, 9,
                 {7897743562128721839u, 3839496266288033716u, 2370427419116586680u, 5294993304319436278u,
                  6768099967801378251u, 3005942896446971802u, 2683937854795799342u, 7279704793147997947u});
  CHECK(derive(0, 0) == 0x1094DB8BB4B47185u);
  CHECK(derive(1, 2) == 0x9460EB6DDA3F90F1u);
}

void keys_make_a_difference() {
  int same = 0;
  const Permutation first(1'000'000, 1), second(1'000'000, 2);
  for (std::uint64_t i = 0; i < 10'000; ++i) same += first.at(i) == second.at(i);
  CHECK(same < 5);
}

// Each of the 24 orders of 4 things comes up about as often as the others.
void small_orders_are_evenly_likely() {
  std::array<int, 256> counts{};
  constexpr int rounds = 24 * 500;
  for (std::uint64_t key = 0; key < rounds; ++key) {
    const Permutation order(4, derive(12345, key));
    ++counts[order.at(0) * 64 + order.at(1) * 16 + order.at(2) * 4 + order.at(3)];
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    CHECK(count > 370 && count < 630);  // 500 give or take six standard deviations
  }
  CHECK(orders == 24);
}

void impossible_sizes_are_refused() {
  CHECK_THROWS(Permutation(0, 1), std::invalid_argument);
  CHECK_THROWS(Permutation(most + 1, 1), std::invalid_argument);
  CHECK_THROWS(Permutation(~std::uint64_t{0}, 1), std::invalid_argument);
}

}  // namespace

int main() {
  every_small_size_is_hit_exactly_once();
  powers_of_two_and_their_neighbours_are_hit_exactly_once();
  large_sizes_have_an_inverse();
  a_batch_is_the_same_as_one_at_a_time();
  a_batch_may_be_written_over_itself();
  the_order_is_the_one_that_was_pinned();
  keys_make_a_difference();
  small_orders_are_evenly_likely();
  impossible_sizes_are_refused();
}
