from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batches.threads import join, started, until
from laws import examples
from loaders.samples import follows_its_hint
from millstream import BatchError, BatchPool, BudgetError, LoaderError, TrainingBatch, WaitTimeout

BUDGET = 20 * 128


def address(batch: TrainingBatch) -> int:
    return int(batch.input_ids.ctypes.data)


class AgainstCounting(RuleBasedStateMachine):
    """Whatever is allocated, released, forgotten and resized: the counts are right and nobody's rows are touched."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BatchPool(3, budget_bytes=BUDGET)
        self.capacity = 3
        self.made = 0
        self.held: list[tuple[int, TrainingBatch]] = []

    @rule(rows=st.integers(0, 8), length=st.integers(0, 16))
    def allocate(self, rows: int, length: int) -> None:
        batch = self.pool.try_allocate(rows, length)
        if len(self.held) >= self.capacity:
            assert batch is None
            with pytest.raises(WaitTimeout):
                self.pool.allocate(rows, length, timeout_s=0)
        if batch is None:
            return
        assert batch.validate().loss_mask.sum() == 0
        assert batch.input_ids.shape == (rows, length)
        assert not batch.input_ids.any()
        for tensor in (batch.input_ids, batch.labels):
            assert tensor.ctypes.data % 64 == 0
        self.made += 1
        batch.input_ids[...] = batch.labels[...] = self.made
        self.held.append((self.made, batch))

    @rule(data=st.data(), how=st.sampled_from(["pool", "batch", "forget"]))
    def give_back(self, data: st.DataObject, how: str) -> None:
        if not self.held:
            return
        _, batch = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if how == "pool":
            self.pool.release(batch)
        if how == "batch":
            batch.release()

    @rule(capacity=st.integers(1, 6))
    def resize(self, capacity: int) -> None:
        self.pool.resize(capacity)
        self.capacity = capacity

    @invariant()
    def counts_are_right(self) -> None:
        stats = self.pool.stats()
        assert (stats.capacity, stats.in_use) == (self.capacity, len(self.held))
        assert stats.free <= max(0, stats.capacity - stats.in_use)
        assert stats.hits + stats.misses == self.made
        assert stats.bytes <= BUDGET

    @invariant()
    def nobodys_rows_are_touched(self) -> None:
        for number, batch in self.held:
            assert (batch.input_ids == number).all()
            assert (batch.labels == number).all()


TestAgainstCounting = AgainstCounting.TestCase


@given(threads=st.integers(1, 4), capacity=st.integers(1, 3), each=st.integers(1, 15))
@examples(20)
def test_threads_never_share_a_buffer_and_all_get_their_turn(threads: int, capacity: int, each: int) -> None:
    pool = BatchPool(capacity)
    clean: list[bool] = []

    def work(who: int) -> None:
        for _ in range(each):
            batch = pool.allocate(2, 8)
            batch.input_ids[...] = who
            clean.append(bool((batch.input_ids == who).all()))
            pool.release(batch)

    join(*(started(lambda who=who: work(who)) for who in range(threads)))  # type: ignore[misc]

    stats = pool.stats()
    assert clean == [True] * (threads * each)
    assert stats.in_use == 0
    assert stats.misses <= capacity
    assert stats.hits + stats.misses == threads * each


def test_memory_is_used_again() -> None:
    pool = BatchPool(1)
    batch = pool.allocate(8, 16)
    place = address(batch)
    for rows in (8, 4, 8):  # what is smaller fits, too
        pool.release(batch)
        batch = pool.allocate(rows, 16)
        assert address(batch) == place
    assert (pool.stats().hits, pool.stats().misses) == (3, 1)


def test_buffers_that_are_too_small_go_before_memory_is_taken() -> None:
    tracemalloc.start()
    try:
        pool = BatchPool(4, budget_bytes=1_200_000)
        pool.release(pool.allocate(50, 1000))  # 0.8 MB
        pool.allocate(60, 1000)  # 0.96 MB
        assert tracemalloc.get_traced_memory()[1] < 1_300_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_buffer_comes_back_only_when_no_tensor_looks_at_it(framework: str) -> None:
    pool = BatchPool(2, framework=framework)
    batch = pool.allocate(2, 8)
    assert batch.framework == framework
    kept = batch.input_ids[1:]
    kept[...] = 5
    pool.release(batch)

    assert pool.stats().in_use == 1
    other = pool.allocate(2, 8)
    other.input_ids[...] = 9
    assert kept.tolist() == [[5] * 8]
    del kept
    assert pool.stats().in_use == 1
    assert pool.stats().free == 1


def test_a_batch_in_another_framework_keeps_the_buffer() -> None:
    pool = BatchPool(1)
    batch = pool.allocate(2, 8)
    there = batch.to("torch")
    pool.release(batch)

    assert pool.try_allocate(2, 8) is None
    there.release()
    assert pool.try_allocate(2, 8) is not None


@pytest.mark.parametrize("how", ["release", "resize", "forget"])
def test_whoever_waits_is_woken(how: str) -> None:
    pool = BatchPool(1)
    held = [pool.allocate(1, 8)]
    got = threading.Event()

    def wait() -> None:
        pool.allocate(1, 8)
        got.set()

    thread = started(wait)
    until(lambda: pool.stats().waits == 1)
    assert not got.is_set()
    if how == "release":
        pool.release(held[0])
    elif how == "resize":
        pool.resize(2)
    else:
        held.clear()
    join(thread)

    assert got.is_set()
    assert pool.stats().wait_s > 0


def test_double_releases_and_foreign_batches_are_errors() -> None:
    pool, other = BatchPool(2), BatchPool(2)
    batch, let_go = pool.allocate(1, 8), pool.allocate(1, 8)
    strangers = [TrainingBatch.empty(1, 8), batch.copy(), batch.split(1)[0], other.allocate(1, 8)]
    for stranger in strangers:
        with pytest.raises(BatchError, match="not one of this pool") as caught:
            pool.release(stranger)
        assert "release" in follows_its_hint(caught.value)
    strangers.clear()
    del stranger, caught

    pool.release(batch)
    let_go.release()
    let_go.release()  # harmless, as for every batch
    for released in (batch, let_go):
        with pytest.raises(BatchError, match="released before"):
            pool.release(released)
    assert pool.stats().in_use == 0


def test_impossible_pools_and_batches_are_refused() -> None:
    for call in (lambda: BatchPool(0), lambda: BatchPool(1).resize(0)):
        with pytest.raises(LoaderError, match="capacity 0"):
            call()
    with pytest.raises(LoaderError, match="written into"):
        BatchPool(1, framework="jax")
    with pytest.raises(BatchError, match="-1 rows"):
        BatchPool(1).allocate(-1, 8)
    with pytest.raises(BudgetError) as caught:
        BatchPool(1, budget_bytes=100).try_allocate(1, 8)
    assert "budget_bytes=128" in follows_its_hint(caught.value)
    assert BatchPool(1, budget_bytes=128).try_allocate(1, 8) is not None


def test_a_pool_may_die_before_its_batches() -> None:
    batch = BatchPool(1).allocate(2, 8)

    assert np.array_equal(batch.input_ids, np.zeros((2, 8)))
    batch.release()
