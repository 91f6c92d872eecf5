// tests/filler_test.cpp: clock, plan and stores together: batches of random runs against rows worked out token by token.
#include "core/fill/filler.h"

#include <chrono>
#include <thread>

#include "core/order/clock.h"
#include "stores.h"

using namespace millstream;

namespace {

constexpr Documents all_documents[] = {Documents::attend, Documents::isolate, Documents::row};

OrderSpec some_order(Random& random, std::uint64_t samples) {
  return {static_cast<Shuffle>(random.below(3)), samples, random.word(), random.between(1, 6), random.between(1, 4)};
}

// A run over some of the stores, of which the test knows every row.
struct Run {
  std::vector<const TestStore*> stores;
  RowShape shape;
  std::shared_ptr<Feed> feed;
  Clock clock;
  bool pad_last = false;

  std::vector<ExpectedRow> expected(const Step& step) const {
    PlanScratch scratch;
    feed->plan().rows(step.first, step.own, scratch);
    std::vector<ExpectedRow> rows;
    for (const auto& row : scratch.rows) rows.push_back(expected_row(*stores[row.source], shape, row.sample));
    while (pad_last && rows.size() < clock.rank_rows) rows.push_back(filler_row(shape));
    return rows;
  }
};

Run some_run(Random& random, const std::vector<std::unique_ptr<TestStore>>& stores) {
  Run run;
  run.shape = {random.between(1, 24), random.chance(2) ? Labels::next : Labels::same, all_documents[random.below(3)],
               static_cast<std::int64_t>(random.below(9)), random.chance(2) ? 4u : 8u};
  std::vector<FeedSource> sources;
  std::vector<Course> courses;
  std::vector<std::uint64_t> quotas;
  const auto wanted = random.chance(2) ? 1 : random.between(2, 3);
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const auto& store = *stores[random.below(stores.size())];
    const auto samples = store.samples(run.shape, random.chance(2));
    if (samples == 0) continue;
    run.stores.push_back(&store);
    sources.push_back({store.open(random.chance(2) ? 16'384 : random.between(1, 3)), 0, run.shape.documents});
    const auto order = some_order(random, samples);
    courses.push_back({order, order, 1, random.below(3), random.below(samples + 1)});
    quotas.push_back(random.between(1, 9));
  }
  if (courses.empty()) return some_run(random, stores);
  const auto left = courses[0].left(), size = courses[0].order.samples;
  std::optional<Mixture> mixture;
  if (courses.size() > 1 || random.chance(4)) mixture.emplace(quotas, random.word());
  run.feed = std::make_shared<Feed>(std::move(sources), Plan(std::move(courses), mixture), run.shape);
  const auto ranks = random.between(1, 3), rows = random.between(1, 6);
  run.clock = {mixture ? random.below(30) : left, mixture ? random.between(1, 60) : size, ranks * rows,
               random.below(ranks) * rows, rows, false};
  run.clock.drop_last = run.clock.size >= run.clock.global_rows && random.chance(3);
  run.pad_last = random.chance(3);
  return run;
}

std::vector<std::unique_ptr<TestStore>> some_stores(Random& random) {
  std::vector<std::unique_ptr<TestStore>> stores;
  for (const auto dtype : {Dtype::uint16, Dtype::uint32, Dtype::int32, Dtype::weighted}) {
    // Words of 32 bits are ids of 24 and codes of weights; half of the weighted stores know no weight but 0 and 1.
    const bool fractional = dtype == Dtype::weighted && random.chance(2);
    auto shards = some_shards(random, random.between(1, 12), fractional ? std::uint64_t{1} << 32 : 60'000);
    if (dtype == Dtype::weighted && !fractional)
      for (auto& shard : shards)
        for (auto& document : shard)
          for (auto& token : document) token |= random.chance(2) ? Weighted::whole << 24 : 0;
    stores.push_back(std::make_unique<TestStore>(dtype, shards, random.chance(2) ? 16 : 0));
  }
  return stores;
}

void check_steps(const Run& run, Random& random, int steps) {
  for (int i = 0; i < steps; ++i) {
    const auto step = run.clock.step(random.below(40));
    const auto rows = run.pad_last ? run.clock.rank_rows : step.own;
    const auto batch = filled(*run.feed, step.first, step.own, rows);
    const auto expected = run.expected(step);
    check_batch(*batch, expected);
    check_weight(*run.feed, step.first, {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(step.own)},
                 run.shape.labels);
    CHECK(batch->facts.rows == step.own && batch->facts.filler == rows - step.own);
    for (auto filler = step.own; filler < rows; ++filler) CHECK(batch->sources()[filler] == -1);
  }
}

void random_runs_give_the_obvious_batches() {
  const auto start = std::chrono::steady_clock::now();
  Random random;
  for (int corpus = 0; corpus < 40; ++corpus) {
    const auto stores = some_stores(random);
    for (int round = 0; round < 60; ++round) check_steps(some_run(random, stores), random, 3);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) break;  // sanitizers are slow
  }
}

// Each row of an epoch, put side by side over ranks and steps, is each token of the store once.
void the_ranks_of_an_epoch_cover_the_store_once() {
  Random random{4};
  const TestStore store(Dtype::uint16, some_shards(random, 20));
  const RowShape shape{4, Labels::next, Documents::attend, 0, 8};
  const auto samples = store.samples(shape);
  const Feed feed({{store.open(), 0, shape.documents}}, plain_plan(samples, Shuffle::local), shape);
  std::vector<int> used(samples);
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    const Clock clock{samples, samples, 6, rank * 2, 2, false};
    for (std::uint64_t number = 0; number < clock.steps_in(samples); ++number) {
      const auto step = clock.step(number);
      PlanScratch scratch;
      feed.plan().rows(step.first, step.own, scratch);
      std::vector<ExpectedRow> rows;
      for (const auto& row : scratch.rows) {
        ++used[row.sample];
        rows.push_back(expected_row(store, shape, row.sample));
      }
      check_batch(*filled(feed, step.first, step.own, step.own), rows);
    }
  }
  for (const int times : used) CHECK(times == 1);
}

// Two stores that may both be unmapped at any time, used by every thread in turns.
void threads_mix_stores_that_have_too_many_shards() {
  Random random{6};
  std::vector<std::unique_ptr<TestStore>> stores;
  for (int i = 0; i < 2; ++i) stores.push_back(std::make_unique<TestStore>(Dtype::uint16, some_shards(random, 40)));
  const RowShape shape{5, Labels::next, Documents::isolate, 0, 8};
  std::vector<FeedSource> sources;
  std::vector<Course> courses;
  for (const auto& store : stores) {
    sources.push_back({store->open(2), 0, shape.documents});
    const OrderSpec order{Shuffle::global, store->samples(shape), 3, 1, 1};
    courses.push_back({order, order, 1, 0, 0});
  }
  const Feed feed(sources, Plan(courses, Mixture({1, 1}, 9)), shape);
  std::vector<std::jthread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      Random own{seed};
      PlanScratch scratch;
      for (int round = 0; round < 60; ++round) {
        const auto first = own.below(1000);
        feed.plan().rows(first, 24, scratch);
        std::vector<ExpectedRow> rows;
        for (const auto& row : scratch.rows) rows.push_back(expected_row(*stores[row.source], shape, row.sample));
        check_batch(*filled(feed, first, 24, 24), rows);
      }
    });
}

