"""A recipe may change in mid-run: nothing is repeated, nothing is lost, and the past stays explainable."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laws import APART, Data, Ranks, Row, Work, examples, make_store, rows_of
from millstream import MixedDataLoader, OrderError, PretrainDataLoader, RowOrigin, TokenStore
from stretches import Stretch, runs

DOCUMENTS = [37, 5, 60, 24]
INPUTS = sum(DOCUMENTS) - 1
LONGEST = 24


ALL_SIX = [
    Stretch(steps=3, ranks=1, rows=4, quotas=(2, 2, 0), factor=1),
    Stretch(steps=4, ranks=3, rows=2, quotas=(0, 1, 3), factor=2),  # one added, one dropped, other weights, rows, ranks
    Stretch(steps=5, ranks=2, rows=3, quotas=(3, 0, 1), factor=3),  # and all of it once more; the dropped one returns
    Stretch(steps=6, ranks=1, rows=1, quotas=(1, 1, 1), factor=1),
]


class Ledger:
    """How often each input token of each source was used."""

    def __init__(self, names: list[str], documents: str, tail: str) -> None:
        self.first = {name: number * APART for number, name in enumerate(names)}
        self.counts = {name: np.zeros(INPUTS + 1, np.int64) for name in names}
        whole = INPUTS if tail == "pad" else INPUTS // LONGEST * LONGEST
        self.counted: npt.NDArray[Any] = np.arange(whole)
        if documents == "row":  # of a document that is cut, the first token stands for all
            self.counted = np.cumsum([0, *DOCUMENTS[:-1]])

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            self.counts[row.source][np.array(row.tokens) - self.first[row.source]] += 1

    def check(self) -> None:
        """No token is used again before every other one of its source was used as often."""
        for name, counts in self.counts.items():
            found = counts[self.counted]
            assert found.max() - found.min() <= 1, name


def data_of(stores: dict[str, TokenStore], places: tuple[int, ...]) -> Data:
    if len(stores) == 1:
        return Data(stores)
    return Data(stores, {name: count for name, count in zip(stores, places, strict=True) if count})


@pytest.mark.parametrize("names", [["data"], ["a", "b", "c"]], ids=["pretrain", "mixed"])
@given(
    changes=runs(least_steps=0),
    documents=st.sampled_from(["attend", "isolate", "row"]),
    tail=st.sampled_from(["drop", "pad"]),
    seed=st.integers(0, 3),
)
@example(changes=ALL_SIX, documents="attend", tail="drop", seed=0)
@example(changes=ALL_SIX, documents="isolate", tail="drop", seed=1)
@example(changes=ALL_SIX, documents="row", tail="drop", seed=2)
@example(changes=ALL_SIX, documents="attend", tail="pad", seed=3)
@examples(50)
def test_a_run_whose_recipe_changes_repeats_nothing_and_loses_nothing(
    names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[Stretch],
    documents: str,
    tail: str,
    seed: int,
) -> None:
    stores = {name: make_store(DOCUMENTS, start=number * APART) for number, name in enumerate(names)}
    ledger, history = Ledger(names, documents, tail), list[list[Row]]()
    length, state = LONGEST, None
    kind: dict[str, Any] = {"documents": documents, "tail": tail, "seed": seed, "epoch_size": 50}
    kind["cache_dir"] = tmp_path_factory.getbasetemp() / "phases"  # of runs that outgrow their state
    for change in changes:
        data, work = data_of(stores, change.quotas), Work(1, 2, change.ranks)
        wanted = length if length % change.factor else length // change.factor
        with Ranks(data, work, change.rows * change.ranks, chunk_size=wanted, **kind) as run:
            if not _goes_on(run, state):
                assert (tail, wanted < length) == ("pad", True)  # the padded row cannot be cut before its epoch ends
                continue
            length = wanted
            for _ in range(change.steps):
                assert run.loaders[0].step == len(history)
                history.append(run.step())
                ledger.add(history[-1])
                ledger.check()
            state = json.loads(json.dumps(run.state()))

    with data_of(stores, (1, 1, 1)).loader(batch_size=1, chunk_size=length, **kind) as final:
        final.load_state_dict(state or final.state_dict())
        for step, rows in enumerate(history):
            told = [_tokens(stores, origin) for origin in final.explain(step)]
            assert told == [row.tokens for row in rows]


def _tokens(stores: dict[str, TokenStore], origin: RowOrigin) -> tuple[int, ...]:
    texts = [stores[span.source].document(span.document)[span.start : span.stop] for span in origin.spans]
    return tuple(int(token) for text in texts for token in text)


def _goes_on(run: Ranks[Any], state: dict[str, Any] | None) -> bool:
    """Load a state, if there is one; a refusal is one of all ranks, and leaves them where they were."""
    if state is None:
        return True
    refused = 0
    for loader in run.loaders:
        before = loader.state_dict()
        try:
            loader.load_state_dict(state)
        except OrderError:
            assert loader.state_dict() == before
            refused += 1
    assert refused in (0, len(run.loaders))
    return refused == 0


def test_the_written_example_makes_all_six_changes_at_once() -> None:
    before, after = ALL_SIX[:2]
    kept = [(old, new) for old, new in zip(before.quotas, after.quotas, strict=True) if old and new]

    assert any(not old and new for old, new in zip(before.quotas, after.quotas, strict=True))
    assert any(old and not new for old, new in zip(before.quotas, after.quotas, strict=True))
    assert all(old != new for old, new in kept)
    assert after.factor > 1
    assert before.ranks != after.ranks
    assert before.rows != after.rows


@given(weights=st.lists(st.integers(1, 9), min_size=1, max_size=4), blocks=st.integers(1, 3), seed=st.integers(0, 5))
@examples(40)
def test_a_mixture_is_exact_in_every_block_and_each_source_keeps_its_own_order(
    weights: list[int], blocks: int, seed: int
) -> None:
    names = [f"s{number}" for number in range(len(weights))]
    block = sum(weights)
    stores_of = {name: make_store([200], start=1000 * number) for number, name in enumerate(names)}
    loaders = {
        name: PretrainDataLoader(store, chunk_size=4, framework="numpy", seed=seed, name=name)
        for name, store in stores_of.items()
    }
    entries = {name: (loader, float(weight)) for (name, loader), weight in zip(loaders.items(), weights, strict=True)}
    with MixedDataLoader(
        entries, batch_size=block, mix_block=block, framework="numpy", seed=seed, epoch_size=10**6
    ) as mixed:
        for _ in range(blocks):
            batch = mixed.next()
            found = batch.metadata["source"]
            assert [found.count(name) for name in names] == weights
            for row in rows_of(batch):
                (alone,) = rows_of(loaders[row.source].get_batch(1))
                assert (row.inputs, row.labels) == (alone.inputs, alone.labels)


@pytest.mark.parametrize("change", ["batch", "ranks", "weights", "rows"])
def test_an_unchanged_recipe_adds_no_phase_and_a_changed_one_adds_one(change: str) -> None:
    store = make_store([200])

    def make(size: int = 4, world_size: int = 1, weight: float = 1.0, length: int = 8) -> MixedDataLoader:
        first, second = (PretrainDataLoader(store, chunk_size=length, framework="numpy") for _ in range(2))
        return MixedDataLoader(
            {"a": (first, weight), "b": (second, 1.0)},
            batch_size=size,
            world_size=world_size,
            rank=0,
            framework="numpy",
            mix_block=10,
        )

    with make() as loader:
        loader.next()
        state = loader.state_dict()
    with make() as same:
        same.load_state_dict(state)
        assert same.state_dict() == state
    changed = {
        "batch": {"size": 2},
        "ranks": {"size": 2, "world_size": 2},
        "weights": {"weight": 3.0},
        "rows": {"length": 4},
    }
    with make(**changed[change]) as other:  # type: ignore[arg-type]
        other.load_state_dict(state)
        assert len(other.state_dict()["phases"]) == len(state["phases"]) + 1
        assert other.next().metadata["step"] == 1
