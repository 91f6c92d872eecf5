// tests/ring_test.cpp: batches come in order whatever the threads do, failures in their turn, and every ending is prompt.
#include "core/fill/ring.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "stores.h"

using namespace millstream;
using Time = std::chrono::steady_clock;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;  // their allocators and threads do not outlive a fork
#else
constexpr bool sanitized = false;
#endif

constexpr std::int64_t slice_ns = 20'000'000;
constexpr std::size_t no_limit = ~std::size_t{0};

void sleep_us(std::int64_t time) { std::this_thread::sleep_for(std::chrono::microseconds(time)); }

// A store, a feed over it and the clock of a run.
struct Run {
  std::unique_ptr<TestStore> store;
  std::shared_ptr<Feed> feed;
  Clock clock;

  std::size_t buffer_bytes() const { return feed->layout(clock.rank_rows).bytes(); }
  // Room for so many buffers, and for what the threads need.
  std::shared_ptr<Budget> room_for(std::size_t most, std::size_t threads) const {
    return std::make_shared<Budget>(most == no_limit ? most
                                                     : most * buffer_bytes() + fill_scratch_bytes(*feed, clock, threads));
  }
  std::shared_ptr<Pool> pool(std::shared_ptr<Budget> budget, std::size_t keep) const {
    return std::make_shared<Pool>(buffer_bytes(), std::move(budget), keep);
  }
  std::unique_ptr<Ring> ring(std::size_t threads, std::size_t depth, std::size_t most = no_limit, std::uint64_t first = 0) const {
    return ring_within(room_for(most, threads), threads, depth, first);
  }
  std::unique_ptr<Ring> ring_within(std::shared_ptr<Budget> budget, std::size_t threads, std::size_t depth,
                                    std::uint64_t first = 0) const {
    return std::make_unique<Ring>(feed, clock, first, threads, depth, pool(std::move(budget), depth + 1), false);
  }
  // Another feed of the same rows.
  std::shared_ptr<Feed> feed_again() const { return std::make_shared<Feed>(feed->sources(), feed->plan(), feed->shape()); }
  std::unique_ptr<Batch> direct(std::uint64_t number) const {
    const auto step = clock.step(number);
    return filled(*feed, step.first, step.own, step.own);
  }
};

// Some small shards and a run of short batches over them.
Run small_run(Documents documents = Documents::isolate, std::uint64_t rows = 5, std::size_t most_mapped = 16'384) {
  Random random{17};
  Run run;
  run.store = std::make_unique<TestStore>(Dtype::uint16, some_shards(random, 25));
  const RowShape shape{6, Labels::next, documents, 0, 8};
  const auto samples = run.store->samples(shape);
  run.feed = std::make_shared<Feed>(std::vector<FeedSource>{{run.store->open(most_mapped), 0, documents}},
                                    plain_plan(samples, Shuffle::global), shape);
  run.clock = {samples, samples, 2 * rows, rows, rows, false};
  return run;
}

