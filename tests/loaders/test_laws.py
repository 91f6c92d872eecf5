"""The six laws, over generated cases: any threads, depth, ranks, batch sizes, stop points and stores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import Ranks, Work, examples, joined, make_store, rows_of, shuffles, stores, windows, works
from millstream import MixedDataLoader, PretrainDataLoader, TokenStore

LENGTH = 5
rows_of_a_step = st.integers(1, 3).map(lambda k: 12 * k // 2 * 2)  # 12, 24, 36: what 1 to 4 ranks divide


@given(store=stores(), work=works, shuffle=shuffles, global_rows=rows_of_a_step, tail=st.sampled_from(["drop", "pad"]))
@examples(60)
def test_complete_an_epoch_uses_every_sample_exactly_once(
    store: TokenStore, work: Work, shuffle: Any, global_rows: int, tail: str
) -> None:
    with Ranks.pretrain(store, work, global_rows, chunk_size=LENGTH, shuffle=shuffle, tail=tail) as run:
        first, second = joined(run.epoch()), joined(run.epoch())

    expected = list(windows(store, LENGTH))
    rest = (len(store) - 1) % LENGTH
    if tail == "pad" and rest:
        expected.append(len(store) - 1 - rest)
    assert sorted(first[:, 0].tolist()) == expected
    assert sorted(second[:, 0].tolist()) == expected


@given(store=stores(), works=st.tuples(works, works), shuffle=shuffles, global_rows=rows_of_a_step)
@examples(60)
def test_same_threads_depth_and_ranks_change_nothing(
    store: TokenStore, works: tuple[Work, Work], shuffle: Any, global_rows: int
) -> None:
    seen = []
    for work in works:
        with Ranks.pretrain(store, work, global_rows, chunk_size=LENGTH, shuffle=shuffle, seed=4) as run:
            seen.append(run.steps(7))

    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)


@given(
    store=stores(40),
    works=st.tuples(works, works),
    sizes=st.tuples(rows_of_a_step, rows_of_a_step),
    stop=st.integers(0, 9),
    shuffle=shuffles,
)
@examples(60)
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(
    store: TokenStore, works: tuple[Work, Work], sizes: tuple[int, int], stop: int, shuffle: Any
) -> None:
    shared = {"chunk_size": LENGTH, "shuffle": shuffle, "seed": 9}
    with Ranks.pretrain(store, works[0], sizes[0], **shared) as run:
        run.steps(stop)
        states = [loader.state_dict() for loader in run.loaders]
        rest = joined([*run.epoch(), *run.epoch()])
    text = json.dumps(states[0])
    assert all(state == states[0] for state in states)
    assert len(text) < 4096

    with Ranks.pretrain(store, works[1], sizes[1], **shared) as run:
        for loader in run.loaders:
            loader.load_state_dict(json.loads(text))
        np.testing.assert_array_equal(joined([*run.epoch(), *run.epoch()]), rest)


def _mixed(stores_of: dict[str, TokenStore], rows: int, rank: int, world_size: int) -> MixedDataLoader:
    weights = dict(zip(stores_of, (3.0, 2.0, 1.0), strict=False))
    entries = {
        name: (PretrainDataLoader(store, chunk_size=LENGTH, framework="numpy"), weights[name])
        for name, store in stores_of.items()
    }
    return MixedDataLoader(
        entries, batch_size=rows, rank=rank, world_size=world_size, framework="numpy", mix_block=12, epoch_size=70
    )


@given(
    cuts=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=4),
)
@examples(30)
def test_same_and_resumable_a_mixture_goes_on_with_the_same_rows_on_any_ranks_and_batch_size(
    cuts: list[tuple[int, int, int]],
) -> None:
    """Each cut is (ranks, rows of a rank, steps): however a run is cut, it delivers the rows of one long run."""
    stores_of = {name: make_store([90, 40], start=1000 * number) for number, name in enumerate("abc")}
    with _mixed(stores_of, 1, 0, 1) as whole:
        expected = [rows_of(whole.next())[0] for _ in range(100)]
    got: list[Any] = []
    state: Any = None
    for world_size, rows, steps in cuts:
        with Ranks([_mixed(stores_of, rows, rank, world_size) for rank in range(world_size)]) as run:
            for loader in run.loaders:
                if state is not None:
                    loader.load_state_dict(json.loads(json.dumps(state)))
            got += [row for step in run.steps(steps) for row in step]
            state = run.loaders[0].state_dict()

    compared = min(len(got), len(expected))
    np.testing.assert_array_equal(np.array(got[:compared]), np.array(expected[:compared]))


@given(
    store=stores(),
    work=works,
    global_rows=rows_of_a_step,
    shuffle=shuffles,
    documents=st.sampled_from(["attend", "isolate", "row"]),
)
@examples(60)
def test_explainable_rows_name_their_tokens_and_documents_their_steps(
    store: TokenStore, work: Work, global_rows: int, shuffle: Any, documents: str
) -> None:
    with Ranks.pretrain(store, work, global_rows, chunk_size=LENGTH, shuffle=shuffle, documents=documents) as run:
        used: dict[int, set[int]] = {document: set() for document in range(store.documents)}
        foretold = {document: run.loaders[0].steps_of(document) for document in range(store.documents)}
        origins = [[loader.explain(step) for loader in run.loaders] for step in range(run.loaders[0].get_num_batches())]
        for step, explained in enumerate(origins):
            for loader, rows in zip(run.loaders, explained, strict=True):
                batch = loader.next()
                assert len(rows) == batch.metadata["rows"]
                for row in rows:
                    told = [
                        token for span in row.spans for token in store.document(span.document)[span.start : span.stop]
                    ]
                    assert batch.input_ids[row.row, : len(told)].tolist() == told
                    assert len(told) == (0 if batch.lengths is None else batch.lengths[row.row])
                    for span in row.spans:
                        used[span.document].add(step)
    assert foretold == {document: sorted(steps) for document, steps in used.items()}


@given(store=stores(), work=works, global_rows=rows_of_a_step, length=st.integers(1, 11))
@examples(40)
def test_honest_what_an_epoch_leaves_out_is_counted(
    store: TokenStore, work: Work, global_rows: int, length: int
) -> None:
    assume((len(store) - 1) // length >= global_rows)
    with Ranks.pretrain(store, work, global_rows, chunk_size=length, drop_last=True) as run:
        losses = run.loaders[0].losses
        rows = joined(run.epoch())
    with Ranks.pretrain(store, work, global_rows, chunk_size=length, documents="row") as run:
        run.epoch()
        cut = sum(loader.losses["cut_tokens"] for loader in run.loaders)

    delivered = len(rows) * length
    assert delivered + losses["dropped_rows"] * length + losses["tail_tokens:data"] == len(store) - 1
    assert cut == sum(max(0, len(store.document(number)) - length) for number in range(store.documents))


@given(store=stores(), budget=st.integers(2, 6), work=works, size=st.integers(1, 9))
@examples(30)
def test_bounded_buffers_stay_within_the_budget(store: TokenStore, budget: int, work: Work, size: int) -> None:
    nbytes = 2 * 64 * -(-size * LENGTH * 8 // 64) + 64 * -(-8 * size // 64)  # two columns, two numbers per row
    scratch = 1000 * (1 + work.threads) * (1 + size)  # more than the threads need besides
    shared = {"threads": work.threads, "prefetch": work.prefetch, "memory_budget": budget * nbytes + scratch}
    with PretrainDataLoader(store, chunk_size=LENGTH, batch_size=size, framework="numpy", **shared) as loader:  # type: ignore[arg-type]
        for _ in range(30):
            batch = loader.next()
            assert loader.get_profiling_results()["memory"]["batches"] <= budget * nbytes + scratch
            batch.release()


@given(
    store=stores(40),
    stop=st.integers(0, 12),
    target=st.integers(0, 30),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
)
@examples(40)
def test_seeking_and_batches_of_any_size_keep_steps_exact(
    store: TokenStore, stop: int, target: int, sizes: list[int]
) -> None:
    with PretrainDataLoader(store, chunk_size=LENGTH, batch_size=3, framework="numpy") as loader:
        for size in sizes:
            loader.get_batch(size)
        history = [loader.explain(step) for step in range(len(sizes))]
        assert [len(rows) for rows in history] == [
            min(size, len(rows)) for size, rows in zip(sizes, history, strict=True)
        ]
        for _ in range(stop):
            loader.next()
        told = [row.spans for row in loader.explain(target)]
        loader.seek(target)
        again = [row.spans for row in loader.explain(target)]
        assert again[: len(told)] == told[: len(again)]
        if target >= len(sizes):
            first = loader.next()
            assert first.metadata["step"] == target
            assert first.input_ids[0, 0] == store.document(told[0][0].document)[told[0][0].start]


def _coverage(store: TokenStore, start: int, rows: list[Any], up_to: int) -> tuple[int, int]:
    """How often the most and the least used input token below `up_to` was used."""
    count = np.zeros(len(store), np.int64)
    for row in rows:
        count[row - start] += 1
    return int(count[:up_to].max(initial=0)), int(count[:up_to].min(initial=10**9))


changes = st.lists(
    st.tuples(
        st.integers(0, 6),  # steps before the change
        st.integers(1, 3),  # ranks
        st.integers(1, 4),  # rows of each rank
        st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=3, max_size=3).filter(any),
        st.booleans(),  # halve the rows
    ),
    min_size=1,
    max_size=5,
)


@given(changes=changes, seed=st.integers(0, 3))
@examples(60)
def test_a_run_whose_recipe_changes_repeats_nothing_and_loses_nothing(changes: list[Any], seed: int) -> None:
    starts = {"a": 0, "b": 10_000, "c": 20_000}
    sources = {name: make_store([37, 0, 60, 24], start=start) for name, start in starts.items()}
    length, step, state = 16, 0, None
    used: dict[str, list[Any]] = {name: [] for name in sources}
    for steps, world_size, size, weights, halve in changes:
        length = length // 2 if halve and length > 4 else length
        ranks = []
        for rank in range(world_size):
            entries = {
                name: (PretrainDataLoader(store, chunk_size=length, framework="numpy", seed=seed), weight)
                for (name, store), weight in zip(sources.items(), weights, strict=True)
                if weight
            }
            mixed = MixedDataLoader(
                entries,
                batch_size=size,
                rank=rank,
                world_size=world_size,
                framework="numpy",
                mix_block=10,
                seed=seed,
                epoch_size=50,
            )
            if state is not None:
                mixed.load_state_dict(state)
            ranks.append(mixed)
        for _ in range(steps):
            for mixed in ranks:
                origins = mixed.explain(step)
                batch = mixed.next()
                assert batch.metadata["step"] == step
                assert batch.metadata["source"] == [origin.source for origin in origins]
                for name, row in zip(batch.metadata["source"], batch.input_ids, strict=True):
                    used[name].append(row.astype(np.int64).copy())
            step += 1
        states = [mixed.state_dict() for mixed in ranks]
        assert all(found == states[0] for found in states)
        state = json.loads(json.dumps(states[0]))
        for mixed in ranks:
            mixed.close()
    for name, store in sources.items():
        most, least = _coverage(store, starts[name], used[name], 120 // 16 * 16)
        assert most - least <= 1, name


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
            for name, row in zip(found, rows_of(batch), strict=True):
                alone = loaders[name].get_batch(1)
                np.testing.assert_array_equal(row, rows_of(alone)[0])


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