void a_stopped_fill_returns_early() {
  Random random{8};
  const TestStore store(Dtype::uint16, some_shards(random, 5));
  const RowShape shape{3, Labels::next, Documents::isolate, 0, 8};
  const Feed feed({{store.open(), 0, shape.documents}}, plain_plan(store.samples(shape)), shape);
  const auto layout = feed.layout(4);
  const auto pool = std::make_shared<Pool>(layout.bytes(), std::make_shared<Budget>(), 0);
  Batch batch(pool, pool->try_take(), layout);
  FeedScratch scratch;
  feed.fill(0, 4, batch, scratch, std::atomic<bool>(true));
  CHECK(batch.facts.tokens == 0 && batch.facts.segments == 0);
}

void impossible_feeds_and_batches_are_refused() {
  Random random{9};
  const TestStore store(Dtype::uint16, some_shards(random, 5));
  const auto plan = plain_plan(3);
  const auto shards = store.open();
  CHECK_THROWS(Feed({}, plan, FeedShape{.length = 4}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0}, {shards, 0}}, plan, FeedShape{.length = 4}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0}}, plan, FeedShape{.length = 0}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0}}, plan, FeedShape{.length = (std::size_t{1} << 30) + 1}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0}}, plan, (FeedShape{.length = 4, .id_bytes = 2})), std::invalid_argument);
  CHECK_THROWS(Feed({{nullptr, 0}}, plan, FeedShape{.length = 4}), std::invalid_argument);
  const Feed feed({{shards, 0}}, plan, FeedShape{.length = 4});
  CHECK_THROWS(feed.layout(std::size_t{1} << 29), std::invalid_argument);  // 2^31 tokens: segment starts are 32 bits wide
  CHECK_THROWS(feed.layout(std::size_t{1} << 60), std::invalid_argument);  // its bytes would wrap around
  CHECK_THROWS(filled(feed, 0, 3, 2), std::invalid_argument);              // more rows than the batch has room for
}

}  // namespace

int main() {
  random_runs_give_the_obvious_batches();
  the_ranks_of_an_epoch_cover_the_store_once();
  threads_mix_stores_that_have_too_many_shards();
  a_stopped_fill_returns_early();
  impossible_feeds_and_batches_are_refused();
}
