// tests/ragged_test.cpp: rows of rollouts against a slow and obvious way to make them.
#include "core/fill/ragged.h"

#include <cmath>
#include <memory>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

using Kind = TokenColumn::Kind;
constexpr std::size_t pair_bytes = 2 * sizeof(std::uint16_t);

// Rollouts with one column of each kind; those of pairs lie beside the inputs.
struct Rollouts {
  std::vector<std::int64_t> ends;
  std::vector<std::uint32_t> tokens, versions;
  std::vector<std::uint8_t> mask;
  std::vector<float> logprobs;
  std::vector<std::uint16_t> pairs;
  std::vector<double> advantages;

  explicit Rollouts(Random& random) {
    for (auto rollouts = random.below(5); rollouts > 0; --rollouts) {
      for (auto count = random.between(1, 9); count > 0; --count) {
        tokens.push_back(static_cast<std::uint32_t>(random.below(50'000)));
        versions.push_back(static_cast<std::uint32_t>(random.word()));
        mask.push_back(random.chance(2));
        logprobs.push_back(mask.back() ? -static_cast<float>(random.below(100)) : std::nanf(""));
        pairs.push_back(static_cast<std::uint16_t>(random.word()));
        pairs.push_back(static_cast<std::uint16_t>(random.word()));
      }
      ends.push_back(static_cast<std::int64_t>(tokens.size()));
      advantages.push_back(static_cast<double>(random.below(9)) - 4);
    }
  }
  RaggedBlock block() const {
    return {ends, tokens, mask.data(), {logprobs.data(), versions.data(), pairs.data(), advantages.data(), advantages.data()}};
  }
  std::size_t start(std::size_t row) const { return row == 0 ? 0 : static_cast<std::size_t>(ends[row - 1]); }
};

std::vector<TokenColumn> columns(std::size_t id_bytes) {
  return {{Kind::masked, 4}, {Kind::widened, id_bytes}, {Kind::copied, pair_bytes, true}, {Kind::spread, 4}, {Kind::last, 4}};
}

template <typename Value>
Value at(const Batch& batch, std::size_t offset, std::size_t place) {
  Value value;
  std::memcpy(&value, batch.data() + offset + place * sizeof(Value), sizeof(Value));
  return value;
}

template <typename Id>
void check_token(const Batch& batch, const RaggedRows& rows, const Rollouts& from, std::size_t row, double weight,
                 std::size_t place, std::size_t i, Labels labels) {
  const auto start = from.start(row), count = static_cast<std::size_t>(from.ends[row]) - start;
  const auto& layout = batch.layout();
  CHECK(at<Id>(batch, 0, place) == static_cast<Id>(from.tokens[start + i]));
  if (layout.isolated) CHECK(at<Id>(batch, 2 * layout.column_bytes(), place) == static_cast<Id>(i));
  const auto about = labels == Labels::next ? i + 1 : i;
  const bool said = about < count, learned = said && about > 0 && from.mask[start + about] != 0;
  CHECK(at<Id>(batch, layout.column_bytes(), place) == (learned ? static_cast<Id>(from.tokens[start + about]) : Id{no_loss}));
  CHECK(at<float>(batch, rows.offset(layout, 0), place) == (learned ? from.logprobs[start + about] : 0.0F));
  CHECK(at<Id>(batch, rows.offset(layout, 1), place) == (said ? static_cast<Id>(from.versions[start + about]) : Id{0}));
  CHECK(at<std::uint16_t>(batch, rows.offset(layout, 2), 2 * place) == from.pairs[2 * (start + i)]);
  CHECK(at<std::uint16_t>(batch, rows.offset(layout, 2), 2 * place + 1) == from.pairs[2 * (start + i) + 1]);
  CHECK(at<float>(batch, rows.offset(layout, 3), place) == (learned ? static_cast<float>(from.advantages[row]) : 0.0F));
  bool last = learned;
  for (auto later = about + 1; later < count; ++later) last = last && from.mask[start + later] == 0;
  CHECK(at<float>(batch, rows.offset(layout, 4), place) == (last ? static_cast<float>(from.advantages[row]) : 0.0F));
  if (layout.weighted) CHECK(batch.weights()[place] == (learned ? static_cast<float>(weight) : 0.0F));
}

template <typename Id>
void check_padding(const Batch& batch, const RaggedRows& rows, std::size_t place) {
  const auto& layout = batch.layout();
  CHECK(at<Id>(batch, 0, place) == Id{7} && at<Id>(batch, layout.column_bytes(), place) == Id{no_loss});
  CHECK(at<float>(batch, rows.offset(layout, 0), place) == 0.0F && at<Id>(batch, rows.offset(layout, 1), place) == Id{0});
  CHECK(at<std::uint32_t>(batch, rows.offset(layout, 2), place) == 0 && at<float>(batch, rows.offset(layout, 3), place) == 0.0F);
  if (layout.weighted) CHECK(batch.weights()[place] == 0.0F);
}

template <typename Id>
void check_rows(Random& random) {
  const std::vector<Rollouts> blocks{Rollouts(random), Rollouts(random), Rollouts(random)};
  const RaggedShape shape{random.chance(2) ? Labels::next : Labels::same, 7, sizeof(Id), random.chance(2)};
  const bool weighted = random.chance(2);
  const RaggedRows rows(shape, columns(sizeof(Id)), {blocks[0].block(), blocks[1].block(), blocks[2].block()});
  std::vector<RaggedPlace> places;
  std::vector<std::uint64_t> row_ends;
  std::size_t longest = 0;
  for (auto wanted = random.below(5); wanted > 0; --wanted) {
    std::size_t length = 0;
    for (auto segments = shape.packed ? random.below(4) : 1; segments > 0; --segments) {
      const auto block = random.below(3);
      if (blocks[block].ends.empty()) continue;
      const auto row = random.below(blocks[block].ends.size());
      places.push_back({block, row, static_cast<double>(random.below(4))});
      length += static_cast<std::size_t>(blocks[block].ends[row]) - blocks[block].start(row);
    }
    row_ends.push_back(places.size());
    longest = std::max(longest, length);
  }
  CHECK(rows.longest(places, row_ends) == longest);
  const auto length = longest + random.below(3);
  Buffers buffers(std::make_shared<Budget>(), 2);
  auto batch = buffers.take(rows.layout(row_ends.size(), length, weighted));
  std::memset(batch->data(), 0x5A, batch->layout().bytes());
  rows.fill(places, row_ends, *batch);

  std::vector<std::int32_t> starts;
  std::size_t next = 0, tokens = 0;
  for (std::size_t number = 0; number < row_ends.size(); ++number) {
    auto place = number * length;
    for (; next < row_ends[number]; ++next) {
      const auto& from = blocks[places[next].block];
      const auto row = places[next].row;
      starts.push_back(static_cast<std::int32_t>(place));
      for (std::size_t i = 0; i < static_cast<std::size_t>(from.ends[row]) - from.start(row); ++i)
        check_token<Id>(*batch, rows, from, row, places[next].weight, place++, i, shape.labels);
    }
    const auto filled = place - number * length;
    CHECK(batch->lengths()[number] == static_cast<std::int32_t>(filled));
    tokens += filled;
    for (; place < (number + 1) * length; ++place) {
      starts.push_back(static_cast<std::int32_t>(place));
      check_padding<Id>(*batch, rows, place);
    }
  }
  CHECK(batch->facts.tokens == tokens && batch->facts.rows == row_ends.size() && batch->facts.fractional == weighted);
  if (!shape.packed) return;
  starts.push_back(static_cast<std::int32_t>(row_ends.size() * length));
  CHECK(batch->facts.segments + 1 == starts.size() && std::equal(starts.begin(), starts.end(), batch->starts()));
}

void what_cannot_be_is_refused() {
  const std::vector<std::int64_t> ends{2, 3};
  const std::vector<std::uint32_t> tokens{1, 2, 3};
  const std::vector<std::uint8_t> mask{1, 1, 1};
  const RaggedBlock block{ends, tokens, mask.data(), {}};
  const auto with_ends = [&](const std::vector<std::int64_t>& other) { return RaggedBlock{other, tokens, mask.data(), {}}; };
  const std::vector<std::int64_t> falling{3, 2}, empty{0, 3}, beyond{2, 4}, negative{-1, 3};
  for (const auto& wrong : {falling, empty, beyond, negative})
    CHECK_THROWS(RaggedRows({}, {}, {with_ends(wrong)}), std::invalid_argument);
  CHECK_THROWS(RaggedRows({.id_bytes = 2}, {}, {block}), std::invalid_argument);
  CHECK_THROWS(RaggedRows({}, {{Kind::masked, 8}}, {}), std::invalid_argument);
  CHECK_THROWS(RaggedRows({}, {{Kind::copied, 0}}, {}), std::invalid_argument);
  CHECK_THROWS(RaggedRows({}, {{Kind::copied, 1}}, {block}), std::invalid_argument);

  const RaggedRows rows({}, {}, {block});
  CHECK_THROWS(rows.layout(std::size_t{1} << 20, std::size_t{1} << 20, false), std::invalid_argument);
  Buffers buffers(std::make_shared<Budget>(), 2);
  auto batch = buffers.take(rows.layout(1, 2, false));
  const auto fill = [&](std::vector<RaggedPlace> places, std::vector<std::uint64_t> row_ends) {
    rows.fill(places, row_ends, *batch);
    return true;
  };
  CHECK_THROWS(fill({{1, 0}}, {1}), std::out_of_range);
  CHECK_THROWS(fill({{0, 2}}, {1}), std::out_of_range);
  CHECK_THROWS(fill({{0, 0}, {0, 1}}, {2}), std::invalid_argument);
  CHECK_THROWS(fill({{0, 0}}, {2}), std::invalid_argument);
  CHECK_THROWS(fill({{0, 0}}, {0}), std::invalid_argument);
  CHECK_THROWS(fill({{0, 1}}, {1, 1}), std::invalid_argument);
  CHECK(fill({{0, 0}}, {1}));
}

void buffers_are_used_again_and_grow() {
  const auto budget = std::make_shared<Budget>(std::size_t{1} << 20);
  Buffers buffers(budget, 1);
  const BatchLayout small{.rows = 1, .length = 100}, large{.rows = 1, .length = 10'000}, huge{.rows = 1, .length = 1'000'000};
  const std::byte* first = nullptr;
  { first = buffers.take(small)->data(); }
  CHECK(buffers.take(small)->data() == first);
  const auto kept = buffers.take(small);
  CHECK(buffers.take(large)->layout().length == 10'000);
  CHECK(kept->layout().length == 100);
  CHECK(!buffers.take(huge));
  CHECK(buffers.take(large));  // as before
}

}  // namespace

int main() {
  Random random;
  for (int round = 0; round < 3000; ++round) {
    check_rows<std::int64_t>(random);
    check_rows<std::int32_t>(random);
  }
  what_cannot_be_is_refused();
  buffers_are_used_again_and_grow();
}
