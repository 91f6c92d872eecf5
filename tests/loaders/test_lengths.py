"""Rows of many lengths in batches: padded, grouped by length, or within a budget, always the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chats.chatml import bpe
from loaders.samples import follows_its_hint
from millstream import LoaderError, MixedDataLoader, StateError, TokenStore, TokenStoreWriter, TrainingBatch
from millstream.loaders import ConversationDataLoader, per_row
from millstream.loaders import rows as row_module
from millstream.loaders.hooks import Row

LENGTH, WINDOW, DOCUMENTS = 32, 16, 83
Rows = list[tuple[list[int], list[int]]]
"""Tokens and labels of each row, without its padding."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Conversations of 1 to 40 tokens, and empty ones; each begins with its number."""
    path = tmp_path_factory.mktemp("lengths") / "store"
    rng = np.random.default_rng(3)
    with TokenStoreWriter(path, dtype="weighted") as writer:
        for number in range(DOCUMENTS):
            size = 0 if number in (7, 40) else int(rng.integers(1, 41))
            writer.append([number + 1, *rng.integers(100, 999, size)][:size], weights=rng.integers(0, 2, size))
    return TokenStore(path)


@pytest.fixture(autouse=True, scope="module")
def small_windows() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_module, "WINDOW_DOCUMENTS", WINDOW)
        patch.setattr(row_module, "BLOCK_ROWS", 4)
        yield


def open_loader(store: TokenStore, **how: Any) -> ConversationDataLoader:
    chosen: dict[str, Any] = {"max_length": LENGTH, "framework": "numpy", "seed": 11, "prefetch": 2, **how}
    return ConversationDataLoader(store, **chosen)


def rows_of(*batches: TrainingBatch) -> Rows:
    return [
        (ids[:length].tolist(), labels[:length].tolist())
        for batch in batches
        for ids, labels, length in zip(batch.input_ids, batch.labels, batch.lengths, strict=True)  # type: ignore[arg-type]
    ]


def epoch_of(store: TokenStore, **how: Any) -> list[TrainingBatch]:
    with open_loader(store, **how) as loader:
        return [batch.copy().validate() for batch in loader]


def counted(rows: Rows) -> Counter[tuple[int, ...]]:
    return Counter(tuple(ids) for ids, _ in rows if ids)


def expected(store: TokenStore) -> Counter[tuple[int, ...]]:
    found = (tuple(store.document(number)[:LENGTH].tolist()) for number in range(store.documents))
    return Counter(ids for ids in found if ids)


multiples = st.sampled_from([1, 2, 8, LENGTH])


