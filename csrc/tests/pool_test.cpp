// tests/pool_test.cpp: buffers are aligned, limited, used again last in first out, and waited for.
#include "core/memory/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "core/memory/batch.h"

using namespace millstream;

namespace {

constexpr auto always = [] { return true; };

std::shared_ptr<Budget> room_for(std::size_t buffers, std::size_t bytes) { return std::make_shared<Budget>(buffers * bytes); }

void give_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void buffers_are_aligned_and_their_own() {
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 1000u, 1u << 20, (2u << 20) - 1, 2u << 20, (2u << 20) + 1}) {
    Pool pool(bytes, room_for(3, bytes), 3);
    std::vector<std::byte*> taken;
    for (int i = 0; i < 3; ++i) {
      taken.push_back(pool.try_take());
      CHECK(reinterpret_cast<std::uintptr_t>(taken.back()) % 64 == 0);
      std::memset(taken.back(), i, bytes);
    }
    for (int i = 0; i < 3; ++i) CHECK(taken[static_cast<std::size_t>(i)][bytes - 1] == static_cast<std::byte>(i));
    CHECK(pool.buffer_bytes() == bytes && pool.budget()->used_bytes() == 3 * bytes);
    for (auto* const data : taken) pool.give_back(data);
  }
}

void the_last_one_back_is_the_next_one_out() {
  Pool pool(100, room_for(3, 100), 3);
  auto* const a = pool.try_take();
  auto* const b = pool.try_take();
  auto* const c = pool.try_take();
  pool.give_back(b);
  pool.give_back(a);
  pool.give_back(c);
  CHECK(pool.try_take() == c);
  CHECK(pool.try_take() == a);
  CHECK(pool.try_take() == b);
  for (auto* const data : {a, b, c}) pool.give_back(data);
}

void there_are_never_more_than_the_limit() {
  Pool pool(100, room_for(2, 100), 1);
  CHECK(pool.out() == 0);
  auto* const a = pool.try_take();
  auto* const b = pool.try_take();
  CHECK(a != nullptr && b != nullptr && pool.try_take() == nullptr);
  CHECK(!pool.starving(1) && pool.out() == 2);  // no thread waits
  pool.give_back(a);
  CHECK(pool.out() == 1);
  CHECK(pool.try_take() == a && pool.try_take() == nullptr);
  pool.give_back(a);
  pool.give_back(b);
  CHECK(Pool(100, room_for(0, 100), 0).try_take() == nullptr);
}

void what_nobody_keeps_is_freed() {
  Pool pool(100, room_for(10, 100), 2);
  std::vector<std::byte*> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(pool.try_take());
  CHECK(pool.budget()->used_bytes() == 500);
  for (auto* const data : taken) pool.give_back(data);
  CHECK(pool.budget()->used_bytes() == 200 && pool.out() == 0);
  CHECK(pool.try_take() == taken[1]);  // the first two came back first and were kept
  pool.give_back(taken[1]);
  Pool forgetful(100, room_for(10, 100), 0);
  forgetful.give_back(forgetful.try_take());
  CHECK(forgetful.budget()->used_bytes() == 0);
}

void whoever_waits_is_woken_by_a_return() {
  for (const std::size_t keep : {0u, 1u}) {
    Pool pool(100, room_for(1, 100), keep);
    auto* const data = pool.try_take();
    std::atomic<bool> done = false;
    std::jthread waiter([&] {
      auto* const got = pool.take(always);
      CHECK(got != nullptr);
      done = true;
      pool.give_back(got);
    });
    while (!pool.starving(1)) give_time();
    CHECK(!done);
    pool.give_back(data);
    waiter.join();
    CHECK(done && !pool.starving(1));
  }
}

void whoever_waits_is_woken_to_stop() {
  Pool pool(100, room_for(1, 100), 1);
  auto* const data = pool.try_take();
  std::atomic<bool> go_on = true;
  {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 4; ++i)
      waiters.emplace_back([&] { CHECK(pool.take([&] { return go_on.load(); }) == nullptr); });
    give_time();
    go_on = false;
    pool.wake();
  }
  pool.give_back(data);
}

void many_threads_share_few_buffers() {
  Pool pool(64, room_for(3, 64), 2);
  std::atomic<int> out = 0, most = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        for (int round = 0; round < 300; ++round) {
          auto* const data = pool.take(always);
          const int now = ++out;
          for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          std::memset(data, i, 64);
          CHECK(data[0] == static_cast<std::byte>(i) && data[63] == static_cast<std::byte>(i));
          --out;
          pool.give_back(data);
        }
      });
  }
  CHECK(most <= 3 && pool.out() == 0 && pool.budget()->used_bytes() <= 2 * 64);
}

