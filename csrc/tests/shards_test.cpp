// tests/shards_test.cpp: rows of many small shards against the obvious, few mappings and many threads, and files that lie.
#include "core/store/shards.h"

#include <fstream>
#include <functional>
#include <thread>

#include "core/fill/readahead.h"
#include "core/memory/guard.h"
#include "stores.h"

using namespace millstream;

namespace {

constexpr std::uint64_t huge = ~std::uint64_t{0};

const std::vector<Documents> all_documents = {Documents::attend, Documents::isolate, Documents::row};

// The error's text, or "" if there was none.
std::string complaint(const std::function<void()>& act) {
  try {
    act();
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Feed feed_of(std::shared_ptr<Shards> shards, std::uint64_t samples, const RowShape& shape, std::uint32_t limit = 0) {
  return {{{std::move(shards), limit, shape.documents}}, plain_plan(samples), shape};
}

void check_all_rows(const TestStore& store, const RowShape& shape, std::size_t most_mapped, bool pad_tail) {
  const auto samples = store.samples(shape, pad_tail);
  if (samples == 0) return;
  const auto feed = feed_of(store.open(most_mapped), samples, shape);
  std::vector<ExpectedRow> rows;
  for (std::uint64_t sample = 0; sample < samples; ++sample) rows.push_back(expected_row(store, shape, sample));
  check_batch(*filled(feed, 0, samples, samples), rows);
}

void rows_of_small_shards_are_the_obvious_ones() {
  Random random;
  for (int round = 0; round < 12; ++round)
    for (const auto dtype : {Dtype::uint16, Dtype::uint32, Dtype::int32}) {
      const TestStore store(dtype, some_shards(random, random.between(1, 30)));
      for (const auto documents : all_documents)
        for (const auto labels : {Labels::next, Labels::same}) {
          const RowShape shape{random.between(1, 25), labels, documents, 7, random.chance(2) ? 4u : 8u};
          check_all_rows(store, shape, random.chance(2) ? 16'384 : random.between(1, 4), random.chance(2));
        }
    }
}

void a_window_may_cross_many_shards() {
  std::vector<TestStore::Shard> shards;
  for (std::uint32_t i = 0; i < 40; ++i) {
    shards.push_back({{i}});
    if (i % 3 == 0) shards.push_back({{}});       // an empty document
    if (i % 4 == 0) shards.push_back({{}, {}, {}});  // three of them
  }
  const TestStore store(Dtype::uint16, shards);
  for (const auto documents : all_documents)
    for (const std::size_t length : {1u, 2u, 7u, 13u, 39u, 40u, 41u})
      for (const std::size_t most_mapped : {1u, 2u, 100u})
        for (const bool pad_tail : {false, true})
          check_all_rows(store, {length, Labels::next, documents, 7, 8}, most_mapped, pad_tail);
}

// Files may lie anywhere, under any name; one that no row needs may be missing.
void shards_may_lie_anywhere_or_be_missing_where_no_row_is_asked_for() {
  Random random{4};
  const auto whole = some_shards(random, 12);
  const TestStore store(Dtype::uint16, whole);
  const Folder elsewhere;
  auto layout = store.layout();
  layout.directory.clear();
  for (std::size_t shard = 0; shard < store.shards(); ++shard) {
    const auto number = std::to_string(store.shards() - shard);
    layout.paths.emplace_back(elsewhere / ("tokens." + number), elsewhere / ("ends." + number));
    if (shard < 5) continue;  // a hole
    std::filesystem::copy_file(store.bin(shard), layout.paths.back().first);
    std::filesystem::copy_file(store.index(shard), layout.paths.back().second);
  }
  for (const auto documents : {Documents::attend, Documents::isolate}) {
    const RowShape shape{4, Labels::next, documents, 7, 8};
    const auto samples = store.samples(shape), first = (store.table[8 * 5] + 3) / 4;
    const auto feed = feed_of(std::make_shared<Shards>(layout), samples, shape);
    std::vector<ExpectedRow> rows;
    for (auto sample = first; sample < samples; ++sample) rows.push_back(expected_row(store, shape, sample));
    check_batch(*filled(feed, first, rows.size(), rows.size()), rows);
    const auto text = complaint([&] { (void)filled(feed, 0, 1, 1); });
    CHECK(mentions(text, "/tokens.") && mentions(text, "cannot be opened"));
  }
  layout.paths.pop_back();
  CHECK_THROWS(Shards(layout), std::invalid_argument);
}

// Rows in windows are asked for one by one: only their shards are opened, whatever the shuffle is.
void reading_ahead_opens_no_shard_that_no_row_needs() {
  const TestStore store(Dtype::uint16, {{TestStore::Document(400)}, {TestStore::Document(801)}});
  std::filesystem::remove(store.bin(0));
  const auto windows = std::make_shared<Windows>(Windows{{100, 0, 200}, 0, false, 0, std::nullopt, true, {0}});
  for (const auto shuffle : {Shuffle::none, Shuffle::global, Shuffle::local}) {
    const auto mapped = std::make_shared<Shards::Mapped>(8);
    const OrderSpec order{shuffle, 300, 99, 4, 3, windows};
    const Feed feed({{store.open_among(mapped)}}, Plan({{order, order}}, std::nullopt), RowShape{4});
    ReadAhead ahead(feed, {300, 300, 4, 0, 4}, 0);
    ahead.before(0, false);  // no question is due before step 129, which begins at row 216 of the second epoch
    CHECK(mapped->count() == 0);
    ahead.before(65, false);
    CHECK(mapped->count() == 1);
  }
}

void every_token_and_document_is_found_in_its_shard() {
  Random random{3};
  for (int round = 0; round < 20; ++round) {
    const TestStore store(Dtype::uint16, some_shards(random, random.between(1, 50)));
    const auto shards = store.open();
    CHECK(shards->tokens() == store.tokens.size() && shards->documents() == store.ends.size());
    for (std::uint64_t token = 0; token < store.tokens.size(); ++token) {
      const auto row = shards->row(shards->shard_of_token(token));
      CHECK(row.first_token <= token && token - row.first_token < row.tokens);
    }
    for (std::uint64_t document = 0; document < store.ends.size(); ++document) {
      const auto row = shards->row(shards->shard_of_document(document));
      CHECK(row.first_document <= document && document - row.first_document < row.documents);
    }
  }
}

void threads_share_two_mappings() {
  Random random{5};
  const TestStore store(Dtype::uint16, some_shards(random, 40));
  for (const std::size_t most_mapped : {1u, 2u, 5u}) {
    const auto shards = store.open(most_mapped);
    const auto work = [&](std::uint64_t seed) {
      Random own{seed};
      for (int batch = 0; batch < 25; ++batch) {
        const RowShape shape{own.between(1, 12), Labels::next, all_documents[own.below(3)], 7, 8};
        const auto samples = store.samples(shape), count = own.between(1, 20);
        const auto feed = feed_of(shards, samples, shape);
        const auto first = own.below(samples);
        std::vector<ExpectedRow> rows;
        for (auto i = first; i < first + count; ++i) rows.push_back(expected_row(store, shape, i % samples));
        check_batch(*filled(feed, first, count, count), rows);
      }
    };
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed * 77);
  }
}

// The limit holds over all stores, and a store that goes leaves its room to the others.
void stores_share_one_limit_of_mappings() {
  Random random{6};
  const TestStore one(Dtype::uint16, some_shards(random, 30)), other(Dtype::uint32, some_shards(random, 30));
  const RowShape shape{5, Labels::next, Documents::isolate, 7, 8};
  const auto mapped = std::make_shared<Shards::Mapped>(4);
  for (int round = 0; round < 3; ++round) {
    const auto look_at = [&](const TestStore& store, const Feed& feed) {
      for (std::uint64_t sample = 0; sample < store.samples(shape); ++sample) {
        check_batch(*filled(feed, sample, 1, 1), {expected_row(store, shape, sample)});
        CHECK(mapped->count() <= 4);
      }
    };
    {
      const auto first = feed_of(one.open_among(mapped), one.samples(shape), shape);
      const auto second = feed_of(other.open_among(mapped), other.samples(shape), shape);
      look_at(one, first);
      look_at(other, second);
      look_at(one, first);
    }
    CHECK(mapped->count() == 0);
  }
}

// Whatever a store says of its ids, none becomes negative in a batch, and an error names the id as the store holds it.
void ids_that_no_batch_can_hold_are_refused() {
  const auto complaint_about = [](Dtype dtype, std::uint32_t id, std::size_t id_bytes, std::uint32_t limit) {
    const TestStore store(dtype, {{{1, 2, 3, 4, 5}}});
    std::fstream file(store.bin(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(frame_bytes + 2 * sizeof id);
    file.write(reinterpret_cast<const char*>(&id), sizeof id).flush();
    const RowShape shape{4, Labels::next, Documents::attend, 0, id_bytes};
    return complaint([&] { (void)filled(feed_of(store.open(), 1, shape, limit), 0, 1, 1); });
  };
  constexpr std::uint32_t too_large = std::uint32_t{1} << 31;
  CHECK(mentions(complaint_about(Dtype::uint32, too_large, 4, 0), "holds the id 2147483648"));
  CHECK(mentions(complaint_about(Dtype::int32, static_cast<std::uint32_t>(-5), 4, 0), "holds the id -5"));
  CHECK(mentions(complaint_about(Dtype::int32, static_cast<std::uint32_t>(-5), 8, 100), "holds the id -5,"));
  CHECK(complaint_about(Dtype::uint32, too_large, 8, 0).empty());
  CHECK(complaint_about(Dtype::uint32, too_large - 1, 4, 0).empty());
}

// Tries all rows of a store of which something was broken; the answer is an error or the right rows, never a crash.
std::string complaint_of(const TestStore& store, Documents documents, std::uint32_t limit = 0) {
  return complaint([&] {
    for (const std::size_t length : {6u, 2u}) {
      const RowShape shape{length, Labels::next, documents, 0, 8};
      const auto samples = store.samples(shape);
      (void)filled(feed_of(store.open(), samples, shape, limit), 0, samples, samples);
    }
  });
}

TestStore four_shards() {
  return {Dtype::uint16,
          {{{1, 2, 3}, {4, 5, 6, 7}}, {{8, 9, 10, 11, 12}}, {{13, 14, 15}, {16, 17}, {18, 19, 20}}, {{21, 22, 23, 24}}}};
}

void missing_and_cut_files_are_errors_that_name_the_file() {
  for (const auto documents : all_documents) {
    CHECK(complaint_of(four_shards(), documents).empty());
    {
      const auto store = four_shards();
      std::filesystem::remove(store.bin(2));
      const auto text = complaint_of(store, documents);
      CHECK(mentions(text, "00004.bin") && mentions(text, "cannot be opened"));
    }
    for (const std::uintmax_t bytes : {0u, 10u, 63u, 64u, 70u}) {
      const auto store = four_shards();
      std::filesystem::resize_file(store.bin(1), bytes);
      CHECK(mentions(complaint_of(store, documents), "00002.bin"));
    }
    for (const std::uintmax_t bytes : {0u, 10u, 64u, 72u}) {
      const auto store = four_shards();
      std::filesystem::resize_file(store.index(2), bytes);
      CHECK(mentions(complaint_of(store, documents), "00004.idx"));
    }
    {
      const auto store = four_shards();
      std::filesystem::remove(store.bin(2));
      std::filesystem::create_directory(store.bin(2));
      CHECK(mentions(complaint_of(store, documents), "00004.bin"));
    }
  }
}

void a_shard_of_another_store_is_refused() {
  for (const auto documents : all_documents) {
    auto store = four_shards();
    store.table[8 * 1 + 4] += 1;  // the tag
    CHECK(mentions(complaint_of(store, documents), "not the shard"));
    const auto swapped = four_shards();
    std::filesystem::rename(swapped.bin(1), swapped.bin(2));
    CHECK(mentions(complaint_of(swapped, documents), "00002.bin"));
    const auto other = four_shards();
    auto layout = other.layout();
    layout.dtype = Dtype::int32;
    CHECK(mentions(complaint([&] {
                     const auto shards = std::make_shared<Shards>(layout);
                     (void)filled(feed_of(shards, 3, {6, Labels::next, documents, 0, 8}), 0, 3, 3);
                   }),
                   "not the shard"));
    const auto index = four_shards();
    std::filesystem::copy_file(index.index(0), index.index(2), std::filesystem::copy_options::overwrite_existing);
    CHECK(mentions(complaint_of(index, documents), "00004.idx"));
  }
}

void damage_index(const TestStore& store, std::size_t shard, std::size_t document, std::uint64_t end) {
  std::fstream file(store.index(shard), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(64 + 8 * document));
  file.write(reinterpret_cast<const char*>(&end), sizeof end);
  CHECK(file.good());
}

// Whatever stands in an index: an error or rows of real tokens, with nothing read from outside the shard.
void a_damaged_index_is_an_error_or_harmless() {
  for (std::size_t document = 0; document < 3; ++document)
    for (const std::uint64_t end : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{7}, std::uint64_t{9},
                                    std::uint64_t{1} << 40, huge / 2, huge - 1, huge}) {
      const auto store = four_shards();
      damage_index(store, 2, document, end);
      for (const auto documents : all_documents) {
        const auto text = complaint_of(store, documents);
        CHECK(text.empty() || (mentions(text, "0004.") && mentions(text, "index")));
      }
    }
  const auto falling = four_shards();
  damage_index(falling, 2, 1, 1);  // 3, 1, 8
  CHECK(mentions(complaint_of(falling, Documents::row), "damaged"));
  CHECK(mentions(complaint_of(falling, Documents::isolate), "damaged"));
  const auto outside = four_shards();
  damage_index(outside, 2, 2, 9);  // the shard has 8 tokens
  CHECK(mentions(complaint_of(outside, Documents::row), "damaged"));
  const auto short_one = four_shards();
  damage_index(short_one, 2, 2, 5);  // ends before its tokens do
  CHECK(mentions(complaint_of(short_one, Documents::isolate), "0004."));
}

void an_id_outside_the_vocabulary_names_its_shard() {
  for (const auto documents : all_documents) {
    CHECK(complaint_of(four_shards(), documents, 25).empty());
    const auto text = complaint_of(four_shards(), documents, 14);
    CHECK(mentions(text, "00004.bin") && mentions(text, "holds the id 1") && mentions(text, "ends at 13"));
  }
}

// Tables come from files. Python checks them, and still no table may make the core read outside its files.
void a_table_that_lies_is_an_error_or_harmless() {
  Random random{21};
  const std::vector<std::uint64_t> lies = {0, 1, 2, 5, 19, 24, 25, 1000, std::uint64_t{1} << 31, std::uint64_t{1} << 62,
                                           huge / 2, huge - 3, huge};
  const auto good = four_shards();
  for (int round = 0; round < 1500; ++round) {
    auto table = good.table;
    for (auto changes = random.between(1, 3); changes > 0; --changes)
      table[random.below(4) * 8 + random.below(4)] = lies[random.below(lies.size())];
    auto layout = good.layout();
    layout.table = table.data();
    if (random.chance(3)) layout.index = IndexKind::none;
    const RowShape shape{random.between(1, 30), Labels::next, all_documents[random.below(3)], 0, 8};
    const auto sample = random.chance(2) ? random.below(30) : lies[random.below(lies.size())];
    (void)complaint([&] {
      const auto shards = std::make_shared<Shards>(layout);
      (void)filled(feed_of(shards, std::min(sample, huge / 4) + 1, shape), std::min(sample, huge / 4), 1, 1);
    });
  }
}

void a_sample_behind_the_end_is_an_error() {
  const auto store = four_shards();
  for (const auto documents : all_documents)
    for (const std::uint64_t sample : {std::uint64_t{24}, std::uint64_t{100}, std::uint64_t{1} << 61, std::uint64_t{1} << 62}) {
      const RowShape shape{4, Labels::next, documents, 0, 8};
      const auto feed = feed_of(store.open(), (std::uint64_t{1} << 62) + 1, shape);
      CHECK(!complaint([&] { (void)filled(feed, sample, 1, 1); }).empty());
    }
}

void a_store_without_shards_is_refused() {
  StoreLayout layout;
  CHECK_THROWS(Shards(layout), DataError);
}

// One bare file: no frame, no index, one document.
void a_bare_file_is_read_in_place() {
  const Folder folder;
  std::vector<std::byte> bytes;
  for (std::uint16_t i = 0; i < 50; ++i) append(bytes, i);
  write_file(folder / "bare.bin", bytes);
  const std::vector<std::uint64_t> table = {0, 50, 0, 1, 0, 0, 0, 0};
  StoreLayout layout;
  layout.file = folder / "bare.bin";
  layout.table = table.data();
  layout.shards = 1;
  for (const auto documents : {Documents::attend, Documents::isolate}) {
    const auto batch = filled(feed_of(std::make_shared<Shards>(layout), 7, {7, Labels::next, documents, 0, 8}), 0, 7, 7);
    const auto* const ids = reinterpret_cast<const std::int64_t*>(batch->data());
    const auto* const labels = ids + batch->layout().column_bytes() / sizeof(std::int64_t);
    for (std::int64_t i = 0; i < 49; ++i) CHECK(ids[i] == i && labels[i] == i + 1);
  }
  const auto whole = filled(feed_of(std::make_shared<Shards>(layout), 1, {60, Labels::next, Documents::row, 0, 8}), 0, 1, 1);
  CHECK(whole->facts.tokens == 50 && whole->facts.cut == 0);
  std::filesystem::resize_file(folder / "bare.bin", 99);
  const auto cut = feed_of(std::make_shared<Shards>(layout), 1, {7, Labels::next, Documents::attend, 0, 8});
  CHECK(mentions(complaint([&] { (void)filled(cut, 0, 1, 1); }), "too few"));
}

void an_empty_file_is_one_empty_document() {
  const Folder folder;
  write_file(folder / "bare.bin", {});
  const std::vector<std::uint64_t> table = {0, 0, 0, 1, 0, 0, 0, 0};
  StoreLayout layout;
  layout.file = folder / "bare.bin";
  layout.table = table.data();
  layout.shards = 1;
  const auto batch = filled(feed_of(std::make_shared<Shards>(layout), 1, {7, Labels::next, Documents::row, 0, 8}), 0, 1, 1);
  CHECK(batch->facts.tokens == 0 && batch->lengths()[0] == 0);
  const auto windows = feed_of(std::make_shared<Shards>(layout), 1, {7, Labels::next, Documents::attend, 0, 8});
  CHECK(mentions(complaint([&] { (void)filled(windows, 0, 1, 1); }), "no row 0"));
}

// Documents in Megatron's way: byte pointers of sequences, and which sequence each document starts with.
void a_megatron_index_cuts_documents_and_may_lie() {
  const Folder folder;
  std::vector<std::byte> tokens, good;
  for (std::int32_t i = 0; i < 20; ++i) append(tokens, i);
  write_file(folder / "m.bin", tokens);
  const std::vector<std::uint64_t> words = {0, 12, 32, 48, /* boundaries */ 0, 1, 1, 3, 4};  // 4 sequences, 4 documents
  for (const auto word : words) append(good, word);
  const std::vector<std::uint64_t> table = {0, 20, 0, 4, 0, 0, 0, 0};
  StoreLayout layout;
  layout.file = folder / "m.bin";
  layout.index_file = folder / "m.idx";
  layout.dtype = Dtype::int32;
  layout.table = table.data();
  layout.shards = 1;
  layout.index = IndexKind::megatron;
  layout.pointers_offset = 0;
  layout.sequences = 4;
  layout.boundaries_offset = 32;
  layout.boundaries = 5;
  const auto read = [&](Documents documents) {
    const std::uint64_t rows = documents == Documents::row ? 4 : 3;
    return filled(feed_of(std::make_shared<Shards>(layout), rows, {6, Labels::next, documents, 0, 8}), 0, rows, rows);
  };
  write_file(folder / "m.idx", good);
  const auto batch = read(Documents::row);  // [0, 3), [3, 3), [3, 12), [12, 20)
  CHECK(batch->lengths()[0] == 3 && batch->lengths()[1] == 0 && batch->lengths()[2] == 6 && batch->lengths()[3] == 6);
  CHECK(batch->facts.cut == 5);
  Random random{2};
  for (int round = 0; round < 300; ++round) {
    auto bytes = good;
    const std::uint64_t lie = random.chance(2) ? random.below(90) : random.word() >> random.below(64);
    std::memcpy(bytes.data() + 8 * random.below(words.size()), &lie, sizeof lie);
    if (random.chance(8)) bytes.resize(random.below(bytes.size()));
    write_file(folder / "m.idx", bytes);
    for (const auto documents : all_documents) (void)complaint([&] { (void)read(documents); });
  }
}

void a_file_that_shrinks_under_its_mapping_is_an_error() {
  install_guard();
  std::vector<TestStore::Shard> shards(1);
  shards[0].emplace_back(20'000, 5u);
  const TestStore store(Dtype::uint32, shards);
  const RowShape shape{1000, Labels::next, Documents::attend, 0, 8};
  const auto feed = feed_of(store.open(), store.samples(shape), shape);
  (void)filled(feed, 0, 1, 1);
  std::filesystem::resize_file(store.bin(0), 4096);
  CHECK(mentions(complaint([&] { (void)filled(feed, 10, 4, 4); }), "became shorter"));
  CHECK(mentions(complaint([&] { (void)filled(feed, 10, 4, 4); }), "00000.bin"));  // and again, in the same process
}

}  // namespace

int main() {
  rows_of_small_shards_are_the_obvious_ones();
  a_window_may_cross_many_shards();
  shards_may_lie_anywhere_or_be_missing_where_no_row_is_asked_for();
  reading_ahead_opens_no_shard_that_no_row_needs();
  every_token_and_document_is_found_in_its_shard();
  threads_share_two_mappings();
  stores_share_one_limit_of_mappings();
  ids_that_no_batch_can_hold_are_refused();
  missing_and_cut_files_are_errors_that_name_the_file();
  a_shard_of_another_store_is_refused();
  a_damaged_index_is_an_error_or_harmless();
  an_id_outside_the_vocabulary_names_its_shard();
  a_sample_behind_the_end_is_an_error();
  a_table_that_lies_is_an_error_or_harmless();
  a_store_without_shards_is_refused();
  a_bare_file_is_read_in_place();
  an_empty_file_is_one_empty_document();
  a_megatron_index_cuts_documents_and_may_lie();
  a_file_that_shrinks_under_its_mapping_is_an_error();
}
