"""The six laws, for every loader: any data, kind of row, threads, depth, ranks, batch sizes and stop points."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import (
    LENGTH,
    Data,
    Ranks,
    Row,
    Work,
    every_loader,
    examples,
    make_store,
    row_kinds,
    rows_of,
    rows_of_a_step,
    samples_of,
    works,
)
from loaders.samples import follows_its_hint
from millstream import BudgetError

Over = st.SearchStrategy[Data]


@every_loader
@given(draw=st.data(), work=works, kind=row_kinds, global_rows=rows_of_a_step)
@examples(40)
def test_complete_an_epoch_uses_every_sample_exactly_once(
    over: Over, draw: st.DataObject, work: Work, kind: dict[str, Any], global_rows: int
) -> None:
    """Of each source: a mixture's own epoch is a number of rows, and begins nothing anew."""
    data = draw.draw(over)
    with Ranks(data, work, global_rows, epoch_size=50, **kind) as run:
        epochs = [run.epoch() for _ in range(4)]

    for name, store in data.stores.items():
        samples = Counter(samples_of(store, kind["documents"], kind["tail"]))
        used = [row.tokens for epoch in epochs for row in epoch if row.source == name]
        passes = [Counter(used[at : at + samples.total()]) for at in range(0, len(used), samples.total())]
        assert passes[:-1] == [samples] * (len(passes) - 1)
        assert passes[-1] <= samples
    sizes = [len(epoch) for epoch in epochs]
    assert sizes == [samples.total() if data.places is None else 50] * 4


@every_loader
@given(draw=st.data(), works=st.tuples(works, works), kind=row_kinds, global_rows=rows_of_a_step)
@examples(40)
def test_same_threads_depth_and_ranks_change_nothing(
    over: Over, draw: st.DataObject, works: tuple[Work, Work], kind: dict[str, Any], global_rows: int
) -> None:
    data = draw.draw(over)
    seen = []
    for work in works:
        with Ranks(data, work, global_rows, seed=4, **kind) as run:
            seen.append([run.step() for _ in range(7)])

    assert seen[0] == seen[1]


@every_loader
@given(
    draw=st.data(),
    kind=row_kinds,
    cuts=st.lists(st.tuples(works, rows_of_a_step, st.integers(0, 4)), min_size=2, max_size=4),
)
@examples(40)
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(
    over: Over, draw: st.DataObject, kind: dict[str, Any], cuts: list[tuple[Work, int, int]]
) -> None:
    """Each cut is (work, rows, steps): however a run is cut, it delivers the rows of one long run."""
    data, got, state = draw.draw(over), list[Row](), None
    for work, global_rows, steps in cuts:
        with Ranks(data, work, global_rows, seed=9, **kind) as run:
            if state is not None:
                run.load(json.loads(state))
            got += run.steps(steps)
            state = json.dumps(run.state())
            assert len(state) < 4096
            if work is cuts[-1][0]:
                got += run.epoch()

    with data.loader(batch_size=1, seed=9, **kind) as whole:
        assert got == [row for _ in got for row in rows_of(whole.next())]


@every_loader
@given(draw=st.data(), work=works, global_rows=rows_of_a_step, kind=row_kinds)
@examples(40)
def test_explainable_rows_name_their_tokens_and_documents_their_steps(
    over: Over, draw: st.DataObject, work: Work, global_rows: int, kind: dict[str, Any]
) -> None:
    data = draw.draw(over)
    documents = [(name, number) for name, store in data.stores.items() for number in range(store.documents)]
    used: dict[tuple[str, int], set[int]] = {document: set() for document in documents}
    with Ranks(data, work, global_rows, **kind) as run:
        first = run.loaders[0]
        foretold = {(name, number): first.steps_of(number, name) for name, number in documents}
        origins = [[loader.explain(step) for loader in run.loaders] for step in range(first.get_num_batches())]
        for step, explained in enumerate(origins):
            for loader, told in zip(run.loaders, explained, strict=True):
                rows = rows_of(loader.next())
                assert [origin.source for origin in told] == [row.source for row in rows]
                assert [origin.row for origin in told] == list(range(len(rows)))
                for origin, row in zip(told, rows, strict=True):
                    tokens: list[int] = []
                    for span in origin.spans:
                        assert span.source == row.source
                        tokens += data.stores[span.source].document(span.document)[span.start : span.stop].tolist()
                        used[span.source, span.document].add(step)
                    assert tuple(tokens) == row.tokens
        assert first.epoch == 1
    assert foretold == {document: sorted(steps) for document, steps in used.items()}


@every_loader
@given(draw=st.data(), work=works, global_rows=rows_of_a_step, kind=row_kinds, size=st.integers(36, 80))
@examples(40)
def test_honest_what_an_epoch_leaves_out_is_counted(
    over: Over, draw: st.DataObject, work: Work, global_rows: int, kind: dict[str, Any], size: int
) -> None:
    data = draw.draw(over)
    samples = {name: samples_of(store, kind["documents"], kind["tail"]) for name, store in data.stores.items()}
    size = len(samples["data"]) if data.places is None else size
    if size < global_rows:  # an epoch without a whole step is refused
        global_rows = 12
    assume(size >= global_rows)
    with Ranks(data, work, global_rows, drop_last=True, epoch_size=size, **kind) as run:
        rows = run.epoch()
        losses = [loader.losses for loader in run.loaders]

    assert {each["dropped_rows"] for each in losses} == {size - len(rows)}
    cut = 0
    for name, store in data.stores.items():
        texts = [store.document(number).tolist() for number in range(store.documents)]
        whole = {text[0]: len(text) for text in texts if text}
        if kind["documents"] == "row":
            used = [row for row in rows if row.source == name and row.tokens]
            cut += sum(whole[row.tokens[0]] - len(row.tokens) for row in used)
        else:
            left = max(0, len(store) - 1 - sum(map(len, samples[name])))
            assert {each[f"tail_tokens:{name}"] for each in losses} == {left}
    assert sum(each["cut_tokens"] for each in losses) == cut