// Batches that take about a millisecond each.
Run slow_run(std::uint64_t rows) {
  Run run;
  run.store = std::make_unique<TestStore>(Dtype::uint16, std::vector<TestStore::Shard>{{TestStore::Document(40'001, 7u)}});
  const RowShape shape{2000, Labels::next, Documents::attend, 0, 8};
  run.feed = std::make_shared<Feed>(std::vector<FeedSource>{{run.store->open(), 0, shape.documents}}, plain_plan(20), shape);
  run.clock = {std::uint64_t{1} << 40, std::uint64_t{1} << 40, rows, 0, rows, false};
  return run;
}

// Waits for a batch, but not without end: a ring that hangs fails the test.
Ring::Outcome take(Ring& ring, std::optional<Batch>& batch) {
  const auto start = Time::now();
  while (true) {
    const auto outcome = ring.take(slice_ns, batch);
    if (outcome != Ring::Outcome::waiting) return outcome;
    CHECK(Time::now() - start < std::chrono::seconds(10));
  }
}

std::unique_ptr<Batch> next(Ring& ring) {
  std::optional<Batch> batch;
  CHECK(take(ring, batch) == Ring::Outcome::ready && batch);
  return std::make_unique<Batch>(std::move(*batch));
}

bool same_facts(const BatchFacts& a, const BatchFacts& b) {
  return a.rows == b.rows && a.filler == b.filler && a.tokens == b.tokens && a.cut == b.cut && a.segments == b.segments &&
         a.longest_segment == b.longest_segment;
}

void check_same(const Batch& batch, const Batch& expected) {
  const auto& layout = expected.layout();
  CHECK(batch.layout().rows == layout.rows && same_facts(batch.facts, expected.facts));
  for (std::size_t column = 0; column < layout.columns(); ++column) {
    const auto start = column * layout.column_bytes();
    CHECK(std::memcmp(batch.data() + start, expected.data() + start, layout.rows * layout.length * layout.id_bytes) == 0);
  }
  CHECK(std::memcmp(batch.lengths(), expected.lengths(), layout.rows * 4) == 0);
  CHECK(std::memcmp(batch.sources(), expected.sources(), layout.rows * 4) == 0);
  if (layout.isolated) CHECK(std::memcmp(batch.starts(), expected.starts(), 4 * (batch.facts.segments + 1)) == 0);
}

void batches_are_the_same_for_any_threads_and_depth() {
  const auto run = small_run();
  std::vector<std::unique_ptr<Batch>> expected;
  for (std::uint64_t number = 0; number < 40; ++number) expected.push_back(run.direct(number));
  for (std::size_t threads = 1; threads <= 8; ++threads)
    for (const std::size_t depth : {1u, 2u, 3u, 5u, 8u, 16u}) {
      const std::uint64_t first = threads % 3;
      const auto ring = run.ring(threads, depth, no_limit, first);
      for (std::uint64_t number = first; number < 30; ++number) {
        const auto batch = next(*ring);
        CHECK(batch->facts.step == number);
        check_same(*batch, *expected[number]);
      }
      CHECK(ring->counters().batches == 30 - first);
    }
}

void few_mappings_change_nothing() {
  for (const auto documents : {Documents::attend, Documents::isolate, Documents::row}) {
    const auto run = small_run(documents, 5, 2);
    const auto ring = run.ring(4, 4);
    for (std::uint64_t number = 0; number < 60; ++number) check_same(*next(*ring), *run.direct(number));
  }
}

void the_pace_of_the_trainer_changes_nothing() {
  const auto run = small_run();
  Random random{3};
  for (const std::size_t depth : {1u, 4u}) {
    const auto ring = run.ring(3, depth);
    for (std::uint64_t number = 0; number < 60; ++number) {
      if (number % 20 == 10) sleep_us(5000);  // until everybody sleeps
      if (random.chance(3)) sleep_us(static_cast<std::int64_t>(random.below(500)));
      const auto batch = next(*ring);
      CHECK(batch->facts.step == number);
      if (number < 20) check_same(*batch, *run.direct(number));
    }
  }
}

// A trainer that takes a few batches at a time, a little faster than one thread alone can fill them: the others must be
// woken for their tickets although the ring never gets half empty.
void a_thread_that_sleeps_is_woken_for_its_ticket() {
  const auto run = slow_run(sanitized ? 10 : 200);
  for (const double pace : {0.65, 0.7, 0.75, 0.8, 0.85, 0.9}) {
    const auto ring = run.ring(2, 16);
    double fill_ns = 200'000;
    for (std::uint64_t number = 0; number < 120;) {
      const auto due = Time::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(4 * fill_ns * pace));
      for (int burst = 0; burst < 4; ++burst) CHECK(next(*ring)->facts.step == number++);
      const auto counters = ring->counters();
      if (counters.filled > 0) fill_ns = static_cast<double>(counters.fill_ns) / static_cast<double>(counters.filled);
      while (Time::now() < due) sleep_us(20);
    }
  }
}

void rows_that_only_fill_up_are_marked() {
  const auto run = small_run();
  const auto last = run.clock.steps_in(run.clock.left) - 1;
  const auto step = run.clock.step(last);
  Ring ring(run.feed, run.clock, last, 2, 2, run.pool(std::make_shared<Budget>(), 3), true);
  const auto batch = next(ring);
  CHECK(batch->layout().rows == run.clock.rank_rows && batch->facts.rows == step.own);
  CHECK(batch->facts.filler == run.clock.rank_rows - step.own);
}

void a_ring_may_be_closed_at_any_moment() {
  const auto run = small_run();
  run.ring(4, 4)->close();  // maybe before anything was filled
  {
    const auto full = run.ring(4, 4);
    while (full->filled() < 4) sleep_us(50);
    full->close();
    full->close();
  }
  {
    const auto empty = run.ring(1, 1);
    (void)next(*empty);
    empty->close();
  }
  {
    const auto starving = run.ring(4, 4, 1);
    const auto held = next(*starving);
    sleep_us(2000);  // all threads wait for a buffer
    starving->close();
  }
  (void)run.ring(8, 16);  // never asked for anything
}

void a_batch_outlives_its_ring() {
  const auto run = small_run();
  auto ring = run.ring(2, 4);
  const auto batch = next(*ring);
  ring.reset();
  check_same(*batch, *run.direct(0));
}

void a_closed_ring_says_so() {
  const auto run = small_run();
  const auto ring = run.ring(2, 4);
  (void)next(*ring);
  ring->close();
  std::optional<Batch> batch;
  CHECK(take(*ring, batch) == Ring::Outcome::closed);
}

// What lies behind the end is not known: threads wait there, and fill it by another feed when it is.
void a_ring_continues_with_another_feed() {
  const auto run = small_run();
  const auto other = run.feed_again();
  for (const std::size_t threads : {1, 3}) {
    std::uint64_t end = 3;
    const auto pool = run.pool(std::make_shared<Budget>(), 5);
    Ring ring(run.feed, run.clock, 0, threads, 4, pool, false, 0, end);
    for (std::uint64_t number = 0; number < 40; ++number) {
      if (number == end || number + 1 == end) {  // before it has come to its end, too
        std::optional<Batch> batch;
        if (number == end) CHECK(take(ring, batch) == Ring::Outcome::closed);
        end += 5;
        const auto& feed = number % 2 == 0 ? other : run.feed;
        const auto before = ring.extend(feed, run.clock, end);
        CHECK(before != nullptr);
        before->wait_until_unused();
      }
      check_same(*next(ring), *run.direct(number));
    }
    auto slower = run.clock;
    slower.global_rows += 1;
    CHECK(ring.extend(other, slower, end + 1) == nullptr);
    CHECK(ring.extend(other, run.clock, end - 1) == nullptr);
    ring.close();
    CHECK(ring.extend(other, run.clock, end + 1) == nullptr);
  }
}

// A thread extends while the trainer takes: each batch is filled by one of the feeds, and once.
void it_is_extended_while_batches_are_taken() {
  const auto run = small_run();
  const auto other = run.feed_again();
  constexpr std::uint64_t last = 400;
  Ring ring(run.feed, run.clock, 0, 2, 4, run.pool(std::make_shared<Budget>(), 5), false, 0, 1);
  std::jthread extender([&] {
    for (std::uint64_t end = 2; end <= last; ++end) {
      const auto before = ring.extend(end % 2 == 0 ? other : run.feed, run.clock, end);
      CHECK(before != nullptr);
      before->wait_until_unused();
    }
  });
  for (std::uint64_t number = 0; number < last;) {
    std::optional<Batch> batch;
    const auto outcome = take(ring, batch);
    if (outcome == Ring::Outcome::closed) continue;  // not extended yet
    CHECK(outcome == Ring::Outcome::ready);
    check_same(*batch, *run.direct(number++));
  }
}

// The trainer waits in one thread and another closes: it hears of it at once, and never gets half a batch.
void whoever_waits_hears_of_the_end() {
  const auto run = slow_run(200);
  const auto expected = run.direct(0);
  for (int round = 0; round < 20; ++round) {
    const auto ring = run.ring(2, 2);
    std::jthread closer([&] {
      sleep_us(round * 200);
      ring->close();
    });
    std::optional<Batch> batch;
    auto outcome = Ring::Outcome::ready;
    while (outcome == Ring::Outcome::ready) {
      const auto start = Time::now();
      outcome = ring->take(std::int64_t{5'000'000'000}, batch);
      CHECK(Time::now() - start < std::chrono::seconds(4));
      if (outcome == Ring::Outcome::ready) CHECK(same_facts(batch->facts, expected->facts));
      if (outcome == Ring::Outcome::ready) CHECK(std::memcmp(batch->data(), expected->data(), 200 * 2000 * 8) == 0);
    }
    CHECK(outcome == Ring::Outcome::closed);
  }
}

void two_may_close_at_once() {
  const auto run = small_run();
  for (int round = 0; round < 20; ++round) {
    const auto ring = run.ring(3, 2);
    std::jthread other([&] { ring->close(); });
    ring->close();
  }
}

void counters_may_be_read_while_batches_are_taken() {
  const auto run = small_run();
  const auto ring = run.ring(2, 4);
  std::jthread reader([&](const std::stop_token& stop) {
    std::uint64_t seen = 0;
    while (!stop.stop_requested()) {
      const auto counters = ring->counters();
      CHECK(counters.batches >= seen);
      seen = counters.batches;
      (void)ring->filled();
      sleep_us(50);
    }
  });
  for (int i = 0; i < 300; ++i) (void)next(*ring);
  reader.request_stop();
  reader.join();
  CHECK(ring->counters().batches == 300 && ring->counters().filled >= 300);
}

void many_rings_start_and_end_quickly() {
  const auto run = small_run();
  for (int round = 0; round < 100; ++round) {
    const auto ring = run.ring(1 + static_cast<std::size_t>(round) % 4, 1 + static_cast<std::size_t>(round) % 3);
    for (int i = 0; i < round % 4; ++i) (void)next(*ring);
  }
}

// In file order every step reads one shard, so the step that needs the missing one is known; all before it are good.
void a_failure_arrives_in_its_turn_and_stays() {
  std::vector<TestStore::Shard> shards;
  for (std::uint32_t i = 0; i < 60; ++i) shards.push_back({TestStore::Document(5 * 64, i)});
  for (const std::size_t threads : {1u, 2u, 4u, 8u})
    for (const std::size_t depth : {1u, 4u, 16u})
      for (const std::size_t broken : {0u, 7u, 30u}) {
        Run run;
        run.store = std::make_unique<TestStore>(Dtype::uint16, shards);
        const RowShape shape{5, Labels::next, Documents::attend, 0, 8};
        run.feed = std::make_shared<Feed>(std::vector<FeedSource>{{run.store->open(), 0, shape.documents}}, plain_plan(59 * 64), shape);
        run.clock = {59 * 64, 59 * 64, 64, 0, 64, false};
        std::filesystem::remove(run.store->bin(broken));
        const auto ring = run.ring(threads, depth);
        const auto last_good = broken == 0 ? 0 : broken - 1;  // the window before it takes its first token as a target
        for (std::uint64_t number = 0; number < last_good; ++number) CHECK(next(*ring)->facts.step == number);
        for (int again = 0; again < 3; ++again) CHECK_THROWS(next(*ring), DataError);
      }
}

long sleeps_of_this_thread() {
  struct rusage usage = {};
  CHECK(::getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nvcsw;
}

// Batches were fast and then the disk stalls (a pipe without a writer): a thread that waits for it sleeps, and does not poll.
void a_long_wait_costs_nothing() {
  std::vector<TestStore::Shard> shards;
  for (std::uint32_t i = 0; i < 60; ++i) shards.push_back({TestStore::Document(5 * 64, i)});
  Run run;
  run.store = std::make_unique<TestStore>(Dtype::uint16, shards);
  const RowShape shape{5, Labels::next, Documents::attend, 0, 8};
  run.feed = std::make_shared<Feed>(std::vector<FeedSource>{{run.store->open(), 0, shape.documents}}, plain_plan(59 * 64), shape);
  run.clock = {59 * 64, 59 * 64, 64, 0, 64, false};
  const auto stalled = run.store->bin(30);
  std::filesystem::remove(stalled);
  CHECK(::mkfifo(stalled.c_str(), 0600) == 0);
  const auto ring = run.ring(1, 2);
  std::optional<Batch> batch;
  auto outcome = Ring::Outcome::ready;
  long sleeps = 0;
  while (outcome == Ring::Outcome::ready) {
    const auto before = sleeps_of_this_thread();
    batch.reset();
    outcome = ring->take(300'000'000, batch);
    sleeps = sleeps_of_this_thread() - before;
  }
  CHECK(outcome == Ring::Outcome::waiting);
  CHECK(sleeps < 100);
  const int writer = ::open(stalled.c_str(), O_RDWR);  // the file turns out to be empty, and the thread continues
  CHECK(writer >= 0);
  while (true) {
    try {
      (void)next(*ring);
    } catch (const DataError&) {
      break;
    }
  }
  ::close(writer);
}

void a_trainer_that_keeps_every_buffer_is_told() {
  const auto run = small_run();
  for (const std::size_t threads : {1u, 4u})
    for (const std::size_t most : {1u, 2u, 5u}) {
      const auto ring = run.ring(threads, std::max<std::size_t>(1, most - 1), most);
      std::vector<std::unique_ptr<Batch>> held;
      for (std::size_t i = 0; i < most; ++i) held.push_back(next(*ring));
      std::optional<Batch> batch;
      CHECK(take(*ring, batch) == Ring::Outcome::starved && !batch);
      CHECK(take(*ring, batch) == Ring::Outcome::starved);
      held.pop_back();
      CHECK(next(*ring)->facts.step == most);  // and it continues when one comes back
    }
}

// Buffers go to tickets in order: a consumer that keeps two of four always gets a third.
void scarce_buffers_go_to_the_next_batch_first() {
  const auto run = small_run(Documents::attend, 2);
  for (const std::size_t threads : {2u, 4u, 8u}) {
    const auto ring = run.ring(threads, 3, 4);
    std::vector<std::unique_ptr<Batch>> held;
    for (std::uint64_t number = 0; number < 400; ++number) {
      held.push_back(next(*ring));
      CHECK(held.back()->facts.step == number);
      if (held.size() > 2) held.erase(held.begin());
    }
  }
}

// A thread that waits for a buffer is no reason to give up while the next batch is still being filled.
void a_slow_batch_is_not_starvation() {
  const auto run = slow_run(50);
  const auto ring = run.ring(3, 3, 4);
  std::vector<std::unique_ptr<Batch>> held;
  for (int number = 0; number < 60; ++number) {
    std::optional<Batch> batch;
    auto outcome = Ring::Outcome::waiting;
    while (outcome == Ring::Outcome::waiting) outcome = ring->take(1000, batch);
    CHECK(outcome == Ring::Outcome::ready);
    held.push_back(std::make_unique<Batch>(std::move(*batch)));
    if (held.size() > 3) held.erase(held.begin());
  }
}

void memory_stays_within_the_limit() {
  const auto run = small_run();
  const auto pool = run.pool(run.room_for(4, 8), 4);
  Ring ring(run.feed, run.clock, 0, 8, 3, pool, false);
  for (int i = 0; i < 200; ++i) {
    const auto batch = next(ring);
    CHECK(pool->budget()->used_bytes() <= pool->budget()->most_bytes());
  }
}

// Batches of a closed ring are still in the user's hands, and still count.
void rings_that_follow_each_other_share_a_budget() {
  const auto small = small_run(Documents::attend, 2), large = small_run(Documents::isolate, 7);
  const auto budget = large.room_for(3, 2);
  std::vector<std::unique_ptr<Batch>> held;
  std::size_t held_bytes = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const auto& run = turn % 2 == 0 ? small : large;
    std::unique_ptr<Ring> ring;
    try {
      ring = run.ring_within(budget, 2, 2);
    } catch (const BudgetFull&) {
      CHECK(!held.empty());
    }
    for (int i = 0; ring != nullptr && i < 3; ++i) {
      std::optional<Batch> batch;
      if (take(*ring, batch) != Ring::Outcome::ready) break;
      held.push_back(std::make_unique<Batch>(std::move(*batch)));
      held_bytes += run.buffer_bytes();
      CHECK(held_bytes <= budget->most_bytes());
    }
    if (ring != nullptr) ring->close();
    CHECK(budget->used_bytes() == held_bytes);  // what the ring had filled or kept is gone
    if (turn % 5 != 4) continue;
    held.clear();
    held_bytes = 0;
    CHECK(budget->used_bytes() == 0);
  }
}

template <typename Act>
int exit_code_of(const Act& act) {
  const auto child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    ::alarm(20);
    act();
    ::_exit(0);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  return status;
}

// The child has none of the threads; it starts its own and lets go of batches of the parent without touching their locks.
void a_child_starts_anew() {
  if (sanitized) return;
  const auto run = small_run();
  const auto ring = run.ring(4, 4);
  for (int round = 0; round < 20; ++round) {
    auto batch = next(*ring);
    CHECK(exit_code_of([&] {
            batch.reset();
            const auto own = small_run();
            const auto own_ring = own.ring(2, 2);
            for (std::uint64_t number = 0; number < 5; ++number) check_same(*next(*own_ring), *own.direct(number));
          }) == 0);
  }
}

// Threads that could be started are stopped again when the next one could not.
void too_many_threads_are_an_error() {
  if (sanitized) return;
  const auto run = small_run();
  CHECK(exit_code_of([&] {
          const struct rlimit limit = {std::size_t{1} << 30, std::size_t{1} << 30};
          ::setrlimit(RLIMIT_AS, &limit);
          CHECK_THROWS(run.ring(100'000, 2), std::exception);
        }) == 0);
}

// Of a run with another number of rows, and from a position of it on.
Run resized(const Run& run, std::uint64_t rows, std::uint64_t start) {
  Run other;
  other.feed = run.feed;
  const auto size = run.clock.size;
  other.clock = {size - start % size, size, 2 * rows, rows, rows, false, start};
  return other;
}

void steps_of_changing_size_are_filled_as_a_ring_fills_them() {
  for (const auto documents : {Documents::attend, Documents::isolate, Documents::row}) {
    const auto run = small_run(documents);
    for (const bool pad_last : {false, true})
      for (const std::uint64_t steps_per_update : {0u, 1u, 3u}) {
        DirectFill direct(run.feed, std::make_shared<Budget>(), {pad_last, steps_per_update});
        Random random{23};
        std::uint64_t start = 0;
        for (int change = 0; change < 12; ++change) {
          const auto part = resized(run, 1 + random.below(7), start);
          Ring ring(run.feed, part.clock, 0, 2, 3, part.pool(std::make_shared<Budget>(), 4), pad_last, steps_per_update);
          const auto steps = 1 + random.below(4);
          for (std::uint64_t number = 0; number < steps; ++number) {
            std::optional<Batch> batch;
            CHECK(direct.take(part.clock, number, batch) == DirectFill::Outcome::ready && batch);
            const auto expected = next(ring);
            check_same(*batch, *expected);
            CHECK(batch->facts.step == number && batch->facts.epoch == expected->facts.epoch);
            CHECK(batch->facts.place == expected->facts.place && batch->facts.step_weight == expected->facts.step_weight);
            CHECK(direct.since_change().batches == number + 1);
          }
          start = part.clock.step(steps).position;
        }
      }
  }
}

void who_fills_for_itself_and_keeps_every_buffer_is_told() {
  const auto run = small_run();
  const auto budget = run.room_for(3, 1);
  DirectFill direct(run.feed, budget, {});
  std::vector<Batch> kept;
  std::optional<Batch> batch;
  for (std::uint64_t number = 0; number < 3; ++number) {
    CHECK(direct.take(run.clock, number, batch) == DirectFill::Outcome::ready);
    kept.push_back(std::move(*batch));
    batch.reset();
  }
  CHECK(direct.take(run.clock, 3, batch) == DirectFill::Outcome::starved && !batch);
  CHECK(budget->used_bytes() <= budget->most_bytes());
  kept.pop_back();
  CHECK(direct.take(run.clock, 3, batch) == DirectFill::Outcome::ready);
  check_same(*batch, *run.direct(3));
  kept.clear();
  batch.reset();
  const auto larger = resized(run, 40, 0);
  CHECK_THROWS((void)direct.take(larger.clock, 0, batch), BudgetFull);
  CHECK(direct.take(run.clock, 4, batch) == DirectFill::Outcome::ready);
}

void a_direct_fill_that_is_stopped_says_so() {
  const auto run = small_run();
  DirectFill direct(run.feed, std::make_shared<Budget>(), {});
  std::optional<Batch> batch;
  direct.stop();
  CHECK(direct.take(run.clock, 0, batch) == DirectFill::Outcome::stopped && !batch);
}

void the_buffers_of_sizes_that_come_again_are_used_again() {
  const auto run = small_run();
  const auto budget = std::make_shared<Budget>();
  DirectFill direct(run.feed, budget, {});
  std::size_t most = 0;
  for (std::uint64_t number = 0; number < 200; ++number) {
    std::optional<Batch> batch;
    CHECK(direct.take(resized(run, 1 + number % 5, number).clock, 0, batch) == DirectFill::Outcome::ready);
    if (number == 20) most = budget->used_bytes();
    CHECK(number < 20 || budget->used_bytes() == most);
  }
}

}  // namespace

int main() {
  steps_of_changing_size_are_filled_as_a_ring_fills_them();
  who_fills_for_itself_and_keeps_every_buffer_is_told();
  a_direct_fill_that_is_stopped_says_so();
  the_buffers_of_sizes_that_come_again_are_used_again();
  batches_are_the_same_for_any_threads_and_depth();
  few_mappings_change_nothing();
  the_pace_of_the_trainer_changes_nothing();
  a_thread_that_sleeps_is_woken_for_its_ticket();
  rows_that_only_fill_up_are_marked();
  a_ring_may_be_closed_at_any_moment();
  a_batch_outlives_its_ring();
  a_closed_ring_says_so();
  a_ring_continues_with_another_feed();
  it_is_extended_while_batches_are_taken();
  whoever_waits_hears_of_the_end();
  two_may_close_at_once();
  counters_may_be_read_while_batches_are_taken();
  many_rings_start_and_end_quickly();
  a_failure_arrives_in_its_turn_and_stays();
  a_long_wait_costs_nothing();
  a_trainer_that_keeps_every_buffer_is_told();
  scarce_buffers_go_to_the_next_batch_first();
  a_slow_batch_is_not_starvation();
  memory_stays_within_the_limit();
  rings_that_follow_each_other_share_a_budget();
  a_child_starts_anew();
  too_many_threads_are_an_error();
}
