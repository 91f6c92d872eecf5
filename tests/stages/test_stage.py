"""Laws of one stage: results in the order of the input, nothing lost at its end, errors with its name."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.threads import until
from laws import examples
from millstream.errors import LoaderError, RecordError, StageError, Stopped, WaitTimeout
from millstream.selfplay.chunk_feed import FrameShuffler, TensorGenerator
from millstream.stages import FunctionStage, IterableStage, MapStage, Queue, SourceStage
from millstream.stages.stage_kinds import AHEAD


class Repeat(MapStage[int, int]):
    """Each number as often as it says, after a while that differs; their sum at the end."""

    def __init__(self, source: Queue[int], **settings: object) -> None:
        super().__init__(source, **settings)
        self.seen: list[int] = []

    def process(self, item: int) -> Iterable[int]:
        self.seen.append(item)
        time.sleep(random.random() * 0.001)
        if item == 3:
            self.count("three")
        return [item] * item

    def finish(self) -> Iterable[int]:
        return [1000 + sum(self.seen)]


class RepeatSeveral(Repeat):
    together = 4


class Evens(FunctionStage[int, int]):
    outputs = ("even", "odd")

    def route(self, item: int) -> str:
        return "odd" if item % 2 else "even"


def fed(items: Iterable[int], capacity: int = 1000) -> Queue[int]:
    queue = Queue[int](capacity)
    with queue.producer() as producer:
        producer.put_many(items)
    return queue


@given(
    st.sampled_from([Repeat, RepeatSeveral]),
    st.lists(st.integers(0, 4), max_size=30),
    st.integers(1, 5),
    st.integers(1, 4),
)
@examples(30)
def test_results_leave_in_the_order_of_the_input_whatever_the_threads(
    kind: type[Repeat], items: list[int], threads: int, capacity: int
) -> None:
    stage = kind(fed(items), threads=threads, capacity=capacity)
    stage.start()

    assert list(stage.output()) == [item for item in items for _ in range(item)] + [1000 + sum(items)]
    assert stage.join(5)
    counters = stage.counters()
    assert (counters["in"], counters["out"]) == (len(items), sum(items) + 1)
    assert counters["drops"].get("three", 0) == items.count(3)
    lived = counters["busy_s"] + counters["input_wait_s"] + counters["output_wait_s"]
    assert counters["busy"] == pytest.approx(counters["busy_s"] / lived)


def test_one_slow_item_keeps_only_some_finished_ones_in_memory() -> None:
    gate = threading.Event()
    done: list[int] = []

    def work(item: int) -> list[int]:
        if item == 0:
            gate.wait(20)
        done.append(item)
        return [item]

    stage = FunctionStage(fed(range(100)), function=work, threads=3)
    stage.start()
    until(lambda: len(done) > AHEAD * 3)
    time.sleep(0.05)
    held = len(done)
    gate.set()

    assert held <= AHEAD * 3 + 3
    assert list(stage.output()) == list(range(100))


def test_a_single_thread_sends_results_while_it_makes_them() -> None:
    def count_up(item: int) -> Iterator[int]:
        while True:
            yield item
            item += 1

    stage = FunctionStage(fed([5]), function=count_up, capacity=2)
    stage.start()
    assert stage.output().get_many(2)[0] == 5
    stage.stop()
    assert stage.join(1)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failure_carries_the_name_of_its_stage_and_comes_to_the_end_of_a_chain(threads: int) -> None:
    def fails(item: int) -> list[int]:
        if item == 7:
            raise RecordError("bad result", "2", hint="look at it", where="game 7")
        return [item]

    numbers = IterableStage(range(10**9))
    first = FunctionStage(numbers, function=fails, name="checker", threads=threads)
    second = FunctionStage(first, function=lambda item: [item], threads=threads)
    for stage in (numbers, first, second):
        stage.start()

    with pytest.raises(StageError, match="stage 'checker': game 7: bad result: 2") as caught:
        list(second.output())
    assert (caught.value.stage, caught.value.hint) == ("checker", "look at it")
    assert isinstance(caught.value.__cause__, RecordError)
    assert all(stage.join(1) for stage in (numbers, first, second))
    assert first.error is caught.value is second.error
    assert numbers.error is None


def test_a_failure_of_finish_or_of_a_source_is_one_of_the_stage() -> None:
    class Broken(SourceStage[int]):
        def produce(self) -> Iterator[int]:
            yield 1
            raise OSError("disk gone")

    class BrokenEnd(FunctionStage[int, int]):
        def finish(self) -> Iterable[int]:
            raise ValueError("no end")

    source, end = Broken(), BrokenEnd(fed([1]), function=lambda item: [item], threads=2)
    for stage in (source, end):
        stage.start()
    for stage, name in ((source, "broken"), (end, "broken_end")):
        with pytest.raises(StageError, match=f"stage '{name}'"):
            list(stage.output())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("state", ["not started", "waits for input", "waits for room", "waits for a slower one"])
def test_stop_ends_a_stage_at_once_in_every_state(state: str, threads: int) -> None:
    def work(item: int) -> list[int]:
        if item == 0 and state == "waits for a slower one":
            stage.stopping.wait(20)
        return [item]

    source = Queue[int]() if state == "waits for input" else fed(range(100))
    stage = FunctionStage(source, function=work, threads=threads, capacity=2)
    if state != "not started":
        stage.start()
        time.sleep(0.02)
    began = time.monotonic()
    stage.stop()

    assert stage.join(1)
    assert time.monotonic() - began < 1
    assert stage.error is None
    with pytest.raises(Stopped):
        stage.output().get()
    with pytest.raises(Stopped, match="stage 'function'"):
        stage.start()


class Slowly(MapStage[int, int]):
    together = 1000

    def process(self, item: int) -> Iterable[int]:
        self.stopping.wait(0.05)
        return [item]


@pytest.mark.parametrize("threads", [1, 2])
def test_items_that_leave_together_do_not_keep_a_stage_from_stopping(threads: int) -> None:
    stage = Slowly(fed(range(1000)), threads=threads)
    stage.start()
    time.sleep(0.1)
    stage.stop()
    assert stage.join(1)


def test_a_consumer_that_closes_the_output_ends_the_stage_and_those_before_it() -> None:
    numbers = IterableStage(range(10**9))
    stage = FunctionStage(numbers, function=lambda item: [item])
    numbers.start()
    stage.start()
    stage.output().get()
    stage.output().close()

    assert stage.join(1)
    assert numbers.join(1)
    assert stage.error is None


def test_a_source_may_read_its_inputs_and_their_end_is_its_own() -> None:
    class Zip(SourceStage[tuple[int, int]]):
        def produce(self) -> Iterator[tuple[int, int]]:
            while True:
                yield self.inputs[0].get(), self.inputs[1].get()

    stage = Zip(fed([1, 2, 3]), fed([4, 5]))
    stage.start()

    assert list(stage.output()) == [(1, 4), (2, 5)]
    assert stage.counters()["in"] == 5


def test_items_go_to_the_output_that_route_names() -> None:
    stage = Evens(fed(range(6)), function=lambda item: [item], threads=2)
    stage.start()

    assert [list(stage.output(name)) for name in ("even", "odd")] == [[0, 2, 4], [1, 3, 5]]
    with pytest.raises(LoaderError, match="no output ''") as caught:
        stage.output()
    assert "'even', 'odd'" in str(caught.value.hint)


def test_a_waiting_stage_counts_its_wait_while_it_waits() -> None:
    stage = FunctionStage(Queue[int](), function=lambda item: [item])
    stage.start()
    until(lambda: stage.counters()["input_wait_s"] > 0.02)

    assert stage.counters()["busy"] < 0.5
    stage.stop()
    assert stage.join(1)


def test_who_waits_for_stages_that_were_not_started_is_told_so() -> None:
    first = IterableStage([1, 2], name="first")
    second = Repeat(first.output(), name="second")
    with pytest.raises(WaitTimeout, match=r"and 'second' and 'first' were not started\n  hint: call start\(\)"):
        second.output().get(timeout_s=0)
    second.start()
    with pytest.raises(WaitTimeout, match="and 'first' was not started"):
        second.output().get(timeout_s=0.01)
    first.start()
    assert second.output().get() == 1


def test_who_waits_without_a_limit_for_a_stage_that_is_started_late_is_warned_and_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.0)
    stage, warned = IterableStage([1], name="late"), list[str]()

    def warn(said: str, kind: type[Warning], **_: object) -> None:
        warned.append(said)
        stage.start()

    monkeypatch.setattr("warnings.warn", warn)
    assert stage.output().get() == 1
    assert len(warned) == 1 and "'late' was not started: call start() of each stage" in warned[0]


def test_impossible_stages_are_refused() -> None:
    with pytest.raises(LoaderError, match="0 threads"):
        Repeat(Queue(), threads=0)
    with pytest.raises(LoaderError, match="on one thread, not on 2"):
        IterableStage([1], threads=2)
    for stage in (FrameShuffler, TensorGenerator):
        with pytest.raises(LoaderError, match="on one thread, not on 2"):
            stage(Queue(), threads=2)
    with pytest.raises(LoaderError, match="one input, not 2"):
        MapTwo(Queue(), Queue())


class MapTwo(MapStage[int, int]):
    def process(self, item: int) -> Iterable[int]:
        return [item]


def test_a_queue_says_whether_there_is_room_and_waits_for_it() -> None:
    queue: Queue[int] = Queue(capacity=1)
    producer = queue.producer()
    assert queue.has_room(0)
    producer.put(1)
    assert not queue.has_room(0.01)
    taker = threading.Timer(0.05, queue.get)
    taker.start()
    assert queue.has_room(10)
    taker.join()
    assert queue.total(lambda item: item) == 0
