"""Mixtures of which some sources are streams: each gives its own rows, at its weight, whatever changes meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laws import examples
from loaders.conversations import LENGTH as CHAT_LENGTH
from loaders.conversations import Chats
from loaders.corpora import LENGTH, TOKENIZER, corpus, parts_of, rows_of, stream
from loaders.mixtures import BLOCK, Source, Sources, all_sources, check_sources, mixed, mixed_ranks
from loaders.samples import follows_its_hint
from millstream import (
    ClosedError,
    FingerprintError,
    LoaderError,
    MixedDataLoader,
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


def test_without_an_epoch_size_an_epoch_lasts_until_the_first_source_is_exhausted() -> None:
    """As of stores of the same tokens; how long that is, is known when the streams were counted."""
    stored = {name: replace(source, streaming=False) for name, source in THREE.items()}
    with mixed(stored, batch_size=4) as loader:
        expected = [sum(batch.metadata["rows"] for batch in loader) for _ in range(2)]
        batches = loader.get_num_batches()
    with mixed(THREE, batch_size=4) as loader:
        with pytest.raises(UnknownLength, match="not known yet") as caught:
            loader.get_num_batches()
        assert "cache_dir" in follows_its_hint(caught.value)
        assert [sum(batch.metadata["rows"] for batch in loader) for _ in range(2)] == expected
        for _ in range(3):
            list(loader)
        assert loader.get_num_batches() == batches
        assert loader.epoch == 5


def test_the_last_step_of_an_epoch_is_cut_the_same_way_on_all_ranks() -> None:
    """Rows that are missing on a rank are filled up or left out as anywhere else."""
    with mixed_ranks(THREE, 2, 8, epoch_size=11) as run:
        assert [len(run.step()) for _ in range(4)] == [8, 3, 8, 3]
    with (
        mixed_ranks(THREE, 1, 11, epoch_size=11) as whole,
        mixed_ranks(THREE, 2, 8, epoch_size=11, drop_last=True) as run,
    ):
        assert run.steps(2) == [row for _ in range(2) for row in whole.step()[:8]]
        assert run.loaders[0].losses["dropped_rows"] == 3
    with mixed_ranks(THREE, 2, 8, epoch_size=9, pad_last=True) as run:
        run.step()
        last = [loader.next() for loader in run.loaders]
        assert [batch.metadata["filler"] for batch in last] == [[False, True, True, True], [True] * 4]
        assert last[1].metadata["source"] == [""] * 4 and not last[1].loss_mask.any()


def test_weights_hold_in_every_block_and_each_source_gives_its_own_rows() -> None:
    with mixed(THREE, batch_size=BLOCK) as loader:
        rows = [row for _ in range(30) for row in rows_of(loader.next())]
    for at in range(0, len(rows) - BLOCK, BLOCK):
        assert Counter(row.source for row in rows[at : at + BLOCK]) == {"web": 6, "news": 3, "books": 3}
    check_sources(rows, THREE)


def test_a_stream_that_is_shorter_than_a_step_comes_several_times_in_it() -> None:
    """Each row of it as often as any other."""
    tiny = corpus((("jsonl", (2, 2, 2)),))
    sources = {"web": TWO["web"], "tiny": Source(tiny)}
    with mixed(sources, batch_size=60) as loader:
        rows = [row for _ in range(2) for row in rows_of(loader.next())]
    check_sources(rows, sources)
    counts = Counter(row.inputs for row in rows if row.source == "tiny")
    assert len(counts) == 5 and max(counts.values()) - min(counts.values()) <= 1


# States


def test_a_state_is_small_readable_and_equal_on_all_ranks() -> None:
    with mixed_ranks(THREE, 2, 8) as run:
        run.steps(5)
        state = run.state()
    assert set(state["streams"]) == {"web", "news"}
    assert all(set(each) == {"window", "token", "check"} for each in state["streams"].values())
    assert len(json.dumps(state)) < 3000


DAMAGE: list[dict[str, Any]] = [
    {"streams": None},
    {"streams": {"web": {}}},
    {"streams": {"web": {"window": 0, "token": 3}}},
    {"streams": {"web": {"window": 2**70, "token": 0}}},
    {"streams": {"news": {"window": 1, "token": 2**70}}},
    {"data": {}},
    {"data": None},
    {"phases": []},
    {"phases": None},
    {"step": 0},
    {"step": -1},
    {"offset": 1},
    {"seed": 9},
    {"loader": "pretrain"},
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
        for _ in range(20):
            assert loader.next().input_ids.tolist() == same.next().input_ids.tolist()


def test_other_data_is_refused() -> None:
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


def test_a_source_that_returns_resumes_where_it_stood(tmp_path: Path) -> None:
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


def test_states_of_different_steps_are_not_merged() -> None:
    with mixed_ranks(TWO, 2, 4) as run:
        first = run.state()
        run.steps(1)
        with pytest.raises(StateError, match="differ in step"):
            merge_states([first, run.state()])
        with pytest.raises(StateError, match="differ in streams"):
            merge_states([first, {**first, "streams": {}}])


# Moving


def test_seek_goes_to_what_is_known_and_not_beyond() -> None:
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
        loader.next()
        before = [row.sample for row in loader.explain(0) if row.source == "web"]
    assert len({*before, *rows}) == len(before) + len(rows)


def test_past_steps_are_explained_source_by_source() -> None:
    with mixed(THREE, batch_size=BLOCK) as loader:
        steps, answered = [loader.next() for _ in range(8)], 0
        for step, batch in enumerate(steps):
            origins = loader.explain(step)
            assert [origin.source for origin in origins] == batch.metadata["source"]
            for origin, ids in zip(origins, batch.input_ids.tolist(), strict=True):
                assert origin.text == TOKENIZER.decode(ids)
                for span in origin.spans if origin.source != "books" else ():
                    with suppress(UnknownLength):  # the rest of it is still to come
                        assert step in loader.steps_of(span.document, origin.source)
                        answered += 1
        assert answered > 20
        with pytest.raises(UnknownLength) as refused:  # it may come again in an epoch that ends with a stream
            loader.steps_of(0, "books")
        follows_its_hint(refused.value)


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


@pytest.mark.parametrize("ranks", [3, 4])
def test_transforms_of_rows_are_the_same_on_any_ranks(ranks: int) -> None:
    @per_row
    def noise(row: Any, rng: np.random.Generator) -> Any:
        row["input_ids"][...] = rng.integers(0, 30, row["input_ids"].shape)
        return row

    how: dict[str, Any] = {"transforms": [noise]}
    with mixed_ranks(THREE, 1, 12, **how) as one, mixed_ranks(THREE, ranks, 12, **how) as several:
        assert one.steps(5) == several.steps(5)


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
    how: dict[str, Any] = {"on_bad": "quarantine", "cache_dir": tmp_path / "cache"}
    with mixed(sources, members=how, batch_size=BLOCK) as loader:
        loader.next()
        lost = {reason: count for reason, count in loader.losses.items() if reason.startswith("left_out")}
        assert lost == {"left_out:bad:empty": 1, "left_out:bad:no text in 'text'": 1}
    assert len(list((tmp_path / "cache").rglob("*.quarantine.jsonl.zst"))) == 1


def test_a_bad_record_ends_the_run_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"txt": 1}\n')
    sources = {**TWO, "bad": Source(tmp_path / "a.jsonl")}
    with mixed(sources, batch_size=BLOCK) as loader, pytest.raises(SourceError, match=r"a.jsonl:1: no text"):
        loader.next()


def test_rows_that_differ_are_refused() -> None:
    web = stream(FOLDER)
    for other in (
        stream(OTHER, tail="pad"),
        stream(OTHER, chunk_size=LENGTH + 1),
        stream(OTHER, documents="isolate"),
        stream(OTHER, labels="same"),
        Source(STORE, streaming=False).open(tail="pad"),
    ):
        with pytest.raises(LoaderError, match="differ") as caught:
            MixedDataLoader({"web": (web, 1.0), "other": (other, 1.0)})
        follows_its_hint(caught.value)


def test_a_vocabulary_that_is_too_small_is_noticed_in_any_source() -> None:
    with mixed(TWO, model_config={"vocab_size": 5}) as loader, pytest.raises(SourceError, match="has 5 ids"):
        loader.next()


def test_a_document_needs_the_name_of_its_source() -> None:
    with mixed(THREE) as loader:
        for name in (None, "none"):
            with pytest.raises(LoaderError) as caught:
                loader.steps_of(0, name)
            assert "books" in follows_its_hint(caught.value)
    with mixed({"web": TWO["web"]}, batch_size=4) as loader:
        loader.next()
        assert 0 in loader.steps_of(loader.explain(0)[0].spans[0].document)


def test_ids_of_two_tokenizers_are_not_mixed() -> None:
    chat = Source(Chats((5,) * 9, "made", packing=True), streaming=False)
    how: dict[str, Any] = {"chunk_size": CHAT_LENGTH, "pad_id": 0}
    with pytest.raises(LoaderError, match="two different words"):
        MixedDataLoader({"web": (stream(FOLDER, **how), 1.0), "chat": (chat.open(**how), 1.0)})


def test_all_ranks_compare_the_same_facts() -> None:
    with mixed_ranks(THREE, 2, 4) as run:
        one, other = (loader.plan_fingerprint() for loader in run.loaders)
    assert one == other
    with mixed({**THREE, "web": replace(THREE["web"], weight=5.0)}, world_size=2, rank=1, batch_size=2) as loader:
        facts = loader.plan_fingerprint()
    differing = {key for key in one if one[key] != facts[key]}
    assert differing and all(key.startswith("places of") for key in differing)


def test_windows_of_all_streams_stay_within_the_budget() -> None:
    with mixed(TWO, memory_budget="1MB", threads=2, prefetch=1000, batch_size=64) as loader:
        held = []
        for _ in range(30):
            loader.next()
            memory = loader.get_profiling_results()["memory"]
            assert sum(memory.values()) < 1_000_000
            held.append(memory["windows"])
    assert max(held) > 0


def test_a_mixture_shares_the_cache_of_its_streams(tmp_path: Path) -> None:
    """That of its own if it has one, else that of each loader; what one of them has made, the other finds."""
    with stream(FOLDER, name="web", seed=3, cache_dir=tmp_path) as web:
        list(web)
        made = parts_of(web, "web")["made"]
    for how, own in (({"cache_dir": tmp_path}, {}), ({}, {"cache_dir": tmp_path})):
        with mixed({"web": TWO["web"]}, members=own, batch_size=8, **how) as loader:
            assert sum(batch.metadata["rows"] for batch in loader) > 100
            parts = parts_of(loader, "web")
            assert parts["made"] == 0 and parts["found"] >= made, "and it found those of the next epoch"


changes = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.sampled_from(["web", "news", "books"])), st.sampled_from([1, 2, 3])),
    min_size=2,
    max_size=4,
)


def two_streams(web: tuple[int, ...], news: tuple[int, ...]) -> Sources:
    return {name: Source(corpus((("jsonl", sizes),)), True, 40, 1.0) for name, sizes in (("web", web), ("news", news))}


@given(sources=all_sources(), changes=changes, weight=st.sampled_from([1.0, 5.0]))
@example(two_streams((3,), (1,)), [(1, {"news"}, 1), (1, set(), 1), (1, {"news"}, 1)], 1.0).via("news was counted")
@example(two_streams((0, 0, 0, 1, 6), (0, 0, 4)), [(1, {"news"}, 1), (1, set(), 1), (1, {"news"}, 1)], 1.0).via("late")
@example(two_streams((20,) * 9, (0, 0, 4)), [(1, {"news"}, 1), (2, {"news"}, 1), (3, {"news"}, 2)], 1.0).via("rare")
@examples(12)
def test_weights_and_sources_that_change_repeat_and_lose_nothing(
    sources: Sources, changes: list[tuple[int, set[str], int]], weight: float
) -> None:
    """Also when a source is left out for a while, and on other numbers of ranks: it resumes where it stood."""
    found, state = [], None
    for number, (steps, kept, ranks) in enumerate(changes):
        now = {name: source for name, source in sources.items() if name == "web" or name in kept}
        now["web"] = replace(sources["web"], weight=weight + number)
        with mixed_ranks(now, ranks, 6) as run:
            if state is not None:
                run.load(state)
            found += run.steps(steps)
            state = run.state()

    check_sources(found, sources)
