"""Laws of a pipeline: threads and sizes change nothing in what comes out, its end is clean, its failures are named."""

from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.threads import join, started, until
from laws import examples
from millstream.errors import ClosedError, LoaderError, QueueClosed, RecipeError, StageError, WaitWarning
from millstream.stages import FunctionStage, IterableStage, MapStage, Pipeline, Queue, SourceStage, Stage


def times(factor: int) -> Callable[[int], list[int]]:
    """So many items of each; none of some."""
    return lambda item: [item * 7 + i for i in range((item + factor) % (factor + 1))]


class Pairs(MapStage[int, int]):
    """A stage with a memory: sums of two neighbours, and what is left at the end."""

    def __init__(self, source: Stage[int] | Queue[int], **settings: Any) -> None:
        super().__init__(source, **settings)
        self.held: list[int] = []

    def process(self, item: int) -> Iterable[int]:
        self.held.append(item)
        if len(self.held) == 2:
            yield sum(self.held)
            self.held.clear()

    def finish(self) -> Iterable[int]:
        return self.held


def paired(items: list[int]) -> list[int]:
    return [sum(items[i : i + 2]) for i in range(0, len(items), 2)]


class Sink(MapStage[int, int]):
    outputs = ()

    def process(self, item: int) -> Iterable[int]:
        self.count("seen")
        return ()


def chain(
    items: Iterable[int], factors: list[int], threads: list[int], capacity: int = 2
) -> tuple[dict[str, Stage[int]], str]:
    stages: dict[str, Stage[int]] = {"source": IterableStage(items, capacity=capacity)}
    last = "source"
    for number, (factor, count) in enumerate(zip(factors, threads, strict=True)):
        before = stages[last]
        last = f"stage{number}"
        stages[last] = FunctionStage(before, function=times(factor), threads=count, capacity=capacity)
    return stages, last


def alive() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("millstream-")}


@given(
    st.integers(0, 25),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=4),
    st.integers(1, 4),
    st.booleans(),
)
@examples(40)
def test_any_graph_with_any_threads_gives_what_nested_loops_give(
    count: int, levels: list[tuple[int, int]], capacity: int, pairs: bool
) -> None:
    stages, last = chain(range(count), [f for f, _ in levels], [t for _, t in levels], capacity)
    wanted = list(range(count))
    for factor, _ in levels:
        wanted = [made for item in wanted for made in times(factor)(item)]
    if pairs:
        stages["pairs"] = Pairs(stages[last])
        wanted = paired(wanted)

    with Pipeline(stages) as pipeline:
        assert list(pipeline) == wanted
        with pytest.raises(QueueClosed):
            pipeline.get()
        assert pipeline.join(5)
    counters = pipeline.counters()
    for queue in counters["queues"].values():
        assert queue["put"] == queue["got"]
        assert queue["size"] == queue["dropped"] == 0
    assert alive() == set()


class Fork(FunctionStage[int, int]):
    outputs = ("even", "odd")

    def route(self, item: int) -> str:
        return self.outputs[item % 2]


Tree = tuple[str, int, int, tuple["Tree", ...]]
"""A stage of a kind, with its factor, its threads and what comes behind it."""
LEAF = st.tuples(st.just("map"), st.integers(0, 3), st.integers(1, 3), st.just(()))
TREES = st.recursive(
    LEAF,
    lambda inner: (
        st.tuples(st.just("map"), st.integers(0, 3), st.integers(1, 3), st.tuples(inner))
        | st.tuples(st.just("fork"), st.integers(0, 3), st.integers(1, 3), st.tuples(inner, inner))
    ),
    max_leaves=4,
)


def grown(tree: Tree, source: Any, items: list[int], stages: dict[str, Any], wanted: dict[str, list[int]]) -> None:
    """Add the stages of a tree, and what is to come out of each of its ends."""
    kind, factor, threads, rest = tree
    name = f"{kind}{len(stages)}"
    stages[name] = (Fork if kind == "fork" else FunctionStage)(source, function=times(factor), threads=threads)
    made = [made for item in items for made in times(factor)(item)]
    if not rest:
        wanted[name] = made
    for number, (output, inner) in enumerate(zip(stages[name].outputs, rest, strict=False)):
        mine = made if kind == "map" else [item for item in made if item % 2 == number]
        grown(inner, stages[name].output(output), mine, stages, wanted)


@given(TREES, st.integers(0, 20))
@examples(40)
def test_any_forks_give_each_end_its_own_items_in_order(tree: Tree, count: int) -> None:
    stages: dict[str, Any] = {"source": IterableStage(range(count))}
    wanted: dict[str, list[int]] = {}
    grown(tree, stages["source"], list(range(count)), stages, wanted)
    got: dict[str, list[int]] = {name: [] for name in wanted}

    def take(name: str) -> None:
        while True:
            try:
                got[name].append(pipeline.get(name))
            except QueueClosed:
                return

    with Pipeline(stages, output=list(wanted)) as pipeline:
        join(*(started(lambda name=name: take(name)) for name in wanted))  # type: ignore[misc]
    assert got == wanted
    assert alive() == set()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 20), st.sampled_from([0, 0.001, 0.01]))
