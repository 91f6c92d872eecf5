// tests/reservoir_test.cpp: a reservoir gives back every frame once and whole, from the slots that were pinned.
#include "core/chess/reservoir.h"

#include <set>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

struct Block {
  std::vector<GameFrame> fields;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint16_t> moves;
  std::vector<float> probabilities;
  std::vector<Origin> origins;

  FrameColumns columns() const { return {fields, ends, moves, probabilities}; }
};

// GameFrame `number` has `number` * 37 % 300 entries, each worth `number`.
Block block(std::uint32_t first, std::uint32_t count) {
  Block made;
  for (auto number = first; number < first + count; ++number) {
    made.fields.emplace_back().visits = number;
    made.origins.push_back({number, 0, 0});
    for (std::uint32_t i = 0; i < number * 37 % 300; ++i) {
      made.moves.push_back(static_cast<std::uint16_t>(i));
      made.probabilities.push_back(static_cast<float>(number));
    }
    made.ends.push_back(static_cast<std::uint32_t>(made.moves.size()));
  }
  return made;
}

void check_whole(const Reservoir::Emitted& out, std::multiset<std::uint32_t>& seen) {
  std::size_t begin = 0;
  for (std::size_t row = 0; row < out.frames.size(); ++row) {
    const std::uint32_t number = out.frames.fields[row].visits;
    const auto end = out.frames.ends[row];
    CHECK(out.origins[row].chunk == number && end - begin == number * 37 % 300);
    for (; begin < end; ++begin) CHECK(out.frames.probabilities[begin] == static_cast<float>(number));
    seen.insert(number);
  }
}

void every_frame_leaves_once_and_whole() {
  Random random;
  Reservoir reservoir(20, 7);
  std::multiset<std::uint32_t> seen;
  std::uint32_t number = 0;
  for (int round = 0; round < 40; ++round) {
    const auto count = static_cast<std::uint32_t>(random.below(12));
    if (random.chance(4)) {
      check_whole(reservoir.drain(count), seen);
    } else {
      const auto in = block(number, count);
      check_whole(reservoir.exchange(in.columns(), in.origins), seen);
      number += count;
    }
  }
  check_whole(reservoir.drain(99), seen);
  CHECK(reservoir.size() == 0 && seen.size() == number);
  for (std::uint32_t each = 0; each < number; ++each) CHECK(seen.count(each) == 1);
}

void a_restored_one_goes_on_as_the_first() {
  Reservoir first(9, 3), second(9, 3);
  const auto in = block(0, 40), more = block(40, 10);
  first.exchange(in.columns(), in.origins);
  Block held;
  for (const auto& origin : first.origins()) {
    const auto one = block(static_cast<std::uint32_t>(origin.chunk), 1);
    held.fields.push_back(one.fields[0]);
    held.origins.push_back(origin);
    held.moves.insert(held.moves.end(), one.moves.begin(), one.moves.end());
    held.probabilities.insert(held.probabilities.end(), one.probabilities.begin(), one.probabilities.end());
    held.ends.push_back(static_cast<std::uint32_t>(held.moves.size()));
  }
  second.restore(held.columns(), held.origins, first.counter());
  CHECK(second.nbytes() == first.nbytes());
  CHECK(first.exchange(more.columns(), more.origins).slots == second.exchange(more.columns(), more.origins).slots);
  CHECK(first.drain(9).slots == second.drain(9).slots);
}

// A change of these changes what every run trains on.
void slots_are_the_ones_that_were_pinned() {
  const std::uint64_t pinned[] = {542, 345, 761, 811, 235, 72};
  for (std::uint64_t i = 0; i < 6; ++i) CHECK(keyed_below(42, 1000 + i, 1000) == pinned[i]);
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(keyed_below(i, i, 1) == 0 && keyed_below(1, i, 0xFFFFFFFF) < 0xFFFFFFFF);
}

void impossible_calls_are_refused() {
  CHECK_THROWS(Reservoir(0, 1), std::invalid_argument);
  CHECK_THROWS(Reservoir(std::size_t{1} << 32, 1), std::invalid_argument);
  Reservoir reservoir(2, 1);
  const auto in = block(0, 3);
  CHECK_THROWS(reservoir.restore(in.columns(), in.origins, 0), std::invalid_argument);
  CHECK_THROWS(reservoir.exchange(in.columns(), std::span(in.origins).first(2)), std::invalid_argument);
}

}  // namespace

int main() {
  every_frame_leaves_once_and_whole();
  a_restored_one_goes_on_as_the_first();
  slots_are_the_ones_that_were_pinned();
  impossible_calls_are_refused();
}