def needs(data: Data, **given: Any) -> tuple[int, int]:
    """The bytes that the threads of a loader take, and those of one batch, as the loader itself names them."""
    with data.loader(memory_budget=1, **given) as loader, pytest.raises(BudgetError) as caught:
        loader.next()
    named = re.search(r"the threads take (\d+), a batch (\d+)", caught.value.message)
    assert named is not None
    least = int(named[1]) + 2 * int(named[2])
    assert f"memory_budget={least} or more" in follows_its_hint(caught.value)
    return int(named[1]), int(named[2])


@every_loader
@given(draw=st.data(), budget=st.integers(2, 6), work=works, size=st.integers(1, 9), kind=row_kinds)
@examples(30)
def test_bounded_buffers_stay_within_the_budget(
    over: Over, draw: st.DataObject, budget: int, work: Work, size: int, kind: dict[str, Any]
) -> None:
    shared = {"threads": work.threads, "prefetch": work.prefetch, "batch_size": size, **kind}
    data = draw.draw(over)
    threads, batch_bytes = needs(data, **shared)
    most = threads + budget * batch_bytes

    with data.loader(memory_budget=most, **shared) as loader:
        for _ in range(30):
            batch = loader.next()
            assert 0 < loader.get_profiling_results()["memory"]["batches"] <= most
            batch.release()
        with pytest.raises(BudgetError):
            _ = [loader.next() for _ in range(budget + 1)]


class Tape:
    """The rows of a long run, and how a loader with batches of any size goes through them."""

    usual = 3

    def __init__(self, rows: list[Row]) -> None:
        self.rows, self.starts, self.size = rows, [0], self.usual

    def batch(self, start: int, size: int) -> list[Row]:
        """The next rows, never past the end of an epoch."""
        return [row for row in self.rows[start : start + size] if row.epoch == self.rows[start].epoch]

    def take(self, size: int) -> list[Row]:
        self.size = size
        found = self.batch(self.starts[-1], size)
        self.starts.append(self.starts[-1] + len(found))
        return found

    def seek(self, step: int) -> None:
        while len(self.starts) <= step:
            self.take(self.size)
        self.starts, self.size = self.starts[: step + 1], self.usual


moves = st.one_of(
    st.tuples(st.just("get"), st.integers(1, 5)),
    st.tuples(st.just("get"), st.just(3)),
    st.tuples(st.just("seek"), st.integers(0, 20)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("reset"), st.just(0)),
)


@every_loader
@given(draw=st.data(), kind=row_kinds, plan=st.lists(moves, min_size=1, max_size=12))
@examples(40)
def test_seeking_resuming_and_batches_of_any_size_keep_steps_exact(
    over: Over, draw: st.DataObject, kind: dict[str, Any], plan: list[tuple[str, int]]
) -> None:
    data = draw.draw(over)
    with data.loader(batch_size=1, epoch_size=17, **kind) as slow:
        tape = Tape([row for _ in range(300) for row in rows_of(slow.next())])
    loader = data.loader(batch_size=Tape.usual, epoch_size=17, **kind)
    for move, number in plan:
        if move == "get":
            batch = loader.get_batch(number)
            assert batch.metadata["step"] == len(tape.starts) - 1
            assert rows_of(batch) == tape.take(number)
        elif move == "seek":
            loader.seek(number)
            tape.seek(number)
        elif move == "resume":
            state = json.loads(json.dumps(loader.state_dict()))
            loader.close()
            loader = data.loader(batch_size=Tape.usual, epoch_size=17, **kind)
            loader.load_state_dict(state)
            tape.size = Tape.usual
        else:
            loader.reset()
            tape = Tape(tape.rows)
        assert loader.step == len(tape.starts) - 1
    for step, (start, stop) in enumerate(zip(tape.starts, tape.starts[1:], strict=False)):
        told = [
            (origin.source, sum(span.stop - span.start for span in origin.spans)) for origin in loader.explain(step)
        ]
        assert told == [(row.source, len(row.tokens)) for row in tape.rows[start:stop]]
    loader.close()


def test_a_budget_counts_a_batch_as_its_columns() -> None:
    """Two of ids, and two numbers per row, each aligned to 64 bytes."""
    nbytes = 2 * 64 * -(-3 * LENGTH * 8 // 64) + 64
    data = Data({"data": make_store([40])})
    threads, batch = needs(data, batch_size=3)

    assert batch == nbytes
    with data.loader(batch_size=3, memory_budget=threads + 2 * nbytes) as loader:
        assert loader.next().metadata["rows"] == 3
    with data.loader(batch_size=3, memory_budget=threads + 2 * nbytes - 1) as loader, pytest.raises(BudgetError):
        loader.next()
