"""Laws of the queue: what is put is got once or counted as dropped, and its end is heard by everybody who waits."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from batches.threads import join, started, until
from laws import examples
from millstream.errors import BudgetError, ClosedError, LoaderError, QueueClosed, Stopped, WaitTimeout
from millstream.stages import Queue
from millstream.stages.queue import Overflow

MODES = st.sampled_from(get_args(Overflow))


class AgainstAPlainList(RuleBasedStateMachine):
    """One thread: the queue is a list that loses at one end, at the other or never, as it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = {mode: Queue[int](3, mode) for mode in get_args(Overflow)}
        self.producers = {mode: queue.producer() for mode, queue in self.queues.items()}
        self.models: dict[str, list[int]] = {mode: [] for mode in self.queues}
        self.made = 0

    @rule(count=st.integers(0, 5))
    def put(self, count: int) -> None:
        items = list(range(self.made, self.made + count))
        self.made += count
        self.producers["drop_new"].put_many(items)
        self.models["drop_new"] = (self.models["drop_new"] + items)[:3] if count else self.models["drop_new"]
        self.producers["keep_newest"].put_many(items)
        self.models["keep_newest"] = (self.models["keep_newest"] + items)[-3:]
        room = 3 - len(self.models["block"])
        if count > room:
            with pytest.raises(WaitTimeout):
                self.producers["block"].put_many(items, timeout_s=0)
        else:
            self.producers["block"].put_many(items)
        self.models["block"] += items[:room]

    @rule(most=st.integers(1, 4))
    def get(self, most: int) -> None:
        for mode, queue in self.queues.items():
            model = self.models[mode]
            if model:
                assert queue.get_many(most) == model[:most]
                del model[:most]
            else:
                assert queue.try_get() is None
                with pytest.raises(WaitTimeout):
                    queue.get(timeout_s=0)

    @invariant()
    def nothing_is_unaccounted_for(self) -> None:
        for mode, queue in self.queues.items():
            counters = queue.counters()
            assert counters["put"] == counters["got"] + counters["dropped"] + counters["size"]
            assert (queue.size, queue.peek()) == (len(self.models[mode]), next(iter(self.models[mode]), None))
            assert 0 <= counters["fill_mean"] <= 1
        assert self.queues["block"].counters()["dropped"] == 0


TestAgainstAPlainList = AgainstAPlainList.TestCase


@given(
    mode=MODES,
    producers=st.integers(1, 4),
    consumers=st.integers(1, 4),
    blocks=st.lists(st.integers(0, 9), max_size=6),
    capacity=st.integers(1, 5),
    most=st.integers(1, 6),
)
@examples(60)
def test_every_item_comes_out_once_or_is_counted_and_each_producers_in_order(
    mode: Overflow, producers: int, consumers: int, blocks: list[int], capacity: int, most: int
) -> None:
    queue = Queue[tuple[int, int]](capacity, mode)
    tokens = [queue.producer() for _ in range(producers)]
    taken: list[list[tuple[int, int]]] = [[] for _ in range(consumers)]

    def produce(who: int) -> None:
        number = 0
        with tokens[who] as producer:
            for block in blocks:
                producer.put_many([(who, number + i) for i in range(block)])
                number += block

    def consume(who: int) -> None:
        while True:
            try:
                taken[who] += queue.get_many(most)
            except QueueClosed:
                return

    takers = [started(lambda who=who: consume(who)) for who in range(consumers)]  # type: ignore[misc]
    makers = [started(lambda who=who: produce(who)) for who in range(producers)]  # type: ignore[misc]
    join(*makers, *takers)

    counters = queue.counters()
    got = Counter(item for mine in taken for item in mine)
    assert counters["put"] == producers * sum(blocks)
    assert counters["got"] == got.total() == counters["put"] - counters["dropped"]
    assert set(got.values()) <= {1}
    assert mode != "block" or counters["dropped"] == 0
    for mine in taken:
        for who in range(producers):
            own = [number for maker, number in mine if maker == who]
            assert own == sorted(own)


@pytest.mark.parametrize("ends", ["close", "stop"])
def test_an_end_wakes_every_waiter(ends: str) -> None:
    full, empty = Queue[int](1), Queue[int](1)
    putter, getter = full.producer(), empty
    putter.put(0)
    heard: list[type] = []

    def waits(call: Callable[[], object]) -> None:
        with pytest.raises(ClosedError) as caught:
            call()
        heard.append(caught.type)

    threads = [started(lambda: waits(lambda: putter.put(1))) for _ in range(3)]
    threads += [started(lambda: waits(getter.get)) for _ in range(3)]
    until(lambda: full.counters()["put_waits"] == empty.counters()["get_waits"] == 3)
    assert full.counters()["put_wait_s"] > 0  # and they still wait
    for queue in (full, empty):
        getattr(queue, ends)()
    join(*threads)

    wanted = [ClosedError] * 3 + [QueueClosed] * 3 if ends == "close" else [Stopped] * 6
    assert Counter(heard) == Counter(wanted)
    if ends == "close":
        assert list(full) == [0]  # those who waited are not in it
    else:
        with pytest.raises(Stopped):
            full.get()


