"""The laws for streams of raw files: any corpus, any cut, threads, depth, ranks, batch sizes and stop points."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import examples
from loaders.corpora import LENGTH, TOKENIZER, StreamRanks, corpora, corpus, cuts, stream, words_of
from loaders.samples import follows_its_hint
from millstream import BudgetError, PretrainDataLoader, TokenStore, TrainingBatch, prepare
from millstream.loaders.stream_explain import StreamSpan
from millstream.sources import Reading, discover, raw_record, read_file

shuffles = st.sampled_from(["global", "local", False])
depths = st.tuples(st.integers(1, 4), st.integers(1, 9))


def prepared(folder: Path) -> Counter[str]:
    """The texts of all documents, by the road of `prepare`."""
    with tempfile.TemporaryDirectory() as place:
        prepare(folder, Path(place, "store"), TOKENIZER, workers=1, cache=False)
        with TokenStore(Path(place, "store")) as store:
            return Counter(TOKENIZER.decode(store.document(i)[:-1].tolist()) for i in range(store.documents))


def has_own_tokens(loader: PretrainDataLoader, lane: int) -> bool:
    entry = loader._run.lanes.log.find(lane, 0)
    return entry is not None and entry.place.range < loader.stream.ranges.in_lane(lane)


@given(folder=corpora, cut=cuts, shuffle=shuffles, rows=st.integers(1, 70))
@examples(25)
def test_complete_an_epoch_of_the_lanes_holds_every_document_once(
    folder: Path, cut: int, shuffle: object, rows: int
) -> None:
    """The documents are those of `prepare`, token for token. A lane that has none repeats those of the next one."""
    with stream(folder, cut=cut, shuffle=shuffle, batch_size=rows) as loader:
        batches = [batch.input_ids for batch in loader]
        lanes, tokens = loader.stream.lanes, loader._run.lanes.lane_tokens
        own = [lane for lane in range(lanes) if has_own_tokens(loader, lane)]
        assert loader.get_num_batches() > 0

    inputs = np.concatenate(batches)
    found: Counter[str] = Counter()
    for lane in own:
        found += Counter(words_of(np.concatenate(list(inputs[lane::lanes]))[: tokens[lane]].tolist()))
    assert found == prepared(folder)


@given(folder=corpora, cut=cuts, shuffle=shuffles, depth=depths, ranks=st.sampled_from([1, 2, 4, 8]))
@examples(25)
def test_same_threads_depth_and_ranks_change_nothing(
    folder: Path, cut: int, shuffle: object, depth: tuple[int, int], ranks: int
) -> None:
    how = {"cut": cut, "shuffle": shuffle, "seed": 5}
    with StreamRanks(folder, 1, 8, threads=1, prefetch=1, **how) as plain:
        assume(plain.loaders[0].stream.lanes % ranks == 0)
        expected = plain.steps(9)
    with StreamRanks(folder, ranks, 8, threads=depth[0], prefetch=depth[1], **how) as other:
        assert other.steps(9) == expected


@given(
    folder=corpora,
    cut=cuts,
    runs=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([4, 8, 12]), st.integers(0, 9), st.booleans()),
        min_size=2,
        max_size=4,
    ),
)
@examples(25)
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(
    folder: Path, cut: int, runs: list[tuple[int, int, int, bool]]
) -> None:
    """With the states of all ranks merged, or with that of rank 0 alone, which reads more again."""
    got, states, merged = [], list[dict[str, object]](), True
    for ranks, rows, steps, together in runs:
        with stream(folder, cut=cut) as probe:
            assume(probe.stream.lanes % ranks == 0)
        with StreamRanks(folder, ranks, rows, cut=cut, seed=2) as run:
            if states:
                run.load(states, merged=merged)
                assert run.states()[0]["sample"] == states[0]["sample"]
            got += run.steps(steps)
            states, merged = run.states(), together
            assert max(len(json.dumps(state)) for state in states) < 4096
    with StreamRanks(folder, 1, 1, cut=cut, seed=2) as whole:
        assert got == whole.steps(len(got))


@given(folder=corpora, cut=cuts, shuffle=shuffles, rows=st.integers(1, 20))
@examples(25)
def test_explainable_rows_name_their_records_and_documents_their_steps(
    folder: Path, cut: int, shuffle: object, rows: int
) -> None:
    files = {file.name: file for file in discover(folder).files}
    texts = {
        (file.name, record.start): record.text
        for file in files.values()
        for read in read_file(file, Reading())
        for record in read.block
    }
    used: dict[int, set[int]] = {}
    with stream(folder, cut=cut, shuffle=shuffle, batch_size=rows) as loader:
        batches = [loader.next() for _ in range(6)]
        for step, batch in enumerate(batches):
            for origin, inputs in zip(loader.explain(step), batch.input_ids.tolist(), strict=True):
                tokens: list[int] = []
                for span in origin.spans:
                    assert isinstance(span, StreamSpan) and span.first_byte is not None and span.last_byte is not None
                    text = texts[span.file, span.first_byte]
                    assert raw_record(files[span.file], Reading(), 0, span.first_byte, span.last_byte)
                    tokens += [*TOKENIZER.encode(text), TOKENIZER.eos_id][span.start : span.stop]
                    if batch.metadata["epoch"] == 0:
                        used.setdefault(span.document, set()).add(step)
                assert tokens == inputs
        if loader.epoch == 0 and not loader._run.lanes.lane_tokens:  # no lane has begun anew
            delivered = range(6)
            assert {document: set(loader.steps_of(document)) & set(delivered) for document in used} == used


@given(folder=corpora, labels=st.sampled_from(["next", "same"]), documents=st.sampled_from(["attend", "isolate"]))
@examples(15)
def test_one_lane_in_file_order_gives_the_rows_of_a_store(folder: Path, labels: str, documents: str) -> None:
    """Ids, labels, positions and segments: column for column what the engine makes of the prepared data."""
    how = {"chunk_size": LENGTH, "batch_size": 3, "shuffle": False, "labels": labels, "documents": documents}
    file = sorted(folder.iterdir())[0]
    with tempfile.TemporaryDirectory() as place, stream(file, cut=1 << 20, **how) as raw:
        prepare(file, Path(place, "store"), TOKENIZER, workers=1, cache=False)
        assume(len(TokenStore(Path(place, "store"))) > LENGTH)
        with PretrainDataLoader(Path(place, "store"), framework="numpy", **how) as mapped:  # type: ignore[arg-type]
            for expected in mapped:
                if expected.metadata["rows"] < 3:
                    break
                batch = raw.next().validate()
                assert set(batch.keys()) == set(expected.keys())
                for name in ("input_ids", "labels", "position_ids", "cu_seqlens"):
                    assert np.array_equal(batch[name], expected[name])
                assert batch.max_seqlen == expected.max_seqlen


def test_bounded_lanes_hold_what_the_budget_allows() -> None:
    folder = corpus((("jsonl", (400,) * 200),))
    with stream(folder, cut=2000, memory_budget="1MB", threads=2, prefetch=1000, batch_size=64) as loader:
        most = 0
        for _ in range(50):
            loader.next()
            most = max(most, loader.get_profiling_results()["memory"]["lanes"])

    assert 0 < most < 1_000_000


def test_bounded_batches_that_are_held_fill_the_budget_and_the_run_goes_on_when_they_are_released() -> None:
    """Lanes and batches share it. A step that found no room is given later; larger batches take smaller ones' room."""
    folder, budget = corpus((("jsonl", (400,) * 20),)), 100_000
    with stream(folder, cut=100, batch_size=8) as loader:
        expected = [loader.next().input_ids.tolist() for _ in range(100)]
    with stream(folder, cut=100, batch_size=8, memory_budget=budget, threads=1, prefetch=1000) as loader:
        kept: list[TrainingBatch] = []
        with pytest.raises(BudgetError, match="in use by your code") as caught:
            while len(kept) < 100:
                kept.append(loader.next())
        assert "release" in follows_its_hint(caught.value)
        memory = loader.get_profiling_results()["memory"]
        assert 2 < len(kept) < 100 and sum(memory.values()) <= budget
        assert loader.step == len(kept)
        got = [batch.input_ids.tolist() for batch in kept]
        for batch in kept:
            batch.release()
        got.append(loader.next().input_ids.tolist())
        assert got == expected[: len(got)]
        rows = len(kept) * 4 - 1  # half of what all that were kept have
        assert loader.get_batch(rows).metadata["rows"] == rows
        with pytest.raises(BudgetError, match="two are needed") as caught:
            loader.get_batch(rows * 4)
        least = re.search(r"memory_budget=(\d+) or more", follows_its_hint(caught.value))
    assert least is not None
    with stream(folder, cut=100, batch_size=rows * 4, memory_budget=int(least[1]), threads=1) as loader:
        loader.next()


