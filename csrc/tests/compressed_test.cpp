// tests/compressed_test.cpp: packed tokens come back as they were; a damaged file is an error that names the block, never a crash.
#include "core/store/compressed.h"

#include "core/fill/ring.h"
#include "core/order/clock.h"
#include "stores.h"

using namespace millstream;

namespace {

void packed_blocks_come_back_and_are_found_by_their_headers() {
  Random random;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> data(random.below(3000)), out(data.size());
    for (auto& byte : data) byte = static_cast<std::byte>(random.below(random.chance(2) ? 4 : 256));
    const auto block = random.between(1, 700);
    std::vector<std::uint64_t> ends((data.size() + block - 1) / block), found(ends.size());
    const auto packed = pack_blocks(data, block, 1, ends);
    const auto done = unpack_blocks(packed, ends, block, out);
    CHECK(done.blocks == ends.size() && done.reason.empty() && out == data);
    CHECK(find_frames(packed, found) == ends.size() && found == ends);
    if (packed.empty()) continue;
    CHECK(find_frames(std::span(packed).first(packed.size() - 1), found) == ends.size() - 1);  // a cut frame is none
  }
}

void a_damaged_block_ends_the_decoding_there() {
  const std::vector<std::byte> data(1000, std::byte{5});
  std::vector<std::uint64_t> ends(10);
  std::vector<std::byte> out(1000);
  auto packed = pack_blocks(data, 100, 1, ends);
  packed[ends[6] + 9] ^= std::byte{1};
  const auto done = unpack_blocks(packed, ends, 100, out);
  CHECK(done.blocks == 7 && !done.reason.empty());
  ends[2] = ends[1];
  CHECK(unpack_blocks(packed, ends, 100, out).blocks == 2);
  ends[2] = packed.size() + 1;
  CHECK(unpack_blocks(packed, ends, 100, out).blocks == 2);
  CHECK_THROWS(pack_blocks(data, 100, 1, std::span(ends).first(9)), std::invalid_argument);
}

TestStore one_packed_shard(Random& random) {
  std::vector<TestStore::Shard> shards(1);
  for (int number = 0; number < 40; ++number) {
    shards[0].emplace_back(random.below(40));
    for (auto& token : shards[0].back()) token = static_cast<std::uint32_t>(random.below(300));
  }
  shards[0].push_back({1, 2, 3});
  return {Dtype::uint16, shards, 16};
}

std::vector<std::byte> read_file(const std::string& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// Reads every row of a store; says what went wrong. Rows that are given must be right.
std::string complaint(const TestStore& store, const RowShape& shape) {
  try {
    const Feed feed({{store.open(), 0, shape.documents}}, plain_plan(store.samples(shape)), shape);
    for (std::uint64_t row = 0; row < store.samples(shape); ++row)
      check_batch(*filled(feed, row, 1, 1), {expected_row(store, shape, row)});
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

void any_damage_is_an_error_that_names_the_file_or_does_not_matter() {
  Random random;
  const auto store = one_packed_shard(random);
  const auto whole = read_file(store.bin(0));
  const RowShape shape{.length = 24};
  CHECK(complaint(store, shape).empty());
  int named = 0;
  for (int round = 0; round < 1500; ++round) {
    auto bytes = whole;
    for (auto flips = random.between(1, 3); flips > 0; --flips)
      bytes[random.between(round % 8 == 0 ? 0 : 64, bytes.size() - 1)] = static_cast<std::byte>(random.below(256));
    if (random.chance(10)) bytes.resize(random.below(bytes.size()));
    if (bytes.empty()) continue;
    write_file(store.bin(0), bytes);
    const auto found = complaint(store, shape);
    CHECK(bytes != whole || found.empty());
    CHECK(found.empty() || found.starts_with(store.bin(0)));
    named += found.find(": block ") != std::string::npos;
  }
  CHECK(named > 500);
}

void a_file_that_shrinks_or_changes_under_a_ring_is_an_error() {
  Random random;
  const auto store = one_packed_shard(random);
  const RowShape shape{.length = 24};
  install_guard();
  const Feed feed({{store.open(), 0, shape.documents}}, plain_plan(store.samples(shape)), shape);
  (void)filled(feed, 0, 1, 1);
  std::filesystem::resize_file(store.bin(0), 0);
  try {
    (void)filled(feed, 1, 1, 1);
    CHECK(false);
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find("became shorter") != std::string::npos);
  }
}

// A ring over plain and packed sources gives what one thread gives, with a scratch that its budget knows of.
void threads_share_packed_stores_within_the_budget() {
  Random random;
  const auto packed = one_packed_shard(random);
  const TestStore mixed(Dtype::uint32, some_shards(random, 9), 32), plain(Dtype::uint16, some_shards(random, 3));
  const RowShape shape{.length = 7};
  std::vector<FeedSource> sources;
  std::vector<Course> courses;
  const std::vector<const TestStore*> stores{&packed, &mixed, &plain};
  for (const auto* store : stores) {
    const OrderSpec order{Shuffle::global, std::max<std::uint64_t>(store->samples(shape, true), 1), 5, 4, 3};
    sources.push_back({store->open(), 0, shape.documents});
    courses.push_back({order, order, 1, 0, 0});
  }
  const auto feed = std::make_shared<Feed>(sources, Plan(courses, Mixture({2, 3, 1}, 8)), shape);
  const Feed without({{plain.open(), 0, shape.documents}}, plain_plan(3), shape);
  CHECK(feed->scratch_bytes(4) > without.scratch_bytes(4) + 16 * 32 * 4);
  const Clock clock{0, 600, 4, 0, 4, false};
  const auto pool = std::make_shared<Pool>(feed->layout(4).bytes(), std::make_shared<Budget>(), 5);
  Ring ring(feed, clock, 0, 3, 4, pool, false);
  for (std::uint64_t number = 0; number < 100; ++number) {
    std::optional<Batch> batch;
    while (ring.take(1'000'000'000, batch) == Ring::Outcome::waiting) continue;
    PlanScratch scratch;
    const auto step = clock.step(number);
    feed->plan().rows(step.first, step.own, scratch);
    std::vector<ExpectedRow> rows;
    for (const auto& row : scratch.rows) rows.push_back(expected_row(*stores[row.source], shape, row.sample));
    check_batch(*batch, rows);
  }
}

}  // namespace

int main() {
  packed_blocks_come_back_and_are_found_by_their_headers();
  a_damaged_block_ends_the_decoding_there();
  any_damage_is_an_error_that_names_the_file_or_does_not_matter();
  a_file_that_shrinks_or_changes_under_a_ring_is_an_error();
  threads_share_packed_stores_within_the_budget();
}
