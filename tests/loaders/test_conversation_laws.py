"""The six laws for conversations: packed or not, prepared, made before, or made while they are trained on."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chats.chatml import bpe
from laws import Ranks, Row, Work, examples, rows_of
from loaders.conversations import (
    LENGTH,
    Chats,
    chats,
    document,
    made_late,
    rows_of_a_step,
    segments,
    segments_of,
    works,
)
from loaders.test_laws import Tape, moves
from millstream import BudgetError, StateError
from millstream.errors import UnknownLength

__all__ = ["made_late"]
pytestmark = pytest.mark.usefixtures("made_late")

shuffles = st.sampled_from(["global", "local", False])


@given(data=chats, work=works, shuffle=shuffles, global_rows=rows_of_a_step)
@examples(8)
def test_complete_an_epoch_holds_every_conversation_exactly_once(
    data: Chats, work: Work, shuffle: Any, global_rows: int
) -> None:
    with Ranks(data, work, global_rows, shuffle=shuffle) as run:
        epochs = [run.epoch() for _ in range(3)]

    for epoch in epochs:
        assert Counter(segments_of(epoch)) == Counter(data.documents)
    assert len({len(epoch) for epoch in epochs}) == 1


@given(data=chats, works=st.tuples(works, works), shuffle=shuffles, global_rows=rows_of_a_step)
@examples(8)
def test_same_threads_depth_and_ranks_change_nothing(
    data: Chats, works: tuple[Work, Work], shuffle: Any, global_rows: int
) -> None:
    """Nor does it matter when the rows were made."""
    seen = []
    for work in works:
        with Ranks(data, work, global_rows, seed=4, shuffle=shuffle) as run:
            seen.append([run.step() for _ in range(5)])
        data.lose_cache()

    assert seen[0] == seen[1]


@given(
    data=chats,
    shuffle=shuffles,
    cuts=st.lists(st.tuples(works, rows_of_a_step, st.integers(0, 3), st.booleans()), min_size=2, max_size=4),
)
@examples(8)
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(
    data: Chats, shuffle: Any, cuts: list[tuple[Work, int, int, bool]]
) -> None:
    """Each cut is (work, rows, steps, whether what was made is lost behind it)."""
    got, state = list[Row](), None
    for work, global_rows, steps, lost in cuts:
        with Ranks(data, work, global_rows, seed=9, shuffle=shuffle) as run:
            if state is not None:
                run.load(json.loads(state))
            got += run.steps(steps)
            state = json.dumps(run.loaders[0].state_dict())
            assert len(state) < 4096
            if work is cuts[-1][0]:
                got += run.epoch()
        if lost:
            data.lose_cache()

    with data.loader(batch_size=1, seed=9, shuffle=shuffle) as whole:
        assert got == [row for _ in got for row in rows_of(whole.next())]


@given(data=chats, other=chats, steps=st.integers(0, 3))
@examples(5)
def test_resumable_a_state_goes_on_with_its_own_source_only(data: Chats, other: Chats, steps: int) -> None:
    """A run over another source is refused, and stays where it was."""
    with data.loader(name="one") as loader:
        for _ in range(steps):
            loader.next()
        state = json.loads(json.dumps(loader.state_dict()))
    with replace(other, packing=data.packing).loader(name="other") as loader:
        before = loader.state_dict()
        with pytest.raises(StateError, match="name='one'"):
            loader.load_state_dict(state)
        assert loader.state_dict()["step"] == before["step"] == 0


@given(data=chats, work=works, shuffle=shuffles)
@examples(8)
def test_labels_are_what_follows_and_weigh_what_the_conversation_says(data: Chats, work: Work, shuffle: Any) -> None:
    """Whatever shares a row: the first token of a conversation is nobody's target, and padding has none."""
    known = dict(document(number, size) for number, size in enumerate(data.sizes))
    with Ranks(data, work, 12, shuffle=shuffle) as run:
        rows = run.epoch()

    for row in rows:
        labels, weights = list[int](), list[float]()
        for ids in segments(row):
            targets = [*zip(ids[1:], known[ids][1:], strict=True), (0, 0.0)]
            labels += [token if weight else -100 for token, weight in targets]
            weights += [weight for _, weight in targets]
        padding = LENGTH - row.length
        assert row.labels == (*labels, *[-100] * padding)
        assert row.weights == pytest.approx((*weights, *[0.0] * padding))