def test_a_queue_closes_with_its_last_producer_and_not_before() -> None:
    queue = Queue[int]()
    first, second = queue.producer(), queue.producer()
    first.close()
    first.close()
    second.put(1)
    closed_early = queue.closed
    second.close()

    assert (closed_early, queue.closed) == (False, True)
    assert list(queue) == [1]
    with pytest.raises(ClosedError, match="takes no more"):
        queue.producer()
    with pytest.raises(ClosedError, match="producer was closed"):
        second.put(2)


def test_a_forgotten_producer_is_gone() -> None:
    queue = Queue[int]()
    producer = queue.producer()
    producer.put(1)
    del producer
    gc.collect()

    assert list(queue) == [1]


def test_what_a_producer_fails_with_comes_behind_what_it_put_before() -> None:
    queue = Queue[int]()
    other = queue.producer()
    failure = ValueError("row 7 is broken")
    with pytest.raises(ValueError), queue.producer() as producer:
        producer.put(1)
        raise failure

    assert queue.get() == 1
    for take in (queue.get, queue.try_get, lambda: next(iter(queue))):
        with pytest.raises(ValueError) as caught:
            take()
        assert caught.value is failure
    with pytest.raises(ClosedError) as refused:
        other.put(2)
    assert refused.value.__cause__ is failure


def test_a_block_larger_than_the_queue_goes_through_in_pieces() -> None:
    queue = Queue[int](2)

    def produce() -> None:
        with queue.producer() as producer:
            producer.put_many(range(100))

    thread = started(produce)
    assert list(queue) == list(range(100))
    join(thread)


def test_ctrl_c_takes_no_notice_away_from_another_waiter() -> None:
    queue = Queue[int](1)
    producer = queue.producer()
    taken: list[int] = []

    def interrupt() -> None:
        until(lambda: queue.counters()["get_waits"] == 2)
        os.kill(os.getpid(), signal.SIGINT)
        producer.put(1)

    other = started(lambda: taken.append(queue.get()))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        third = started(interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.get()
    finally:
        signal.signal(signal.SIGINT, before)
    join(other, third)

    assert taken == [1]


def test_bytes_are_bounded_too_in_every_mode() -> None:
    for mode in get_args(Overflow):
        queue = Queue[bytes](10, mode, budget_bytes=8, weigh=len)
        producer = queue.producer()
        producer.put_many([b"1234", b"56"])
        assert not producer.try_put(b"789")
        with pytest.raises(BudgetError, match="9 bytes"):
            producer.put(b"123456789")
        if mode != "block":
            producer.put(b"789")
            assert list(queue.get_many(9)) == {"drop_new": [b"1234", b"56"], "keep_newest": [b"56", b"789"]}[mode]


def test_a_producer_whose_item_fits_does_not_wait_behind_one_whose_item_does_not() -> None:
    queue = Queue[bytes](10, budget_bytes=8, weigh=len)
    producer = queue.producer()
    producer.put_many([b"12", b"345678"])
    large = started(lambda: producer.put(b"12345678"))
    until(lambda: queue.counters()["put_waits"] == 1)
    small = started(lambda: producer.put(b"ab"))
    until(lambda: queue.counters()["put_waits"] == 2)

    assert queue.get() == b"12"
    join(small)
    assert queue.get_many(2) == [b"345678", b"ab"]
    join(large)
    assert queue.get() == b"12345678"


def test_impossible_queues_are_refused() -> None:
    with pytest.raises(LoaderError, match="capacity 0"):
        Queue(0)
    with pytest.raises(LoaderError, match="drop_old"):
        Queue(overflow="drop_old")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *(({"capacity": wrong}, "capacity") for wrong in ("3", None, 2.5, True, -1)),
        *(({"budget_bytes": wrong, "weigh": len}, "budget_bytes") for wrong in ("much", 2.5, True, 0, -1, b"1")),
        ({"weigh": 5}, "weigh=5 cannot be called"),
        ({"budget_bytes": 10}, "budget_bytes=10 limits nothing: no function says what an item weighs"),
    ],
)
def test_a_limit_that_limits_nothing_is_refused_with_a_hint(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(LoaderError, match=said) as refused:
        Queue(**settings)
    assert refused.value.hint


@pytest.mark.parametrize("most", ["x", None, 1.5, True, 0, -1])
def test_who_takes_items_says_how_many(most: Any) -> None:
    queue = Queue[int]()
    queue.producer().put(1)
    for take in (queue.get_many, queue.get_now):
        with pytest.raises(LoaderError, match="most must be an integer of at least 1"):
            take(most)
    assert queue.counters()["got"] == 0


def test_a_budget_is_bytes_or_a_size_as_people_write_it() -> None:
    assert Queue[bytes](budget_bytes="1kB", weigh=len).budget_bytes == 1000
