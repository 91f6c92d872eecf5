from __future__ import annotations

import os
import signal
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batches.threads import join, started, until
from laws import examples
from loaders.kinds import KINDS
from loaders.samples import follows_its_hint
from millstream import BatchError, BatchQueue, BudgetError, ClosedError, LoaderError, TrainingBatch, WaitTimeout
from millstream.batches.queue import batch_bytes
from millstream.tensors import FRAMEWORKS, backend


def numbered(number: int, rows: int = 1) -> TrainingBatch:
    ids = np.full((rows, 4), number, np.int64)
    return TrainingBatch(ids, ids.copy())


def number_of(batch: TrainingBatch) -> int:
    return int(batch.input_ids[0, 0])


class AgainstAPlainList(RuleBasedStateMachine):
    """One thread: the queue is a list with limits, whatever is done to it and in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = BatchQueue(capacity=4, budget_bytes=6 * 64)
        self.model: deque[tuple[int, int]] = deque()
        self.made = 0
        self.closed = False

    @rule(rows=st.integers(1, 6))
    def enqueue(self, rows: int) -> None:
        self.made += 1
        batch = numbered(self.made, rows)
        if self.closed:
            for put in (self.queue.enqueue, self.queue.try_enqueue):
                with pytest.raises(ClosedError):
                    put(batch)
            return
        fits = len(self.model) < 4 and sum(rows for _, rows in self.model) + rows <= 6
        if not fits:
            with pytest.raises(WaitTimeout):
                self.queue.enqueue(batch, timeout_s=0)
        assert self.queue.try_enqueue(batch) is fits
        if fits:
            self.model.append((self.made, rows))

    @rule()
    def dequeue(self) -> None:
        if self.model:
            assert number_of(self.queue.dequeue()) == self.model.popleft()[0]
        elif self.closed:
            for take in (self.queue.dequeue, self.queue.try_dequeue):
                with pytest.raises(ClosedError):
                    take()
            assert list(self.queue) == []
        else:
            assert self.queue.try_dequeue() is None
            with pytest.raises(TimeoutError):
                self.queue.dequeue(timeout_s=0)

    @rule()
    def clear(self) -> None:
        assert self.queue.clear() == len(self.model)
        self.model.clear()

    @precondition(lambda self: self.made > 5)
    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closed = True

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        front = self.queue.peek()
        assert (None if front is None else number_of(front)) == (self.model[0][0] if self.model else None)
        stats = self.queue.stats()
        assert (stats.size, stats.bytes) == (len(self.model), 64 * sum(rows for _, rows in self.model))
        assert self.queue.size() == stats.size
        assert self.queue.closed is self.closed


TestAgainstAPlainList = AgainstAPlainList.TestCase


@given(producers=st.integers(1, 4), consumers=st.integers(1, 4), each=st.integers(0, 12), capacity=st.integers(1, 5))
@examples(25)
def test_every_batch_comes_out_once_and_each_producers_in_order(
    producers: int, consumers: int, each: int, capacity: int
) -> None:
    queue = BatchQueue(capacity)
    taken: list[list[int]] = [[] for _ in range(consumers)]

    def produce(who: int) -> None:
        for number in range(each):
            queue.enqueue(numbered(1000 * who + number))

    def consume(who: int) -> None:
        taken[who].extend(map(number_of, queue))

    takers = [started(lambda who=who: consume(who)) for who in range(consumers)]  # type: ignore[misc]
    makers = [started(lambda who=who: produce(who)) for who in range(producers)]  # type: ignore[misc]
    join(*makers)
    queue.close()
    join(*takers)

    made = Counter(1000 * who + number for who in range(producers) for number in range(each))
    assert Counter(number for mine in taken for number in mine) == made
    for mine in taken:
        for who in range(producers):
            own = [number for number in mine if number // 1000 == who]
            assert own == sorted(own)
    assert queue.stats().enqueued == queue.stats().dequeued == producers * each


def test_close_wakes_every_waiter() -> None:
    full, empty = BatchQueue(1), BatchQueue(1)
    full.enqueue(numbered(0))
    heard: list[type] = []

    def waits(call: Callable[[], object]) -> None:
        with pytest.raises(ClosedError) as caught:
            call()
        heard.append(caught.type)

    threads = [started(lambda: waits(lambda: full.enqueue(numbered(1)))) for _ in range(3)]
    threads += [started(lambda: waits(empty.dequeue)) for _ in range(3)]
    until(lambda: full.stats().producer_waits == empty.stats().consumer_waits == 3)
    full.close()
    empty.close()
    join(*threads)

    assert sorted(kind.__name__ for kind in heard) == ["ClosedError"] * 3 + ["QueueClosed"] * 3
    assert full.stats().producer_wait_s > 0
    assert empty.stats().consumer_wait_s > 0
    assert [number_of(batch) for batch in full] == [0]  # those who waited are not in it


def test_the_producers_error_reaches_every_consumer_behind_what_was_made_before() -> None:
    queue = BatchQueue()
    failure = ValueError("row 7 is broken")
    with pytest.raises(ValueError), queue:
        queue.enqueue(numbered(1))
        raise failure

    assert number_of(queue.dequeue()) == 1
    depths = []
    for take in (queue.dequeue, queue.try_dequeue, lambda: next(iter(queue)), queue.dequeue):
        with pytest.raises(ValueError) as caught:
            take()
        assert caught.value is failure
        depths.append(len(caught.traceback))
        assert "failure" in str(caught.traceback[-1].statement)  # the place where it went wrong
    assert depths[0] == depths[-1]  # and no longer with every consumer
    with pytest.raises(ClosedError) as refused:
        queue.enqueue(numbered(2))
    assert refused.value.__cause__ is failure


def test_an_interrupted_producer_is_no_regular_end() -> None:
    queue = BatchQueue()
    with pytest.raises(KeyboardInterrupt), queue:
        raise KeyboardInterrupt

    with pytest.raises(ClosedError, match="KeyboardInterrupt"):
        list(queue)


def test_the_first_close_counts() -> None:
    clean, failed = BatchQueue(), BatchQueue()
    clean.close()
    clean.close(ValueError("late"))
    failed.close(ValueError("early"))
    failed.close()

    assert list(clean) == []
    with pytest.raises(ValueError, match="early"):
        list(failed)


def test_a_producer_whose_own_loader_was_closed_is_not_taken_for_the_end() -> None:
    queue = BatchQueue()
    queue.close(ClosedError("this loader was closed"))

    with pytest.raises(ClosedError, match="loader"):
        list(queue)


def test_ctrl_c_is_heard_while_waiting_and_the_queue_stays_usable() -> None:
    empty, full = BatchQueue(1), BatchQueue(1)
    full.enqueue(numbered(1))

    def interrupt(waits: Callable[[], int]) -> None:
        until(lambda: waits() > 0)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        first = started(lambda: interrupt(lambda: empty.stats().consumer_waits))
        with pytest.raises(KeyboardInterrupt):
            empty.dequeue()
        second = started(lambda: interrupt(lambda: full.stats().producer_waits))
        with pytest.raises(KeyboardInterrupt):
            full.enqueue(numbered(2))
    finally:
        signal.signal(signal.SIGINT, before)
    join(first, second)

    empty.enqueue(numbered(3))
    assert number_of(empty.dequeue()) == 3
    assert number_of(full.dequeue()) == 1


def test_a_batch_that_never_fits_is_refused_and_its_hint_works() -> None:
    with pytest.raises(BudgetError) as caught:
        BatchQueue(budget_bytes=100).enqueue(numbered(1, rows=3))

    assert "budget_bytes=192" in follows_its_hint(caught.value)
    BatchQueue(budget_bytes=192).enqueue(numbered(1, rows=3))


def test_released_batches_and_impossible_queues_are_refused() -> None:
    batch = numbered(1)
    batch.release()

    with pytest.raises(BatchError, match="released"):
        BatchQueue().enqueue(batch)
    with pytest.raises(LoaderError, match="capacity 0"):
        BatchQueue(0)


# Bytes


def arrays_in(held: Any) -> list[Any]:
    """Every tensor of a batch, of its fields and of its metadata, as numpy looks at its memory."""
    if isinstance(held, TrainingBatch):
        names = ("input_ids", "labels", "position_ids", "cu_seqlens", "loss_weights", "lengths", "kl", "metadata")
        return [each for name in names for each in arrays_in(getattr(held, name))]
    if isinstance(held, dict):
        return [each for value in held.values() for each in arrays_in(value)]
    if isinstance(held, list):
        return [each for value in held for each in arrays_in(value)]
    return [np.asarray(held)] if hasattr(held, "__array__") and not np.isscalar(held) else []


def root(array: Any) -> Any:
    return array if not isinstance(array.base, np.ndarray) else root(array.base)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "self-play"])  # those are counted elsewhere
@given(rows=st.integers(1, 5), framework=st.sampled_from(["numpy", "torch"]), masks=st.booleans())
@examples(6)
def test_the_bytes_of_a_batch_are_those_of_its_distinct_buffers(
    kind: str, rows: int, framework: str, masks: bool
) -> None:
    with KINDS[kind](batch_size=rows) as loader:
        for batch in (loader.next(), loader.get_batch(rows + 1)):
            natives = {id(each._native): each._native for each in (batch, batch.kl) if each and each._native}
            inside = [(each.inputs_and_labels[0].ctypes.data, each.nbytes) for each in natives.values()]
            given = {root(array).ctypes.data: root(array).nbytes for array in arrays_in(batch) if array.size}
            apart = {at: size for at, size in given.items() if not any(a <= at < a + n for a, n in inside)}
            assert batch_bytes(batch) == sum(size for _, size in inside) + sum(apart.values())

            copied = batch.copy().to(framework)  # all its tensors have memory of their own
            if masks:
                _ = copied.loss_mask, copied.attention_mask
            made = [each for each in (copied._loss_mask, copied._attention_mask) if each is not None]
            distinct = {array.ctypes.data: array.nbytes for array in map(root, [*arrays_in(copied), *arrays_in(made)])}
            assert batch_bytes(copied) == sum(distinct.values())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_budget_holds_in_every_framework_whatever_a_batch_carries(framework: str) -> None:
    batch = TrainingBatch.empty(4, 8).to(framework)
    bare = batch_bytes(batch)
    assert bare == batch.input_ids.nbytes + batch.labels.nbytes
    carried: list[Any] = [np.zeros(10, np.float32), [np.ones(3, np.int8), b"12345"], {"deep": (np.ones(2),)}, "text", 7]
    batch.metadata.update({f"own {number}": each for number, each in enumerate(carried)})
    batch.metadata["same"] = carried[0]
    batch.loss_weights = backend(framework).from_numpy(np.ones((4, 8), np.float32))
    assert batch_bytes(batch) == bare + 40 + 3 + 5 + 16 + 128
    assert batch_bytes(TrainingBatch.empty(0, 8).to(framework)) == 0
    queue = BatchQueue(capacity=9, budget_bytes=2 * batch_bytes(batch))
    assert [queue.try_enqueue(batch) for _ in range(3)] == [True, True, False]
    assert queue.stats().bytes == 2 * batch_bytes(batch)


@pytest.mark.parametrize("timeout_s", [float("nan"), -1, "5"])
def test_a_time_that_is_none_is_refused_and_not_waited_for(timeout_s: Any) -> None:
    queue = BatchQueue(2)
    with pytest.raises(LoaderError, match="is no number of seconds"):
        queue.dequeue(timeout_s=timeout_s)
    queue.enqueue(TrainingBatch.empty(1, 1), timeout_s=float("inf"))
