"""get_batch(k) with changing k: the same rows whoever fills them, at a cost that does not grow."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples, make_store
from loaders.samples import counting_loader, follows_its_hint, inputs
from millstream import (
    BPETokenizer,
    BudgetError,
    ClosedError,
    ConversationDataLoader,
    OrderError,
    PretrainDataLoader,
    StoreError,
    TrainingBatch,
)
from millstream.batches import engine

TOKENIZER = BPETokenizer.train(["How far is it? 4 miles, or 12."], vocab_size=280)
CHATS = [
    {"messages": [{"role": "user", "content": "How far?" * (1 + n % 3)}, {"role": "assistant", "content": "4" * n}]}
    for n in range(1, 30)
]
sizes_of_batches = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4)), min_size=1, max_size=8)
"""A size, and how many batches of it are asked for."""


WHO_PAYS: dict[str, Any] = {
    "direct": lambda *_: False,
    "threads": lambda *_: True,
    "both": lambda own, *_: own.direct is not None,
}
"""Who fills a batch after a change: the trainer, threads at once, or threads from the second batch on."""
whoever_fills = pytest.mark.parametrize("who", list(WHO_PAYS))


@contextmanager
def filled_by(who: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.Engine, "threads_pay", WHO_PAYS[who])
        yield


def parts_of(batch: TrainingBatch) -> dict[str, Any]:
    """Everything that a batch says."""
    names = ("input_ids", "labels", "position_ids", "cu_seqlens", "loss_weights")
    columns = {name: getattr(batch, name) for name in names if getattr(batch, name, None) is not None}
    return {name: np.asarray(column).tolist() for name, column in columns.items()} | {"metadata": dict(batch.metadata)}


def chat_loader(cache: Path, **given: Any) -> ConversationDataLoader:
    loader = ConversationDataLoader(
        CHATS, tokenizer=TOKENIZER, max_length=64, chat_template="chatml", add_control_tokens=True, framework="numpy",
        cache_dir=cache, **{"packing": True, "accumulation": 2, **given},
    )  # fmt: skip
    loader.wait()
    return loader


def opened(kind: Any, cache: Path, **given: Any) -> Any:
    if kind == "chats":
        return chat_loader(cache, **given)
    store = make_store([37, 5, 60, 24, 90, *range(1, 20)])
    return PretrainDataLoader(store, chunk_size=6, documents=kind, framework="numpy", **given)


def cut_slowly(kind: str, cache: Path, sizes: list[int], **given: Any) -> Iterator[dict[str, Any]]:
    """Each batch by a loader of its own that has that size, resumed where the one before it stood."""
    state = None
    for size in sizes:
        with opened(kind, cache, batch_size=size, **given) as loader:
            if state is not None:
                loader.load_state_dict(state)
            yield parts_of(loader.next())
            state = loader.state_dict()


@whoever_fills
@pytest.mark.parametrize("kind", ["attend", "isolate", "row", "chats"])
@given(
    changes=sizes_of_batches,
    last=st.sampled_from([{}, {"drop_last": True}, {"pad_last": True}]),
    ranks=st.integers(1, 2),
    stop=st.integers(0, 20),
)
@examples(6)
def test_batches_are_those_of_loaders_that_have_each_size_from_the_start(
    tmp_path_factory: pytest.TempPathFactory,
    who: str,
    kind: str,
    changes: list[tuple[int, int]],
    last: dict[str, bool],
    ranks: int,
    stop: int,
) -> None:
    cache = tmp_path_factory.getbasetemp() / "chats"
    given_as: dict[str, Any] = {**last, "world_size": ranks, "rank": ranks - 1}
    if kind == "chats":
        given_as["accumulation"] = 1  # a loader of its own begins an update of its own
        changes = [(min(size, 2), steps) for size, steps in changes]
    sizes = [size for size, steps in changes for _ in range(steps)]
    expected = list(cut_slowly(kind, cache, sizes, **given_as))

    state: Any = None
    with filled_by(who), opened(kind, cache, batch_size=3, **given_as) as loader:
        for step, size in enumerate(sizes):
            if step == stop:
                state = json.loads(json.dumps(loader.state_dict()))
            assert parts_of(loader.get_batch(size)) == expected[step]
        told = [loader.explain(step) for step in range(len(sizes))]
        document = next((span.document for row in told[0] for span in row.spans), 0)
        using = loader.steps_of(document)
        epoch = loader.epoch
    if state is not None:
        with filled_by(who), opened(kind, cache, batch_size=5 if kind != "chats" else 1, **given_as) as loader:
            loader.load_state_dict(state)
            for step, size in enumerate(sizes[stop:], start=stop):
                assert parts_of(loader.get_batch(size)) == expected[step]
            assert [loader.explain(step) for step in range(len(sizes))] == told
    for step, rows in enumerate(told):
        assert len(rows) == expected[step]["metadata"]["rows"]
        if ranks == 1 and expected[step]["metadata"]["epoch"] == epoch:
            assert (step in using) == any(span.document == document for row in rows for span in row.spans)


@given(changes=sizes_of_batches)
@examples(20)
def test_denominators_of_updates_are_the_same_whoever_fills(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    cache = tmp_path_factory.getbasetemp() / "chats"
    found = []
    for who in ("direct", "threads"):
        with filled_by(who), chat_loader(cache, batch_size=2, accumulation=3) as loader:
            found.append([parts_of(loader.get_batch(size)) for size, steps in changes for _ in range(steps)])

    assert found[0] == found[1]


def test_threads_begin_once_one_size_was_asked_for_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "START_NS", 0)
    with counting_loader(tmp_path, tokens=60_001, prefetch=5) as loader:
        ring = loader._filler.engine
        loader.next()
        assert ring.ring is not None
        for step in range(1, 6):
            loader.get_batch(2)
            assert ring.ring is None and ring.direct.since_change[0] == step
        loader.get_batch(2)  # as many as threads would have filled in vain
        assert [ring.ring is None, ring.direct is None] == [False, True]
        for size in (4, 2) * 20:
            loader.get_batch(size)
            assert ring.ring is None and ring.direct.since_change[0] == 1
        assert loader.get_profiling_results()["batches"] == loader.step


def functions_called(loader: PretrainDataLoader, size: int) -> int:
    count = 0

    def seen(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and "millstream" in frame.f_code.co_filename

    sys.setprofile(seen)
    try:
        loader.get_batch(size)
    finally:
        sys.setprofile(None)
    return count


def test_a_change_does_as_much_after_thousands_of_them_as_after_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "START_NS", 10**18)  # on a busy machine one batch may take long enough to start threads
    with counting_loader(tmp_path, tokens=60_001) as loader:
        counts = []
        for number in range(3000):
            size = 1 + number % 2
            counts.append(functions_called(loader, size) if number % 500 == 20 else loader.get_batch(size) and 0)
        assert len({count for count in counts if count}) == 1
        feed = loader._filler.engine._feed
        loader.get_batch(5)
        assert loader._filler.engine._feed is feed  # what is read stays open


def test_a_state_without_room_for_its_past_keeps_the_present_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with counting_loader(tmp_path, tokens=4001) as loader:
        for number in range(500):
            loader.get_batch(1 + number % 2)
        with caplog.at_level(logging.WARNING, "millstream"):
            state, _ = loader.state_dict(), loader.state_dict()
        assert [record.message for record in caplog.records if "cache_dir=" in record.message] != []
        assert len(caplog.records) == 1
        assert loader.explain(0)  # this loader still knows
        told, rest = loader.explain(loader.step - 1), inputs(loader)
    assert len(json.dumps(state)) < 4096
    assert len(state["phases"]) == 1
    assert "cache_dir=" in state["past"]
    for cache_dir in (None, tmp_path / "beside"):
        with counting_loader(tmp_path, tokens=4001, cache_dir=cache_dir) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            assert loader.explain(499) == told
            with pytest.raises(OrderError, match="step 498 lies before what is known") as caught:
                loader.explain(498)
            assert "cache_dir=" in follows_its_hint(caught.value)
            again = loader.state_dict()
            assert again["past"] == state["past"]  # later states do not forget that
            for number in range(400 if cache_dir else 0):
                loader.get_batch(1 + number % 2)
            later, rows = loader.state_dict(), inputs(loader)
        assert ("earlier_phases" in later) == (cache_dir is not None)
        with counting_loader(tmp_path, tokens=4001, cache_dir=cache_dir) as loader:
            loader.load_state_dict(json.loads(json.dumps(later)))
            assert loader.explain(499) == told
            assert inputs(loader) == rows
            assert loader.state_dict()["past" if cache_dir is None else "earlier_phases"]
        if cache_dir is None:
            assert rows == rest


@whoever_fills
def test_a_budget_refuses_the_same_whoever_fills(tmp_path: Path, who: str) -> None:
    with counting_loader(tmp_path, memory_budget=100) as loader, pytest.raises(BudgetError) as caught:
        loader.next()
    enough = int(follows_its_hint(caught.value).split("memory_budget=")[1].split()[0])
    with filled_by(who), counting_loader(tmp_path, memory_budget=enough) as loader:
        first = loader.next()
        with pytest.raises(BudgetError, match="two are needed"):
            loader.get_batch(40)
        before = loader.state_dict()
        second = loader.get_batch(3)
        with pytest.raises(BudgetError, match="in use by your code"):
            loader.get_batch(4)
        assert loader.step == before["step"] + 1
        got = inputs([first, second])
        first.release()
        second.release()
        del first, second
        got += inputs([loader.get_batch(4)])
        assert loader.get_profiling_results()["memory"]["batches"] <= enough
    with counting_loader(tmp_path) as loader:
        assert got == inputs([loader.next(), loader.get_batch(3), loader.get_batch(4)])


def test_a_size_of_which_there_was_no_step_leaves_nothing_out(tmp_path: Path) -> None:
    with counting_loader(tmp_path, tokens=101, batch_size=1, drop_last=True) as loader:
        inputs(loader.next() for _ in range(7))
        state, rest = loader.state_dict(), inputs(loader.next() for _ in range(3))
    with counting_loader(tmp_path, tokens=101, batch_size=4, drop_last=True) as loader:
        loader.load_state_dict(state)  # batches of four would leave out the three rows of this epoch that are left
        assert inputs([loader.get_batch(3)]) == rest


@whoever_fills
def test_what_is_wrong_with_the_data_is_said_by_who_fills(tmp_path: Path, who: str) -> None:
    with filled_by(who), counting_loader(tmp_path, tokens=60_001, shuffle=False) as loader:
        loader.get_batch(2)
        file = tmp_path / "counting.bin"
        whole = file.read_bytes()
        file.write_bytes(whole[:200])
        with pytest.raises(StoreError) as caught:
            for _ in range(60):
                loader.get_batch(100)
        assert "verify" in follows_its_hint(caught.value)
        step = loader.step
        file.write_bytes(whole)
        assert loader.get_batch(100).metadata["step"] == step


@whoever_fills
def test_a_closed_loader_fills_nothing(tmp_path: Path, who: str) -> None:
    with filled_by(who), counting_loader(tmp_path) as loader:
        loader.next()
        batch = loader.get_batch(2)
    with pytest.raises(ClosedError):
        loader.get_batch(3)
    assert len(batch.input_ids) == 2


def test_changes_of_size_reach_the_schedule_when_it_is_asked_for() -> None:
    sizes = [3, 1, 2, 5, 5, 1, 4, 2, 3, 1]
    with opened("attend", Path(), batch_size=2) as asked, opened("attend", Path(), batch_size=2) as silent:
        for size in sizes:
            mine, theirs = asked.get_batch(size), silent.get_batch(size)
            assert parts_of(mine) == parts_of(theirs)
            assert asked.state_dict()["step"] == asked.step  # the schedule is asked for after every step
        assert asked.state_dict() == silent.state_dict()
        assert [asked.explain(step) for step in range(len(sizes))] == [silent.explain(s) for s in range(len(sizes))]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_size_that_was_given_back_leaves_no_trace(*, is_asked: bool) -> None:
    broken = [False]

    def listener(batch: TrainingBatch) -> TrainingBatch:
        if broken[0]:
            if is_asked:
                loader.state_dict()  # the schedule hears of the change while the batch is made
            raise RuntimeError("no")
        return batch

    with opened("attend", Path(), batch_size=2, transforms=[listener]) as loader:
        for size in (3, 1, 4):
            loader.get_batch(size)
        before = loader.state_dict()
        broken[0] = True
        with pytest.raises(RuntimeError, match="no"):
            loader.get_batch(5)
        broken[0] = False
        assert loader.state_dict() == before
        found = parts_of(loader.get_batch(2))
    with opened("attend", Path(), batch_size=2) as other:
        for size in (3, 1, 4):
            other.get_batch(size)
        assert parts_of(other.get_batch(2)) == found
