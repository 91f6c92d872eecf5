// tests/bin_windows_test.cpp: rows of packed documents, from stores of every kind, against rows laid out document by document.
#include "core/order/bin_windows.h"

#include <set>

#include "stores.h"

using namespace millstream;

namespace {

struct PackedRun {
  RowShape shape;
  std::shared_ptr<const Packing> packing;
  std::shared_ptr<Feed> feed;
  std::uint64_t samples = 0;
};

PackedRun packed_run(Random& random, const TestStore& store) {
  PackedRun run;
  run.shape = {random.between(1, 40), random.chance(2) ? Labels::next : Labels::same, Documents::packed, 7,
               random.chance(2) ? 4u : 8u};
  const auto key = random.chance(2) ? std::optional(random.word()) : std::nullopt;
  const auto shards = store.open(random.chance(2) ? 16'384 : random.between(1, 3));
  run.packing = std::make_shared<Packing>(shards, random.between(1, 30), static_cast<std::uint32_t>(run.shape.length), key,
                                          Filling{random.chance(3) ? Fill::alone : Fill::best_fit});
  auto facts = count_bins(*run.packing);
  CHECK(facts.tokens + facts.cut == store.tokens.size());
  run.samples = facts.windows.samples();
  const auto shuffle = random.chance(2) ? Shuffle::global : Shuffle::none;
  const OrderSpec order{shuffle, run.samples, random.word(), 1, 1, std::make_shared<Windows>(facts.windows)};
  run.feed = std::make_shared<Feed>(
      std::vector<FeedSource>{{shards, 0, Documents::packed, run.packing, facts.most_documents}},
      Plan({{order, order, 1, 0, 0}}, std::nullopt), run.shape);
  return run;
}

TestStore some_store(Random& random) {
  constexpr Dtype dtypes[] = {Dtype::uint16, Dtype::uint32, Dtype::int32, Dtype::weighted};
  const auto dtype = dtypes[random.below(4)];
  const auto vocabulary = dtype == Dtype::weighted && random.chance(2) ? std::uint64_t{1} << 32 : 60'000;
  return {dtype, some_shards(random, random.between(1, 20), vocabulary), random.chance(3) ? 16u : 0u};
}

void packed_rows_hold_every_document_once() {
  Random random;
  for (int round = 0; round < 150; ++round) {
    const auto store = some_store(random);
    const auto run = packed_run(random, store);
    PlanScratch plan;
    run.feed->plan().rows(0, run.samples, plan);
    Packer packer(run.packing->capacity());
    PackedWindow window;
    std::multiset<std::uint64_t> seen;
    std::vector<ExpectedRow> rows;
    for (const auto& [source, sample] : plan.rows) {
      run.packing->plan(sample / run.packing->window_documents(), window, packer);
      std::vector<std::uint64_t> documents;
      const auto bin = sample % run.packing->window_documents();
      for (const auto item : window.bins[bin]) {
        documents.push_back(window.documents[item].number);
        CHECK(run.packing->place_of(documents.back()) == std::pair(window.number, std::uint64_t{item}));
      }
      seen.insert(documents.begin(), documents.end());
      rows.push_back(packed_row(store, run.shape, documents));
    }
    check_batch(*filled(*run.feed, 0, run.samples, run.samples), rows);
    check_weight(*run.feed, 0, rows, run.shape.labels);
    for (std::uint64_t document = 0; document < store.ends.size(); ++document) {
      const auto start = document == 0 ? 0 : store.ends[document - 1];
      CHECK(seen.count(document) == (store.ends[document] > start));
    }
  }
}

// Rows in groups of about one length, each as long as its longest document: every document once, and never over the budget.
void groups_of_rows_keep_their_budget() {
  Random random{3};
  for (int round = 0; round < 150; ++round) {
    const auto store = some_store(random);
    const RowShape shape{random.between(1, 40), random.chance(2) ? Labels::next : Labels::same, Documents::row, 7,
                         random.chance(2) ? 4u : 8u};
    const auto capacity = static_cast<std::uint32_t>(shape.length);
    const auto budget = random.chance(3) ? 0 : shape.length + random.below(100);
    const auto unit = static_cast<std::uint32_t>(random.below(shape.length + 1));
    const auto shards = store.open(random.chance(2) ? 16'384 : random.between(1, 3));
    const auto packing = std::make_shared<Packing>(shards, random.between(1, 30), capacity, std::optional(random.word()),
                                                   Filling{Fill::by_length, budget, unit});
    auto facts = count_bins(*packing);
    facts.windows.block = random.below(4);
    facts.windows.foremost = facts.longest;
    const auto samples = facts.windows.samples();
    const OrderSpec order{Shuffle::global, samples, random.word(), 1, 1, std::make_shared<Windows>(facts.windows)};
    FeedShape row = shape;
    row.unit = unit;
    const Feed feed({{shards, 0, Documents::row, packing, facts.most_documents}}, Plan({{order, order, 1, 0, 0}}, std::nullopt), row);
    PlanScratch plan;
    feed.plan().rows(0, samples, plan);
    CHECK(plan.rows[0].sample == facts.longest);
    Packer packer(capacity);
    PackedWindow window;
    std::multiset<std::uint64_t> seen;
    for (std::uint64_t position = 0; position < samples; ++position) {
      const auto sample = plan.rows[position].sample;
      packing->plan(sample / packing->window_documents(), window, packer);
      std::size_t longest = 0;
      std::vector<std::uint64_t> documents;
      for (const auto item : window.bins[sample % packing->window_documents()]) {
        documents.push_back(window.documents[item].number);
        longest = std::max<std::size_t>(longest, window.documents[item].count);
      }
      CHECK(longest <= (budget == 0 ? shape.length : budget));
      seen.insert(documents.begin(), documents.end());
      auto padded = shape;
      padded.length = padded_length(longest, unit, shape.length);
      CHECK(budget == 0 ? documents.size() == 1 : documents.size() * padded.length <= budget);
      std::vector<ExpectedRow> rows;
      for (const auto document : documents) rows.push_back(expected_row(store, padded, document));
      const auto batch = filled(feed, position, 1, 1);
      CHECK(batch->layout().length == padded.length && batch->facts.rows == rows.size() && batch->facts.filler == 0);
      check_batch(*batch, rows);
    }
    for (std::uint64_t document = 0; document < store.ends.size(); ++document) {
      const auto start = document == 0 ? 0 : store.ends[document - 1];
      CHECK(seen.count(document) == (store.ends[document] > start));
    }
    const auto filler = filled(feed, 0, 0, 1);
    CHECK(filler->facts.rows == 0 && filler->facts.filler == 1 && filler->layout().length == padded_length(0, unit, shape.length));
  }
}

void what_cannot_be_is_refused() {
  Random random{2};
  const TestStore store(Dtype::uint16, some_shards(random, 5));
  const auto shards = store.open();
  CHECK_THROWS(Packing(shards, 0, 4, std::nullopt), std::invalid_argument);
  CHECK_THROWS(Packing(shards, 4, 0, std::nullopt), std::invalid_argument);
  CHECK_THROWS(Packing(shards, 4, 9, std::nullopt, Filling{Fill::by_length, 8}), std::invalid_argument);
  CHECK_THROWS(Packing(shards, 4, 9, std::nullopt, Filling{Fill::best_fit, 9}), std::invalid_argument);
  const auto packing = std::make_shared<Packing>(shards, 4, 9, std::nullopt);
  PackedWindow window;
  Packer packer(9);
  CHECK_THROWS(packing->plan(packing->windows(), window, packer), std::out_of_range);
  CHECK_THROWS(Feed({{shards, 0, Documents::packed, packing}}, plain_plan(3), FeedShape{.length = 8}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0, Documents::packed}}, plain_plan(3), FeedShape{.length = 9}), std::invalid_argument);
  CHECK_THROWS(Feed({{shards, 0, Documents::attend, packing}}, plain_plan(3), FeedShape{.length = 9}), std::invalid_argument);
}

void a_lying_index_is_an_error() {
  Random random{4};
  const TestStore store(Dtype::uint16, some_shards(random, 5));
  auto bytes = std::vector<std::byte>(64);
  std::ifstream(store.index(4), std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), 64);
  const auto documents = store.table[4 * 8 + 3];
  for (std::uint64_t document = 0; document < documents; ++document) append(bytes, std::uint64_t{1} << 40);
  write_file(store.index(4), bytes);
  const Packing packing(store.open(), 1000, 9, std::nullopt);
  CHECK_THROWS(count_bins(packing), DataError);
}

}  // namespace

int main() {
  packed_rows_hold_every_document_once();
  groups_of_rows_keep_their_budget();
  what_cannot_be_is_refused();
  a_lying_index_is_an_error();
}