@pytest.mark.parametrize("on_bad", ["skip", "quarantine"])
def test_honest_what_is_left_out_and_replaced_is_counted(tmp_path: Path, on_bad: str) -> None:
    """By the names that the loader of a prepared store has for it."""
    path, good = tmp_path / "a.jsonl", "".join(json.dumps({"text": f"{n} fine words"}) + "\n" for n in range(5))
    path.write_bytes(good.encode() + b'{"txt": 1}\n{"text": ""}\n{"text": "caf\xe9"}\n' + good.encode())
    prepare(path, tmp_path / "store", TOKENIZER, on_bad="skip", on_invalid="replace", cache=False)
    with PretrainDataLoader(tmp_path / "store", chunk_size=LENGTH, framework="numpy") as loader:
        expected = {name: count for name, count in loader.losses.items() if not name.startswith("tail_tokens")}
    assert {name.split(":")[0] for name in expected} == {"cut_tokens", "left_out", "changed"}
    shared: dict[str, Any] = {"cut": 1 << 20, "reading": {"on_invalid": "replace"}, "batch_size": 1}
    with stream(path, on_bad=on_bad, cache_dir=tmp_path / "cache", **shared) as loader:
        loader.next()
        assert loader.losses == expected
        loader.prefetch(9)  # reads the chunk again
        loader.next()
        assert loader.losses == expected
    kept = list((tmp_path / "cache").glob("quarantine*"))
    assert len(kept) == (on_bad == "quarantine")