@examples(25)
def test_close_at_any_moment_returns_within_a_second_and_no_thread_survives(
    threads: list[int], taken: int, pause_s: float
) -> None:
    stages, _ = chain(range(10**9), [2] * len(threads), threads)
    pipeline = Pipeline(stages)
    pipeline.start()
    for _ in range(taken):
        pipeline.get()
    time.sleep(pause_s)
    began = time.monotonic()
    pipeline.close()

    assert time.monotonic() - began < 1
    assert alive() == set()
    for call in (pipeline.get, pipeline.start):
        with pytest.raises(ClosedError, match="pipeline was closed"):
            call()
    pipeline.close()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 40))
@examples(25)
def test_a_failure_of_any_stage_is_raised_with_its_name_and_stops_all(threads: list[int], which: int, at: int) -> None:
    which = min(which, len(threads) - 1)
    stages, _ = chain(range(10**9), [2] * len(threads), threads)
    calls = iter(range(10**9))
    inner = stages[f"stage{which}"]
    assert isinstance(inner, FunctionStage)
    function = inner._function

    def fails(item: int) -> Iterable[int]:
        if next(calls) == at:
            raise ZeroDivisionError("on purpose")
        return function(item)

    inner._function = fails
    with Pipeline(stages) as pipeline:
        for _ in range(2):  # and again, as long as somebody asks
            with pytest.raises(StageError, match=f"stage 'stage{which}': ZeroDivisionError: on purpose") as caught:
                list(pipeline)
        assert caught.value.stage == f"stage{which}"
        assert pipeline.error is caught.value
        until(lambda: not alive())


