"""The laws for rows of answers: pairs, judged answers and judged steps, raw or as a store."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import Work, examples, rows_of_a_step, works
from loaders.answers import KINDS, LENGTH, AnswerRanks, Answers, samples_in
from loaders.samples import follows_its_hint
from millstream import BudgetError

every_kind = pytest.mark.parametrize("kind", KINDS)
counts = st.sampled_from([2, 7, 30, 61])
shuffles = st.sampled_from(["global", "local", False])


@every_kind
@given(count=counts, stored=st.booleans(), shuffle=shuffles, work=works, global_rows=rows_of_a_step)
@examples(30)
def test_complete_an_epoch_uses_every_answer_exactly_once(
    kind: str, count: int, stored: bool, shuffle: Any, work: Work, global_rows: int
) -> None:
    data = Answers(kind, count, stored)
    with AnswerRanks(data, work, global_rows, shuffle=shuffle) as run:
        epochs: list[list[Any]] = [[*run.epoch()] for _ in range(3)]
    with data.loader(shuffle=False, batch_size=count) as loader:
        rows = {sample[1:] for sample in samples_in(loader.next())} if kind != "kto" else set()

    for number, epoch in enumerate(epochs):
        assert len(epoch) == len(set(epoch)) == count
        assert {sample[0] for sample in epoch} == {number}
        assert kind == "kto" or {sample[1:] for sample in epoch} == rows


@every_kind
@given(count=counts, stored=st.booleans(), shuffle=shuffles, both=st.tuples(works, works), global_rows=rows_of_a_step)
@examples(30)
def test_same_threads_depth_and_ranks_change_nothing(
    kind: str, count: int, stored: bool, shuffle: Any, both: tuple[Work, Work], global_rows: int
) -> None:
    seen = []
    for work in both:
        with AnswerRanks(Answers(kind, count, stored), work, global_rows, seed=4, shuffle=shuffle) as run:
            seen.append([run.step() for _ in range(5)])

    assert seen[0] == seen[1]


@every_kind
@given(
    count=counts,
    stored=st.booleans(),
    shuffle=shuffles,
    cuts=st.lists(st.tuples(works, st.sampled_from([12, 36]), st.integers(0, 4)), min_size=2, max_size=4),
    odd=st.integers(1, 7),
)
@examples(30)
def test_resumable_the_rest_of_the_answers_is_equal_on_any_ranks_and_batch_size(
    kind: str, count: int, stored: bool, shuffle: Any, cuts: list[tuple[Work, int, int]], odd: int
) -> None:
    data, got, state = Answers(kind, count, stored), list[Any](), None
    with data.loader(batch_size=odd, seed=9, shuffle=shuffle) as loader:
        got += samples_in(loader.next())
        state = json.dumps(loader.state_dict())
    for work, global_rows, steps in cuts:
        with AnswerRanks(data, work, global_rows, seed=9, shuffle=shuffle) as run:
            run.load(json.loads(state))
            got += run.steps(steps)
            state = json.dumps(run.state())
            assert len(state) < 4096
            if work is cuts[-1][0]:
                got += run.epoch()

    with data.loader(batch_size=1, seed=9, shuffle=shuffle) as whole:
        assert got == [sample for _ in got for sample in samples_in(whole.next())]


@every_kind
@given(count=counts, stored=st.booleans(), shuffle=shuffles, work=works, global_rows=rows_of_a_step)
@examples(30)
def test_explainable_rows_name_their_documents_and_documents_their_steps(
    kind: str, count: int, stored: bool, shuffle: Any, work: Work, global_rows: int
) -> None:
    with AnswerRanks(Answers(kind, count, stored), work, global_rows, shuffle=shuffle) as run:
        first: Any = run.loaders[0]
        if not stored:
            first.wait()
        store = first.store
        used: dict[int, set[int]] = {document: set() for document in range(store.documents)}
        foretold = {document: first.steps_of(document) for document in used}
        steps = first.get_num_batches()
        told = [[loader.explain(step) for loader in run.loaders] for step in range(steps)]
        for step, origins in enumerate(told):
            for loader, rows in zip(run.loaders, origins, strict=True):
                batch = loader.next()
                assert len(rows) == batch.metadata["rows"]
                documents = [row.spans[0].document for row in rows]
                for row, document in enumerate(documents):
                    used[document].add(step)
                    ids = store.document(document)
                    assert np.array_equal(batch.input_ids[row, : len(ids)], ids)
                if kind == "preference":
                    assert [d + 1 for d in documents[::2]] == documents[1::2]
                for row, other in enumerate(batch.metadata.get("kl_document", ())):
                    answer = store.document(other)[1:][store.weights(*store.document_span(other))[1:] > 0]
                    used_labels = batch["kl_labels"][row][batch["kl_labels"][row] >= 0]
                    assert other != documents[row]
                    assert len(used_labels) == min(len(answer), LENGTH - 1)
                    assert np.array_equal(used_labels, answer[: len(used_labels)])
        assert first.epoch == 1
    assert foretold == {document: sorted(steps) for document, steps in used.items()}


@every_kind
@given(count=counts, work=works, global_rows=rows_of_a_step)
@examples(10)
def test_honest_what_drop_last_leaves_out_is_counted(kind: str, count: int, work: Work, global_rows: int) -> None:
    data = Answers(kind, count, stored=True)
    if count < global_rows:
        return
    with AnswerRanks(data, work, global_rows, drop_last=True) as run:
        unit = 2 if kind == "preference" else 1
        rows = run.epoch()
        assert {loader.losses["dropped_rows"] for loader in run.loaders} == {unit * (count - len(rows))}


@every_kind
def test_bounded_buffers_stay_within_the_budget(kind: str) -> None:
    data = Answers(kind, 61, stored=True)
    with data.loader(memory_budget=1, batch_size=5) as loader, pytest.raises(BudgetError) as caught:
        loader.next()
    least = re.search(r"memory_budget=(\d+) or more", follows_its_hint(caught.value))
    assert least is not None
    with data.loader(memory_budget=int(least[1]), batch_size=5) as loader:
        for _ in range(20):
            loader.next().release()
            assert loader.get_profiling_results()["memory"]["batches"] <= int(least[1])


@every_kind
def test_answers_that_fill_up_a_batch_have_no_loss(kind: str) -> None:
    data = Answers(kind, 7, stored=True)
    with data.loader(batch_size=3, pad_last=True, world_size=2, rank=1) as loader:
        batches = list(loader)
    last, unit = batches[-1], batches[-1].unit
    assert [sum(batch.metadata["filler"]) for batch in batches] == [0, 3 * unit]
    assert last.input_ids.shape == (3 * unit, LENGTH)
    assert (last.labels == -100).all()
    assert last.kl is None or (last.kl.labels == -100).all()


@every_kind
def test_transforms_of_rows_are_the_same_on_any_ranks(kind: str) -> None:
    """What is mismatched is made before: it does not depend on which rows a rank transforms."""
    from millstream.loaders import per_row

    @per_row
    def hide(row: Any, rng: Any) -> Any:
        row["input_ids"][rng.random(row["input_ids"].shape) < 0.5] = 0
        return row

    seen: list[Counter[Any]] = []
    for world_size in (1, 3):
        work = Work(threads=2, prefetch=2, world_size=world_size)
        with AnswerRanks(Answers(kind, 30, stored=True), work, 12, transforms=[hide]) as run:
            seen.append(Counter(run.epoch()))
    assert seen[0] == seen[1]