void a_batch_gives_its_buffer_back_even_after_everybody_else_has_left() {
  auto pool = std::make_shared<Pool>(1000, room_for(1, 1000), 1);
  const std::weak_ptr<Pool> watched = pool;
  auto batch = std::make_unique<Batch>(pool, pool->try_take(), BatchLayout{});
  CHECK(pool->out() == 1);
  batch.reset();
  CHECK(pool->out() == 0);
  batch = std::make_unique<Batch>(pool, pool->try_take(), BatchLayout{});
  pool.reset();
  CHECK(!watched.expired());
  batch.reset();
  CHECK(watched.expired());
}

// What one pool gave out is missing from every other pool of the budget, and room for them when it comes back.
void pools_share_a_budget() {
  const auto budget = std::make_shared<Budget>(1000);
  auto old_pool = std::make_shared<Pool>(400, budget, 2);
  Batch held(old_pool, old_pool->try_take(), BatchLayout{});
  old_pool->give_back(old_pool->try_take());  // kept for reuse
  CHECK(budget->used_bytes() == 800);
  Pool pool(300, budget, 2);
  CHECK(pool.try_take() == nullptr);
  old_pool->retire();
  CHECK(budget->used_bytes() == 400);
  auto* const first = pool.try_take();
  auto* const second = pool.try_take();
  CHECK(first != nullptr && second != nullptr && budget->used_bytes() == 1000);
  std::jthread waiter([&] { pool.give_back(pool.take(always)); });
  while (!pool.starving(1)) give_time();
  { const auto gone = std::move(held); }  // to the retired pool, which keeps nothing
  waiter.join();
  pool.give_back(first);
  pool.give_back(second);
  pool.retire();
  CHECK(budget->used_bytes() == 0);
}

void a_reservation_counts_while_it_lives() {
  const auto budget = std::make_shared<Budget>(1000);
  {
    const Reservation most(budget, 900);
    CHECK(budget->used_bytes() == 900);
    CHECK_THROWS(Reservation(budget, 101), BudgetFull);
    const Reservation rest(budget, 100);
    CHECK(Pool(1, budget, 0).try_take() == nullptr);
  }
  CHECK(budget->used_bytes() == 0);
}

void the_columns_of_a_batch_do_not_overlap() {
  for (const std::size_t rows : {0u, 1u, 3u, 17u})
    for (const std::size_t length : {1u, 7u, 128u})
      for (const std::size_t id_bytes : {4u, 8u})
        for (const auto& [isolated, documents] : {std::pair(false, false), {true, false}, {false, true}}) {
          const BatchLayout layout{rows, length, id_bytes, isolated, documents};
          CHECK(layout.lengths_offset() >= (isolated ? 3 : 2) * rows * length * id_bytes && layout.lengths_offset() % 64 == 0);
          CHECK(layout.sources_offset() == layout.lengths_offset() + 4 * rows);
          CHECK(layout.cuts_offset() == layout.sources_offset() + 4 * rows && layout.cuts_offset() % 8 == 0);
          CHECK(layout.starts_offset() >= layout.cuts_offset() + (documents ? 8 * rows : 0) && layout.starts_offset() % 64 == 0);
          CHECK(layout.bytes() >= layout.starts_offset() + (isolated ? 4 * (rows * length + 1) : 0));
          CHECK(layout.bytes() % 64 == 0);
        }
}

// A child does not touch a lock that a thread of its parent may have held.
void a_child_leaves_the_pool_of_its_parent_alone() {
  Pool pool(100, room_for(2, 100), 2);
  auto* const data = pool.try_take();
  const auto before = fork_generation();
  const auto child = ::fork();
  if (child == 0) {
    pool.give_back(data);
    ::_exit(fork_generation() == before + 1 && pool.out() == 1 ? 0 : 1);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  CHECK(fork_generation() == before);
  pool.give_back(data);
}

void impossible_buffers_are_refused() {
  Pool pool(~std::size_t{0}, std::make_shared<Budget>(), 2);
  CHECK_THROWS(pool.try_take(), std::bad_alloc);
  CHECK(pool.out() == 0);
  CHECK_THROWS(aligned_bytes(~std::size_t{0} / 2), std::bad_alloc);
}

}  // namespace

int main() {
  buffers_are_aligned_and_their_own();
  the_last_one_back_is_the_next_one_out();
  there_are_never_more_than_the_limit();
  what_nobody_keeps_is_freed();
  whoever_waits_is_woken_by_a_return();
  whoever_waits_is_woken_to_stop();
  many_threads_share_few_buffers();
  a_batch_gives_its_buffer_back_even_after_everybody_else_has_left();
  pools_share_a_budget();
  a_reservation_counts_while_it_lives();
  the_columns_of_a_batch_do_not_overlap();
  a_child_leaves_the_pool_of_its_parent_alone();
  impossible_buffers_are_refused();
}