@given(data=chats, work=works, global_rows=rows_of_a_step, shuffle=shuffles)
@examples(8)
def test_explainable_rows_name_their_conversations_and_conversations_their_steps(
    data: Chats, work: Work, global_rows: int, shuffle: Any
) -> None:
    """In the first epoch, which may take windows as they come, and in one that does not."""
    with Ranks(data, work, global_rows, shuffle=shuffle) as run:
        first = run.loaders[0]
        for loader in run.loaders:
            loader.wait()
        store, steps = first.store, first.get_num_batches()
        for epoch in range(2):
            assert first.epoch == epoch
            foretold = {document: first.steps_of(document) for document in range(store.documents)}
            used: dict[int, set[int]] = {document: set() for document in range(store.documents)}
            for step in range(epoch * steps, (epoch + 1) * steps):
                for loader in run.loaders:
                    told, rows = loader.explain(step), rows_of(loader.next())
                    assert [origin.row for origin in told] == list(range(len(rows)))
                    for origin, row in zip(told, rows, strict=True):
                        spans = origin.spans
                        assert segments(row) == [
                            tuple(store.document(span.document)[span.start : span.stop].tolist()) for span in spans
                        ]
                        assert origin.text == bpe().decode(list(row.tokens))
                        for span in spans:
                            used[span.document].add(step)
            assert foretold == {document: sorted(steps) for document, steps in used.items()}


@given(data=chats, work=works, global_rows=rows_of_a_step)
@examples(8)
def test_explainable_files_and_records_are_named(data: Chats, work: Work, global_rows: int) -> None:
    """What was mixed before it was written still knows its file and its line."""
    half = len(data.sizes) // 2
    with data.loader() as loader:
        loader.wait()
        store = loader.store
        for number in range(store.documents):
            origin = store.origin_of(number)
            assert origin is not None
            place = origin.row + (half if origin.file.endswith("b.jsonl") else 0)
            assert tuple(store.document(number).tolist()) == data.documents[place]


@given(data=chats, work=works, global_rows=rows_of_a_step, shuffle=shuffles)
@examples(8)
def test_explainable_steps_that_are_known_are_explained_before_the_rest_is_made(
    data: Chats, work: Work, global_rows: int, shuffle: Any
) -> None:
    with Ranks(data, work, global_rows, shuffle=shuffle) as run:
        told, texts = list[list[Any]](), list[list[str]]()
        for step in range(4):
            texts.append([bpe().decode(list(row.tokens)) for row in run.step()])
            told.append([origin for loader in run.loaders for origin in loader.explain(step)])
        for loader in run.loaders:
            loader.wait()
        again = [[origin for loader in run.loaders for origin in loader.explain(step)] for step in range(4)]
    assert texts == [[origin.text for origin in step] for step in told] == [[o.text for o in step] for step in again]
    assert told == again


@given(data=chats, work=works, global_rows=rows_of_a_step, shuffle=shuffles)
@examples(8)
def test_honest_what_an_epoch_leaves_out_is_counted(data: Chats, work: Work, global_rows: int, shuffle: Any) -> None:
    with Ranks(data, work, global_rows, shuffle=shuffle) as run:
        size = len(run.epoch())
    data.lose_cache()
    assume(size >= global_rows)
    with Ranks(data, work, global_rows, shuffle=shuffle, drop_last=True) as run:
        rows = run.epoch()
        for loader in run.loaders:
            loader.wait()
        losses = [loader.losses for loader in run.loaders]

    assert {each["dropped_rows"] for each in losses} == {size - len(rows)}


@given(data=chats, work=works, size=st.integers(1, 9), budget=st.integers(2, 5))
@examples(6)
def test_bounded_buffers_stay_within_the_budget(data: Chats, work: Work, size: int, budget: int) -> None:
    shared = {"threads": work.threads, "prefetch": work.prefetch, "batch_size": size}
    with data.loader(memory_budget=1, **shared) as loader:
        loader.wait()
        with pytest.raises(BudgetError) as caught:
            loader.next()
    named = re.search(r"the threads take (\d+), a batch (\d+)", caught.value.message)
    assert named is not None
    most = int(named[1]) + budget * int(named[2])

    with data.loader(memory_budget=most, **shared) as loader:
        for _ in range(20):
            batch = loader.next()
            assert 0 < loader.get_profiling_results()["memory"]["batches"] <= most
            batch.release()


@given(data=chats, shuffle=shuffles, plan=st.lists(moves, min_size=1, max_size=12))
@examples(8)
def test_seeking_resuming_and_batches_of_any_size_keep_steps_exact(
    data: Chats, shuffle: Any, plan: list[tuple[str, int]]
) -> None:
    """Also while rows are made: a step that is not known yet is refused, and nothing changes."""
    with data.loader(batch_size=1, shuffle=shuffle) as slow:
        tape = Tape([row for _ in range(120) for row in rows_of(slow.next())])
    data.lose_cache()
    loader = data.loader(batch_size=Tape.usual, shuffle=shuffle)
    for move, number in plan:
        if move == "get":
            batch = loader.get_batch(number)
            assert batch.metadata["step"] == len(tape.starts) - 1
            assert rows_of(batch) == tape.take(number)
        elif move == "seek":
            try:
                loader.seek(number)
            except UnknownLength:
                assert loader._run.growing is not None
            else:
                tape.seek(number)
        elif move == "resume":
            state = json.loads(json.dumps(loader.state_dict()))
            loader.close()
            loader = data.loader(batch_size=Tape.usual, shuffle=shuffle)
            loader.load_state_dict(state)
            tape.size = Tape.usual
        else:
            loader.reset()
            tape = Tape(tape.rows)
        assert loader.step == len(tape.starts) - 1
    loader.close()
