// tests/gather_test.cpp: rows named one by one, some found in a store and some lent, against rows worked out token by token.
#include "core/gather.h"

#include "stores.h"

using namespace millstream;

namespace {

// Rows of a store, as somebody else would have made them.
struct Lender {
  std::vector<std::uint32_t> tokens, boundaries;
  std::vector<std::uint64_t> boundary_ends;

  void add(const TestStore& store, const RowShape& shape, std::uint64_t sample) {
    const auto begin = sample * shape.length;
    for (auto place = begin; place <= begin + shape.length; ++place) {
      tokens.push_back(store.tokens[place]);
      if (place > begin && store.document_of(place) != store.document_of(place - 1))
        boundaries.push_back(static_cast<std::uint32_t>(place - begin));
    }
    boundary_ends.push_back(boundaries.size());
  }

  LentRows rows() const { return {tokens, boundaries, boundary_ends}; }
};

std::unique_ptr<Batch> gathered(const Gather& gather, const std::vector<RowPlan>& plan, const LentRows& lent, std::size_t rows) {
  const auto layout = gather.layout(rows);
  const auto pool = std::make_shared<Pool>(layout.bytes(), std::make_shared<Budget>(), 0);
  auto batch = std::make_unique<Batch>(pool, pool->try_take(), layout);
  RowScratch scratch;
  gather.fill(plan, lent, *batch, scratch, std::atomic<bool>(false));
  return batch;
}

void a_lent_row_is_the_row_that_a_store_gives() {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const TestStore store(random.chance(2) ? Dtype::uint16 : Dtype::uint32, some_shards(random, random.between(1, 9)));
    const RowShape shape{random.between(1, 8), random.chance(2) ? Labels::next : Labels::same,
                         random.chance(2) ? Documents::attend : Documents::isolate, 7, random.chance(2) ? 4u : 8u};
    const Gather gather({{store.open(), 0, shape.documents}, {nullptr, 0, shape.documents}}, shape);
    Lender lender;
    std::vector<RowPlan> plan;
    std::vector<ExpectedRow> expected;
    std::uint64_t targets = 0;
    for (std::uint64_t row = 0; row < random.below(9); ++row) {
      const auto sample = random.below(store.samples(shape));
      const bool lends = random.chance(2);
      plan.push_back({lends, lends ? lender.boundary_ends.size() : sample});
      if (lends) lender.add(store, shape, sample);
      expected.push_back(expected_row(store, shape, sample));
      targets += expected.back().targets;
    }
    const auto rows = expected.size() + random.below(3);
    while (expected.size() < rows) expected.push_back(filler_row(shape));
    const auto batch = gathered(gather, plan, lender.rows(), rows);
    check_batch(*batch, expected);
    for (std::size_t row = 0; row < rows; ++row)
      CHECK(batch->sources()[row] == (row < plan.size() ? static_cast<std::int32_t>(plan[row].source) : -1));
    if (shape.documents == Documents::isolate) continue;
    RowScratch scratch;
    StepWeight weight;
    gather.weigh(plan, weight, scratch, std::atomic<bool>(false));  // without the lent rows
    CHECK(weight.targets == targets);
  }
}

void impossible_rows_are_refused() {
  const Gather gather({{nullptr, 0, Documents::isolate}}, FeedShape{.length = 3});
  const std::vector<std::uint32_t> tokens{1, 2, 3, 4}, once{1}, twice{2, 2}, behind{4}, none{};
  const std::vector<std::uint64_t> ends{1}, both{2}, far{5};
  const auto refused = [&](const RowPlan& row, const LentRows& lent) {
    CHECK_THROWS(gathered(gather, {row}, lent, 1), std::logic_error);
  };
  CHECK(gathered(gather, {{0, 0}}, {tokens, once, ends}, 1)->facts.segments == 2);
  refused({0, 1}, {tokens, once, ends});
  refused({1, 0}, {tokens, once, ends});
  refused({0, 0}, {once, none, {}});
  refused({0, 0}, {tokens, twice, both});
  refused({0, 0}, {tokens, behind, ends});
  refused({0, 0}, {tokens, once, far});
  CHECK_THROWS(Gather({{nullptr, 0, Documents::row}}, FeedShape{.length = 3}), std::invalid_argument);
}

}  // namespace

int main() {
  a_lent_row_is_the_row_that_a_store_gives();
  impossible_rows_are_refused();
}
