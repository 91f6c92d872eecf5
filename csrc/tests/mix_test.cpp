// tests/mix_test.cpp: every block of a mixture gives each source exactly its places.
#include "core/order/mix.h"

#include <string>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

void check_block(const Mixture& mixture, std::uint64_t number) {
  const auto table = mixture.block(number);
  CHECK(table.size() == mixture.places());
  std::vector<std::uint64_t> seen(mixture.sources());
  for (const auto& place : table) {
    CHECK(place.source < mixture.sources());
    CHECK(place.rank == seen[place.source]++);  // ranks count up
  }
  for (std::size_t source = 0; source < mixture.sources(); ++source) CHECK(seen[source] == mixture.quota(source));
}

void every_block_holds_exactly_the_quotas() {
  const std::vector<std::vector<std::uint64_t>> recipes = {
      {1}, {1000}, {1, 1}, {700, 300}, {1, 999}, {5, 1, 7, 2}, {2000, 1, 3000}, std::vector<std::uint64_t>(40, 3)};
  for (const auto& quotas : recipes) {
    const Mixture mixture(quotas, 77);
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{12345}, ~std::uint64_t{0}})
      check_block(mixture, number);
  }
}

void random_recipes_hold_too() {
  Random random;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> quotas(random.between(1, 8));
    for (auto& quota : quotas) quota = random.between(1, 60);
    check_block(Mixture(quotas, random.word()), random.word());
  }
}

std::string picture(const Mixture& mixture, std::uint64_t number) {
  std::string text;
  for (const auto& place : mixture.block(number)) text += static_cast<char>('a' + place.source);
  return text;
}

void blocks_and_keys_differ() {
  const Mixture mixture({30, 30, 30}, 1), other({30, 30, 30}, 2);
  CHECK(picture(mixture, 0) == picture(mixture, 0));
  CHECK(picture(mixture, 0) != picture(mixture, 1));
  CHECK(picture(mixture, 0) != picture(other, 0));
}

// A change of these changes the order of every mixture: that is a new order version, not an edit.
void the_table_is_the_one_that_was_pinned() {
  CHECK(picture(Mixture({3, 2, 5}, 1), 0) == "caccbacbca");
  CHECK(picture(Mixture({3, 2, 5}, 1), 1) == "cbbcaccaca");
  CHECK(picture(Mixture({20, 10}, 42), 7) == "abaabaababaaabababbaaaaaaaabba");
}

void impossible_quotas_are_refused() {
  CHECK_THROWS(Mixture({}, 0), std::invalid_argument);
  CHECK_THROWS(Mixture({0, 0}, 0), std::invalid_argument);
  CHECK_THROWS(Mixture({(1 << 24) + 1}, 0), std::invalid_argument);
  CHECK_THROWS(Mixture({5, 0}, 0), std::invalid_argument);  // a source without a place is used at no position
  // The sum wraps around to 5.
  CHECK_THROWS(Mixture({std::uint64_t{1} << 63, std::uint64_t{1} << 63, 5}, 0), std::invalid_argument);
}

}  // namespace

int main() {
  every_block_holds_exactly_the_quotas();
  random_recipes_hold_too();
  blocks_and_keys_differ();
  the_table_is_the_one_that_was_pinned();
  impossible_quotas_are_refused();
}
