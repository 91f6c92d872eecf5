from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chats.chatml import bpe
from laws import examples
from loaders.conversations import LENGTH as CHAT_LENGTH
from loaders.conversations import Chats
from loaders.corpora import LENGTH, TOKENIZER, corpus, stream
from loaders.mixtures import BLOCK, MixedRanks, Source, Sources, all_sources, check_sources, lanes_of, mixed, rows_of
from loaders.samples import follows_its_hint
from millstream import (
    ClosedError,
    FingerprintError,
    LoaderError,
    MixedDataLoader,
    OrderError,
    PretrainDataLoader,
    SourceError,
    StateError,
    UnknownLength,
    per_row,
)
from millstream.loaders import merge_states

FOLDER = corpus((("jsonl", (3, 9, 1, 4, 20, 2) * 5), ("txt", (90,)), ("csv", (7,) * 9)))
OTHER = corpus((("jsonl", (6, 2) * 12),))
STORE = corpus((("jsonl", (8, 8, 8, 5) * 4),))
TWO = {"web": Source(FOLDER, weight=2.0), "news": Source(OTHER)}
THREE = {**TWO, "books": Source(STORE, streaming=False)}


# Epochs


@pytest.mark.parametrize("size", [1, 7, 25, 100])
def test_an_epoch_size_is_kept(size: int) -> None:
    with mixed(THREE, epoch_size=size, batch_size=4) as loader:
        assert loader.get_num_batches() == -(-size // 4)
        for epoch in range(2):
            assert loader.epoch == epoch
            batches = list(loader)
            assert sum(batch.metadata["rows"] for batch in batches) == size
            assert {batch.metadata["epoch"] for batch in batches} == {epoch}


def test_without_an_epoch_size_nobody_knows_where_an_epoch_ends() -> None:
    with mixed(TWO, batch_size=4) as loader:
        for ask in (loader.get_num_batches, lambda: next(loader.get_iterator())):
            with pytest.raises(UnknownLength, match="nobody knows") as caught:
                ask()
            assert "epoch_size" in follows_its_hint(caught.value)
        assert [loader.next().metadata["epoch"] for _ in range(40)] == [0] * 40


def test_the_last_step_of_an_epoch_is_cut_the_same_way_on_all_ranks() -> None:
    """Rows that are missing on a rank are filled up or left out as anywhere else."""
    with MixedRanks(THREE, 2, 8, epoch_size=11) as run:
        assert [len(run.step()) for _ in range(4)] == [8, 3, 8, 3]
    with MixedRanks(THREE, 2, 8, epoch_size=11, drop_last=True) as run:
        assert [row.sample for row in run.steps(2)] == [*range(8), *range(11, 19)]
        assert run.loaders[0].losses["dropped_rows"] == 3
    with MixedRanks(THREE, 2, 8, epoch_size=9, pad_last=True) as run:
        run.step()
        last = [loader.next() for loader in run.loaders]
        assert [batch.metadata["filler"] for batch in last] == [[False, True, True, True], [True] * 4]
        assert last[1].metadata["source"] == [""] * 4 and not last[1].loss_mask.any()


# States


def test_a_state_is_small_readable_and_equal_but_for_the_places_of_lanes() -> None:
    with MixedRanks(THREE, 2, 8) as run:
        run.steps(5)
        one, other = run.states()
    assert {key for key in one if one[key] != other[key]} <= {"streams"}
    assert one["blends"] == [[0, ["web", 6], ["news", 3], ["books", 3]]]
    assert len(json.dumps(one)) < 3000


DAMAGE: list[dict[str, Any]] = [
    {"streams": {}},
    {"streams": None},
    {"streams": {"web": {"cursors": [], "lane_tokens": []}}},
    {"blends": []},
    {"blends": [[0]]},
    {"blends": [[0, ["web", 0]]]},
    {"blends": [[0, ["web", 2**40]]]},
    {"blends": [[0, ["web", 1], ["web", 1]]]},
    {"blends": [[1, ["web", 1]]]},
    {"blends": [[0, ["web", 1]], [10**6, ["web", 2]]]},
    {"blends": "all"},
    {"lanes": 3},
    {"lanes": 2**70},
    {"lanes": None},
    {"data": {}},
    {"data": None},
    {"steps": []},
    {"steps": [[0, 0, 0, 1]]},
    {"sample": 5},
    {"step": 0},
    {"step": -1},
    {"seed": 9},
    {"loader": "stream"},
    {"format": "other"},
]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_a_damaged_state_changes_nothing(damage: dict[str, Any]) -> None:
    with mixed(THREE, batch_size=4) as loader, mixed(THREE, batch_size=4) as same:
        loader.next(), same.next()
        state = {**loader.state_dict(), **damage}
        with pytest.raises(StateError):
            loader.load_state_dict(state)
        assert loader.state_dict() == same.state_dict()
        assert loader.next().input_ids.tolist() == same.next().input_ids.tolist()


def test_other_data_settings_or_lanes_are_refused() -> None:
    with mixed(THREE, batch_size=4, epoch_size=50) as loader:
        loader.next()
        state = loader.state_dict()
    for changed in (
        {**THREE, "web": Source(OTHER)},
        {**THREE, "books": Source(FOLDER, streaming=False)},
        {**THREE, "books": Source(STORE)},
    ):
        with mixed(changed, batch_size=4, epoch_size=50) as loader, pytest.raises(FingerprintError) as refused:
            loader.load_state_dict(state)
        follows_its_hint(refused.value)
    changes: list[dict[str, Any]] = [{"epoch_size": 51}, {"epoch_size": 50, "drop_last": True}]
    for other in changes:
        with mixed(THREE, batch_size=4, **other) as loader, pytest.raises(StateError) as damaged:
            loader.load_state_dict(state)
        follows_its_hint(damaged.value)
    tiny = {**THREE, "tiny": Source(OTHER, cut=1 << 20)}
    with (
        mixed(tiny, batch_size=4, epoch_size=50) as loader,
        pytest.raises(StateError, match="'tiny' has 1 lanes") as few,
    ):
        loader.load_state_dict(state)
    assert "prepare" in follows_its_hint(few.value)


def test_a_source_that_returns_goes_on_where_it_stood(tmp_path: Path) -> None:
    with mixed(THREE, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        loader.next()
        state = loader.state_dict()
    with mixed({"web": TWO["web"]}, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        loader.load_state_dict(state)
        assert set(loader.next().metadata["source"]) == {"web"}
        with pytest.raises(LoaderError, match="does not have") as gone:
            loader.explain(0)
        follows_its_hint(gone.value)
        state = json.loads(json.dumps(merge_states([loader.state_dict()])))
    with mixed(THREE, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        loader.load_state_dict(state)
        loader.next()
        rows = [row for step in (0, 2) for row in loader.explain(step) if row.source == "news"]
        assert len({row.sample for row in rows}) == len(rows) == 6
        assert {row.source for row in loader.explain(1)} == {"web"}


def test_states_of_different_steps_or_kinds_are_not_merged() -> None:
    with MixedRanks(TWO, 2, 4) as run:
        first = run.states()
        run.steps(1)
        with pytest.raises(StateError, match="differ in step, sample"):
            merge_states([first[0], run.states()[1]])
        with pytest.raises(StateError):
            merge_states([first[0], {**first[1], "streams": {}}])


# Moving


def test_seek_goes_back_to_what_was_delivered_and_not_forward() -> None:
    with mixed(THREE, batch_size=4) as loader:
        rows = [loader.next().input_ids.tolist() for _ in range(6)]
        loader.seek(2)
        assert [loader.next().input_ids.tolist() for _ in range(4)] == rows[2:]
        with pytest.raises(UnknownLength):
            loader.seek(10**6)
        loader.reset()
        assert loader.next().input_ids.tolist() == rows[0]


def test_a_run_that_goes_back_behind_a_change_goes_on_with_what_it_is_now(tmp_path: Path) -> None:
    with mixed(THREE, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        loader.next(), loader.next()
        state = loader.state_dict()
    with mixed({"web": TWO["web"]}, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        loader.load_state_dict(state)
        loader.next()
        loader.seek(1)
        assert set(loader.next().metadata["source"]) == {"web"}
        rows = [row.sample for row in loader.explain(1)]
    with mixed(THREE, batch_size=BLOCK, cache_dir=tmp_path) as loader:
        before = [row.sample for row in loader.explain(0) if row.source == "web"]
    assert len({*before, *rows}) == len(before) + len(rows)


def test_a_batch_that_did_not_reach_the_trainer_is_given_again() -> None:
    failing = [True]

    def transform(batch: Any) -> Any:
        if failing.pop():
            raise ValueError("not yet")
        return batch

    with mixed(THREE, batch_size=4) as plain, mixed(THREE, batch_size=4, transforms=[transform]) as loader:
        with pytest.raises(ValueError, match="not yet"):
            loader.next()
        failing[:] = [False]
        assert loader.next().input_ids.tolist() == plain.next().input_ids.tolist()


def test_transforms_of_rows_are_the_same_on_any_ranks() -> None:
    @per_row
    def noise(row: Any, rng: np.random.Generator) -> Any:
        row["input_ids"][...] = rng.integers(0, 30, row["input_ids"].shape)
        return row

    with MixedRanks(THREE, 1, 8, transforms=[noise]) as one, MixedRanks(THREE, 4, 8, transforms=[noise]) as four:
        assert one.steps(5) == four.steps(5)


def test_any_batch_size_goes_on_with_the_same_rows() -> None:
    with mixed(THREE, batch_size=1) as loader, mixed(THREE) as other:
        expected = [row for _ in range(20) for row in loader.next().input_ids.tolist()]
        assert [row for size in (3, 1, 9, 7) for row in other.get_batch(size).input_ids.tolist()] == expected
        assert len(other.explain(2)) == 9


def test_isolated_documents_are_segments_of_their_rows() -> None:
    with mixed(THREE, members={"documents": "isolate"}, batch_size=6) as loader:
        for step in range(5):
            batch = loader.next().validate()
            for row, origin in enumerate(loader.explain(step)):
                positions = [place for span in origin.spans for place in range(span.stop - span.start)]
                assert batch.position_ids[row].tolist() == positions


# Ending


def test_closing_is_prompt_and_leaves_no_threads() -> None:
    before = threading.active_count()
    loader = mixed(THREE, batch_size=8, threads=3)
    loader.next()
    assert threading.active_count() > before
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 1
    assert threading.active_count() == before
    with pytest.raises(ClosedError):
        loader.next()


def test_the_mixed_loaders_stay_as_they_were() -> None:
    web = stream(FOLDER, batch_size=3)
    first = web.next().input_ids.tolist()
    loader: Any = MixedDataLoader({"web": (web, 1.0)}, framework="numpy")
    with loader:
        loader.next()
    assert web.step == 1
    web.reset()
    assert web.next().input_ids.tolist() == first
    web.close()


# What is left out, and what is refused


def test_losses_are_told_by_source(tmp_path: Path) -> None:
    good = "".join(json.dumps({"text": f"{n} fine words"}) + "\n" for n in range(9))
    (tmp_path / "a.jsonl").write_text(good + '{"txt": 1}\n{"text": ""}\n')
    sources = {"web": Source(FOLDER), "bad": Source(tmp_path / "a.jsonl", cut=1 << 20)}
    with mixed(sources, members={"on_bad": "quarantine"}, cache_dir=tmp_path / "cache", batch_size=BLOCK) as loader:
        loader.next()
        assert loader.losses == {"cut_tokens": 0, "left_out:bad:empty": 1, "left_out:bad:no text in 'text'": 1}
    assert len(list((tmp_path / "cache").glob("quarantine*"))) == 1


def test_a_bad_record_ends_the_run_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"txt": 1}\n')
    sources = {**TWO, "bad": Source(tmp_path / "a.jsonl")}
    with mixed(sources, batch_size=BLOCK) as loader, pytest.raises(SourceError, match=r"a.jsonl:1: no text"):
        loader.next()


def test_ranks_that_cannot_share_the_lanes_are_refused() -> None:
    sources = {**TWO, "tiny": Source(OTHER, cut=1 << 20)}
    with pytest.raises(OrderError, match="2 ranks cannot share 1 lanes") as caught:
        mixed(sources, rank=0, world_size=2)
    follows_its_hint(caught.value)


def test_rows_that_differ_are_refused() -> None:
    web = stream(FOLDER)
    for other in (
        stream(OTHER, chunk_size=LENGTH + 1),
        stream(OTHER, documents="isolate"),
        stream(OTHER, labels="same"),
        Source(STORE, streaming=False).open(tail="pad"),
    ):
        with pytest.raises(LoaderError, match="differ") as caught:
            MixedDataLoader({"web": (web, 1.0), "other": (other, 1.0)})
        follows_its_hint(caught.value)


def test_isolated_streams_beside_conversations_are_refused() -> None:
    sources = {"web": Source(FOLDER), "chat": Source(Chats((5,) * 9, "made", packing=True), streaming=False)}
    how: dict[str, Any] = {"chunk_size": CHAT_LENGTH, "pad_id": 0}
    web = stream(FOLDER, documents="isolate", tokenizer=bpe(), **how)
    with pytest.raises(LoaderError, match="documents='isolate'") as caught:
        MixedDataLoader({"web": (web, 1.0), "chat": (sources["chat"].open(**how), 1.0)})
    assert "prepare" in follows_its_hint(caught.value)


def test_a_vocabulary_that_is_too_small_is_noticed_in_any_source() -> None:
    with mixed(TWO, model_config={"vocab_size": 5}) as loader, pytest.raises(SourceError, match="has 5 ids"):
        loader.next()


def test_a_block_that_would_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(OrderError, match="too large") as caught:
        mixed(TWO, mix_block=2**20)
    assert "mix_block" in follows_its_hint(caught.value)


def test_lanes_hold_what_the_budget_allows() -> None:
    with mixed(TWO, memory_budget="1MB", threads=2, prefetch=1000, batch_size=64) as loader:
        held = [(loader.next(), loader.get_profiling_results()["memory"]["lanes"])[1] for _ in range(30)]
    assert 0 < max(held) < 1_000_000


def test_weights_hold_on_average_in_any_stretch_of_a_lane() -> None:
    with mixed(THREE, batch_size=BLOCK * 8) as loader:
        samples = loader._run.samples()
        rows = rows_of(loader.next(), samples)
    lanes = loader._run.blends.lanes
    lane = Counter(row.source for row in rows if row.sample % lanes == 3)
    assert lane == {"web": 6 * 8 // lanes, "news": 3 * 8 // lanes, "books": 3 * 8 // lanes}


def test_a_document_needs_the_name_of_its_source() -> None:
    with mixed(THREE) as loader:
        for name in (None, "none"):
            with pytest.raises(LoaderError) as caught:
                loader.steps_of(0, name)
            assert "books" in follows_its_hint(caught.value)
    with mixed({"web": TWO["web"]}, batch_size=4) as loader:
        loader.next()
        assert loader.steps_of(loader.explain(0)[0].spans[0].document) == [0]


def test_all_ranks_compare_the_same_facts() -> None:
    with MixedRanks(THREE, 2, 4) as run:
        one, other = (loader.plan_fingerprint() for loader in run.loaders)
    assert one == other
    with mixed({**THREE, "web": replace(THREE["web"], weight=5.0)}, world_size=2, rank=1, batch_size=2) as loader:
        facts = loader.plan_fingerprint()
    assert {key for key in one if one[key] != facts[key]} == {"mixtures"}


def test_a_loader_over_stores_is_still_what_it_was() -> None:
    books = Source(STORE, streaming=False).open()
    assert isinstance(books, PretrainDataLoader)
    loader = MixedDataLoader({"books": (books, 1.0)})
    assert type(loader) is MixedDataLoader
    assert TOKENIZER.vocab_size > 0
    loader.close()


def test_ids_of_two_tokenizers_are_not_mixed() -> None:
    chat = Source(Chats((5,) * 9, "made", packing=True), streaming=False)
    how: dict[str, Any] = {"chunk_size": CHAT_LENGTH, "pad_id": 0}
    with pytest.raises(LoaderError, match="two different words"):
        MixedDataLoader({"web": (stream(FOLDER, **how), 1.0), "chat": (chat.open(**how), 1.0)})


changes = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.sampled_from(["web", "news", "books"]))), min_size=2, max_size=4
)


@given(sources=all_sources(), changes=changes, weight=st.sampled_from([1.0, 5.0]))
@examples(20)
def test_weights_and_sources_that_change_repeat_and_lose_nothing(
    sources: Sources, changes: list[tuple[int, set[str]]], weight: float
) -> None:
    """Also when a source is left out for a while: it goes on where it stood."""
    found, states = [], list[dict[str, object]]()
    lanes = lanes_of({"web": sources["web"]})
    assume(lanes_of(sources) == lanes)
    for number, (steps, kept) in enumerate(changes):
        now = {name: source for name, source in sources.items() if name == "web" or name in kept}
        now["web"] = replace(sources["web"], weight=weight + number)
        with MixedRanks(now, 1, 7) as run:
            if states:
                run.load(states, merged=True)
            found += run.steps(steps)
            states = run.states()

    assert [row.sample for row in found] == list(range(len(found)))
    check_sources(found, sources, lanes)