@pytest.mark.parametrize("state", ["not started", "full", "empty", "failed", "ended", "waits elsewhere"])
def test_close_is_quick_in_every_state(state: str) -> None:
    class Waits(SourceStage[int]):
        def produce(self) -> Iterator[int]:
            self.stopping.wait(60)
            yield 1

    sources: dict[str, Callable[[], Stage[int]]] = {
        "empty": lambda: FunctionStage(Queue[int](), function=lambda item: [item]),
        "failed": lambda: IterableStage(1 // n for n in (1, 0)),
        "ended": lambda: IterableStage([]),
        "waits elsewhere": Waits,
    }
    source = sources.get(state, lambda: IterableStage(range(10**9)))()
    pipeline = Pipeline({"source": source, "next": FunctionStage(source, function=lambda item: [item], threads=2)})
    if state != "not started":
        pipeline.start()
        time.sleep(0.03)
    began = time.monotonic()
    pipeline.close()

    assert time.monotonic() - began < 1
    assert alive() == set()
    assert (pipeline.error is not None) is (state == "failed")


def test_a_pipeline_that_is_forgotten_leaves_no_thread() -> None:
    stages, _ = chain(range(10**9), [2], [2])
    pipeline = Pipeline(stages)
    pipeline.start()
    pipeline.get()
    assert alive()
    del pipeline, stages
    gc.collect()

    until(lambda: not alive())
    assert alive() == set()


def test_a_get_that_waits_hears_of_a_failure_and_of_a_close() -> None:
    for end in ("failure", "close"):
        gate = threading.Event()

        class Late(SourceStage[int]):
            def produce(self, gate: threading.Event = gate) -> Iterator[int]:
                gate.wait(20)
                yield 1 // 0

        source = Late()
        pipeline = Pipeline({"source": source, "next": FunctionStage(source, function=lambda item: [item])})
        timer = threading.Timer(0.02, gate.set if end == "failure" else pipeline.close)
        with pipeline:
            timer.start()
            with pytest.raises(StageError if end == "failure" else ClosedError):
                pipeline.get()
            gate.set()
            timer.join()


def test_the_end_of_a_queue_that_is_fed_from_outside_flows_through() -> None:
    queue = Queue[int]()
    pipeline = Pipeline({"pairs": Pairs(queue)})
    with pipeline:
        with queue.producer() as producer:
            producer.put_many([1, 2, 3])
        assert list(pipeline) == [3, 3]
    assert "pairs.input" in pipeline.counters()["queues"]


def test_several_outputs_are_got_by_name() -> None:
    class Split(FunctionStage[int, int]):
        outputs = ("even", "odd")

        def route(self, item: int) -> str:
            return self.outputs[item % 2]

    source = IterableStage(range(5))
    split = Split(source, function=lambda item: [item])
    stages = {"source": source, "split": split, "sink": Sink(split.output("even"))}
    with Pipeline(stages, output="split.odd") as pipeline:
        assert list(pipeline) == [1, 3]
        assert pipeline.join(5)
    assert pipeline.counters()["stages"]["sink"]["drops"] == {"seen": 3}


def test_a_pipeline_without_an_output_is_waited_for() -> None:
    source = IterableStage(range(5))
    with Pipeline({"source": source, "sink": Sink(source)}) as pipeline:
        assert pipeline.join(5)
        with pytest.raises(RecipeError, match="no output"):
            pipeline.get()


class Numbers(IterableStage[int]):
    gives = int


class Words(FunctionStage[str, str]):
    takes = str


def test_wrong_graphs_are_refused_by_name() -> None:
    def source() -> Numbers:
        return Numbers([1])

    def function(before: Any, **settings: Any) -> FunctionStage[Any, Any]:
        return FunctionStage(before, function=lambda item: [item], **settings)

    one: Any = source()
    two: Any = source()
    wrong: list[tuple[dict[str, Any], Any, str, str]] = [
        ({}, None, "without stages", "name"),
        ({"a.b": one}, None, "'a.b' cannot be the name", "dot"),
        ({"a": Queue()}, None, "'a' is a Queue", "MapStage"),
        ({"a": one, "b": one}, None, "'a' and 'b' are the same stage", "each"),
        ({"b": function(one)}, None, "'b' takes from a Numbers that is not in the pipeline", "add"),
        ({"a": one, "b": function(one), "c": function(one)}, None, "'b' and 'c' both take from 'a'", "two outputs"),
        ({"a": one, "b": two}, None, "2 loose ends: 'a', 'b'", "output="),
        ({"a": one, "b": two}, "a", "no stage takes what comes out of 'b'", r"output=\['a', 'b'\]"),
        ({"a": one, "b": function(one)}, ["a", "b"], "'b' and 'the output of the pipeline' both take", "two outputs"),
        ({"reader": one}, "raeder", "no output 'raeder'", "did you mean reader"),
        ({"a": one}, ["a", "a"], "named twice", "once"),
    ]
    for stages, output, message, hint in wrong:
        with pytest.raises(RecipeError, match=message) as caught:
            Pipeline(stages, output)
        assert re.search(hint, str(caught.value.hint))


def test_stages_that_do_not_fit_are_refused_as_they_are_joined() -> None:
    before: Any = Numbers([1], name="a")
    for joined in (before, before.output()):
        with pytest.raises(RecipeError, match="'b' takes str, but 'a' gives int") as caught:
            Words(joined, function=str.split, name="b")
        assert "between" in str(caught.value.hint)


@pytest.mark.parametrize("wrong", [None, Path("games"), "games", 5, [1, 2], Queue, range(10**9)])
def test_what_is_no_stage_and_no_queue_is_no_input(wrong: Any) -> None:
    with pytest.raises(LoaderError, match="Words takes from a stage or a queue, not from ") as caught:
        Words(wrong, function=str.split)
    assert "IterableStage" in str(caught.value.hint)


@pytest.mark.parametrize("threads", ["2", None, 1.5])
def test_a_stage_works_with_a_number_of_threads(threads: Any) -> None:
    with pytest.raises(LoaderError, match="threads must be an integer of at least 1, not"):
        Words(Queue(), function=str.split, threads=threads)


def test_calls_out_of_order_are_refused() -> None:
    pipeline = Pipeline({"a": IterableStage([1])})
    with pytest.raises(LoaderError, match="not started"):
        pipeline.get()
    with pipeline, pytest.raises(LoaderError, match="started before"):
        pipeline.start()


def test_a_closed_pipeline_is_gone_with_its_stages_when_nobody_holds_it() -> None:
    """Windows and reservoirs are large, and the collector may not come by for hours."""
    numbers = IterableStage(range(1000))
    pairs = Pairs(numbers, capacity=1)
    pipeline = Pipeline({"numbers": numbers, "pairs": pairs})
    gc.disable()
    try:
        with pipeline:
            pipeline.get()
            pipeline.statistics()
        parts = [weakref.ref(part) for part in (pipeline, numbers, pairs, numbers.output())]
        del pipeline, numbers, pairs
        assert [part() for part in parts] == [None] * 4
    finally:
        gc.enable()


def test_whoever_asks_several_outputs_for_an_item_is_told_their_names() -> None:
    stages = {name: IterableStage([1], name=name) for name in ("train", "validation")}
    with Pipeline(stages, ["train", "validation"]) as pipeline:
        with pytest.raises(RecipeError, match=r"several outputs: 'train' and 'validation'\n  hint: .*get\('train'\)"):
            pipeline.get()
        with pytest.raises(RecipeError, match="did you mean train"):
            pipeline.get("trian")


def test_who_waits_long_is_told_how_far_the_stages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.05)
    numbers: Queue[int] = Queue()
    doubled = FunctionStage(numbers, function=lambda item: [2 * item])
    with Pipeline({"doubled": doubled}) as pipeline, numbers.producer() as producer:
        producer.put(1)
        assert pipeline.get() == 2
        threading.Timer(2, producer.put, (2,)).start()
        with pytest.warns(WaitWarning, match="waiting for an item of 'doubled'.* have given doubled 1"):
            assert pipeline.get() == 4