@given(batch_size=st.integers(1, 9), multiple=multiples, grouped=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_batch_is_as_long_as_its_longest_row_needs(
    store: TokenStore, batch_size: int, multiple: int, grouped: bool
) -> None:
    how: dict[str, Any] = {"batch_size": batch_size, "group_by_length": grouped}
    batches = epoch_of(store, pad_to_multiple_of=multiple, **how)

    for batch in batches:
        assert batch.lengths is not None
        longest = max(1, int(batch.lengths.max(initial=0)))
        assert batch.input_ids.shape[1] == -(-longest // multiple) * multiple == batch.metadata["sequence_length"]
        assert batch.input_ids.flags.c_contiguous and batch.labels.flags.c_contiguous
        padding = np.arange(batch.input_ids.shape[1]) >= batch.lengths[:, None]
        assert (batch.labels[padding] == -100).all() and (batch.input_ids[padding] == 0).all()
    assert rows_of(*batches) == rows_of(*epoch_of(store, pad_to="max_length", **how))
    assert counted(rows_of(*batches)) == expected(store)


def test_rows_of_max_length_are_all_of_it(store: TokenStore) -> None:
    assert {batch.input_ids.shape[1] for batch in epoch_of(store, pad_to="max_length", batch_size=3)} == {LENGTH}


@given(
    multiple=multiples, budget=st.integers(LENGTH, 6 * LENGTH), world_size=st.integers(1, 3), seed=st.integers(0, 99)
)
@settings(max_examples=40, deadline=None)
def test_a_budget_of_tokens_is_a_hard_cap(
    store: TokenStore, multiple: int, budget: int, world_size: int, seed: int
) -> None:
    rows: Rows = []
    for rank in range(world_size):
        how: dict[str, Any] = {"rank": rank, "world_size": world_size, "seed": seed, "pad_to_multiple_of": multiple}
        for batch in epoch_of(store, max_tokens=budget, **how):
            assert batch.input_ids.size <= budget
            assert batch.metadata["rows"] == len(batch.input_ids)
            rows += rows_of(batch)

    assert counted(rows) == expected(store)  # every conversation once


def test_a_budget_is_used(store: TokenStore) -> None:
    batches = epoch_of(store, max_tokens=4 * LENGTH)
    full = sum(batch.input_ids.size for batch in batches) / len(batches) / (4 * LENGTH)
    padding = 1 - sum(batch.metadata["tokens"] for batch in batches) / sum(batch.input_ids.size for batch in batches)

    assert full > 0.7 and padding < 0.2


def test_grouping_saves_most_of_the_padding(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_module, "WINDOW_DOCUMENTS", DOCUMENTS)

    def wasted(**how: Any) -> float:
        batches = epoch_of(store, batch_size=4, **how)
        real = sum(batch.metadata["tokens"] for batch in batches)
        return 1 - int(real) / sum(int(batch.input_ids.size) for batch in batches)

    assert wasted(group_by_length=True) < wasted() / 2


@pytest.mark.parametrize("how", [{"group_by_length": True}, {"max_tokens": 2 * LENGTH}], ids=["grouped", "budget"])
def test_the_longest_row_comes_first_in_the_first_epoch_alone(store: TokenStore, how: dict[str, Any]) -> None:
    firsts = []
    for seed in range(8):
        with open_loader(store, seed=seed, **how) as loader:
            epochs = [[batch.copy() for batch in loader] for _ in range(2)]
        assert int(epochs[0][0].lengths[0]) == LENGTH  # type: ignore[index]
        firsts.append(int(epochs[1][0].lengths[0]))  # type: ignore[index]
        assert counted(rows_of(*epochs[0])) == counted(rows_of(*epochs[1]))
        assert rows_of(*epochs[0]) != rows_of(*epochs[1])

    assert min(firsts) < LENGTH


@given(
    first=st.integers(1, 9), then=st.integers(1, 9), world_size=st.integers(1, 3), later_world=st.integers(1, 3),
    steps=st.integers(0, 8), threads=st.integers(1, 3), multiple=multiples,
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_grouped_rows_go_on_bit_for_bit_with_other_ranks_and_batch_sizes(
    store: TokenStore, first: int, then: int, world_size: int, later_world: int, steps: int, threads: int, multiple: int
) -> None:
    with open_loader(store, group_by_length=True, batch_size=1) as loader:
        truth = rows_of(*(loader.next() for _ in range(100)))
    how: dict[str, Any] = {"group_by_length": True, "threads": threads, "pad_to_multiple_of": multiple}
    ranks = [open_loader(store, batch_size=first, rank=r, world_size=world_size, **how) for r in range(world_size)]
    found: Rows = []
    for _ in range(steps):
        found += rows_of(*(rank.next() for rank in ranks))
    state = ranks[0].state_dict()
    others = [open_loader(store, batch_size=then, rank=r, world_size=later_world, **how) for r in range(later_world)]
    for other in others:
        other.load_state_dict(state)
    while len(found) < len(truth):
        found += rows_of(*(other.next() for other in others))
    for loader in (*ranks, *others):
        loader.close()

    assert found[: len(truth)] == truth


@given(world_size=st.integers(1, 3), later_world=st.integers(1, 3), steps=st.integers(0, 8), threads=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_budgeted_groups_go_on_bit_for_bit_with_other_ranks(
    store: TokenStore, world_size: int, later_world: int, steps: int, threads: int
) -> None:
    how: dict[str, Any] = {"max_tokens": 100, "pad_to_multiple_of": 4}
    with open_loader(store, threads=1, **how) as loader:
        truth = [rows_of(loader.next()) for _ in range(40)]
    ranks = [open_loader(store, rank=r, world_size=world_size, threads=threads, **how) for r in range(world_size)]
    found = [rows_of(rank.next()) for _ in range(steps) for rank in ranks]
    state = ranks[0].state_dict()
    others = [open_loader(store, rank=r, world_size=later_world, **how) for r in range(later_world)]
    for other in others:
        other.load_state_dict(state)
    while len(found) < len(truth):
        found += [rows_of(other.next()) for other in others]
    for loader in (*ranks, *others):
        loader.close()

    present = [rows for rows in found if rows]  # a rank may get none at the end of an epoch
    assert present[:30] == truth[:30]


@pytest.mark.parametrize("how", [{"group_by_length": True, "batch_size": 5}, {"max_tokens": 90}])
def test_every_row_is_explained_and_every_conversation_found(store: TokenStore, how: dict[str, Any]) -> None:
    with open_loader(store, **how) as loader:
        seen: dict[int, set[int]] = {}
        for step in range(loader.get_num_batches()):
            origins, rows = loader.explain(step), rows_of(loader.next())
            assert len(origins) == len(rows)
            for origin, (ids, _) in zip(origins, rows, strict=True):
                (span,) = origin.spans
                assert ids == store.document(span.document)[span.start : span.stop].tolist()
                seen.setdefault(span.document, set()).add(step)
        loader.reset()
        for document in range(store.documents):
            assert set(loader.steps_of(document)) == seen.get(document, set())


@given(accumulation=st.integers(1, 3), world_size=st.integers(1, 3), mean=st.sampled_from(["token", "sequence"]))
@settings(max_examples=15, deadline=None)
def test_denominators_are_those_of_all_rows_of_an_update(
    store: TokenStore, accumulation: int, world_size: int, mean: Any
) -> None:
    how: dict[str, Any] = {"max_tokens": 100, "loss": mean, "accumulation": accumulation, "world_size": world_size}
    ranks = [open_loader(store, rank=rank, **how) for rank in range(world_size)]
    update = [rank.next().copy() for _ in range(accumulation) for rank in ranks]
    for rank in ranks:
        rank.close()
    learned = [(batch.labels != -100).sum(axis=1) for batch in update]
    tokens = sum(int(rows.sum()) for rows in learned)
    sequences = sum(int((rows > 0).sum()) for rows in learned)

    for batch, rows in zip(update, learned, strict=True):
        assert batch.metadata["loss_tokens"] == rows.sum()
        assert batch.metadata["num_loss_tokens"] == tokens
        assert batch.metadata["loss_denominator"] == (tokens if mean == "token" else sequences)


def test_a_rank_without_a_group_gets_no_row_or_one_of_filler(store: TokenStore) -> None:
    with open_loader(store, max_tokens=100) as loader:
        groups = loader.get_num_batches()
    ranks = groups - 1  # the second step has one group
    for pad_last, rows in ((False, 0), (True, 1)):
        with open_loader(store, max_tokens=100, rank=ranks - 1, world_size=ranks, pad_last=pad_last) as loader:
            loader.next()
            last = loader.next().validate()
            assert (last.input_ids.shape[0], last.metadata["rows"]) == (rows, 0)
            assert (last.labels == -100).all()


def test_rows_of_a_group_have_chances_of_their_own(store: TokenStore) -> None:
    """The same row is treated alike on any number of ranks, and no two rows alike."""

    @per_row
    def mark(row: Row, rng: np.random.Generator) -> Row:
        row["labels"][:1] = rng.integers(0, 2**31)
        return row

    def marks(world_size: int) -> list[int]:
        loaders = [
            open_loader(store, max_tokens=100, transforms=[mark], rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        found = [int(row[1][0]) for _ in range(6 // world_size) for each in loaders for row in rows_of(each.next())]
        for each in loaders:
            each.close()
        return found

    assert marks(1) == marks(2) == marks(3)
    assert len(set(marks(1))) == len(marks(1)) > 6


def test_the_memory_of_a_budgeted_loader_does_not_grow_with_the_rows(store: TokenStore) -> None:
    with open_loader(store, max_tokens=LENGTH, memory_budget="1MB") as loader:
        assert sum(len(batch.input_ids) for batch in loader) == sum(expected(store).values())


def test_a_state_of_other_groups_is_refused(store: TokenStore) -> None:
    with open_loader(store, group_by_length=True) as loader:
        state = loader.state_dict()
    with open_loader(store, max_tokens=100) as loader, pytest.raises(StateError, match="max_tokens"):
        loader.load_state_dict(state)
    with open_loader(store) as loader, pytest.raises(StateError) as caught:
        loader.load_state_dict(state)
    follows_its_hint(caught.value)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"max_tokens": LENGTH - 1}, "no room"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_tokens": 100, "batch_size": 4}, "both"),
        ({"max_tokens": 100, "packing": True}, "packed"),
        ({"group_by_length": True, "packing": True}, "packed"),
        ({"pad_to": "shortest"}, "unknown"),
        ({"isolation": "mask"}, "unknown"),
        ({"pad_to_multiple_of": 5}, "multiple of 5"),
        ({"pad_to_multiple_of": 0}, "at least 1"),
    ],
)
def test_what_contradicts_itself_is_refused(store: TokenStore, how: dict[str, Any], says: str) -> None:
    with pytest.raises(LoaderError, match=says) as caught:
        open_loader(store, **how)
    follows_its_hint(caught.value)


def test_a_budget_has_no_batch_size_and_no_mixture(store: TokenStore) -> None:
    with open_loader(store, max_tokens=100) as loader:
        with pytest.raises(LoaderError, match="as many as fit"):
            loader.get_batch(3)
        with pytest.raises(LoaderError, match="a mixture counts rows"):
            MixedDataLoader({"chats": (loader, 1.0)})


def test_grouped_conversations_are_mixed_and_padded(store: TokenStore) -> None:
    loaders = {name: (open_loader(store, group_by_length=True, name=name), 0.5) for name in ("one", "other")}
    with MixedDataLoader(loaders, batch_size=4, mix_block=4, framework="numpy") as loader:
        batches = [loader.next().copy() for _ in range(10)]
        state = loader.state_dict()
        rest = rows_of(loader.next())
    again = {name: (open_loader(store, group_by_length=True, name=name), 0.5) for name in ("one", "other")}
    with MixedDataLoader(again, batch_size=4, mix_block=4, framework="numpy") as loader:
        loader.load_state_dict(state)
        assert rows_of(loader.next()) == rest
    plain = {"one": (open_loader(store, name="one"), 0.5), "other": again["other"]}
    with pytest.raises(LoaderError, match="differ"):
        MixedDataLoader(plain, framework="numpy")

    assert counted(rows_of(*batches)) <= expected(store) + expected(store)
    assert all(batch.input_ids.shape[1] == batch.lengths.max() for batch in batches)  # type: ignore[union-attr]


def test_raw_conversations_are_grouped_while_they_are_made(tmp_path: Path) -> None:
    chats = [
        {"messages": [{"role": "user", "content": f"{n}"}, {"role": "assistant", "content": "mill " * (n % 9)}]}
        for n in range(40)
    ]
    how: dict[str, Any] = {
        "tokenizer": bpe(), "chat_template": "chatml", "add_control_tokens": True, "max_length": 64,
        "framework": "numpy", "cache_dir": tmp_path,
    }  # fmt: skip
    with ConversationDataLoader(chats, max_tokens=256, **how) as loader:
        growing = rows_of(*(batch.copy() for batch in loader))
    with ConversationDataLoader(chats, max_tokens=256, **how) as loader:
        made = rows_of(*(batch.copy() for batch in loader))
        assert "mill" in str(loader.show(8)) and "row 1:" in str(loader.show(1, step=0))

    assert growing == made and len(made) == 40
