"""Streams of raw files: settings, errors, states and the face they share with every loader."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forks import in_child
from laws import examples
from loaders.corpora import LENGTH, TOKENIZER, StreamRanks, corpora, corpus, stream
from loaders.samples import follows_its_hint, ran
from millstream import (
    BudgetError,
    CharTokenizer,
    ClosedError,
    DataLoader,
    FingerprintError,
    LoaderError,
    OrderError,
    PretrainDataLoader,
    SourceError,
    StateError,
    TokenStore,
    TrainingBatch,
    UnknownLength,
    load,
    per_row,
    prepare,
)
from millstream.loaders import merge_states
from millstream.loaders.lane import Place
from millstream.loaders.lane_log import Entry, LaneLog
from millstream.loaders.ranges import Ranges
from millstream.loaders.stream_explain import StreamSpan
from millstream.parts.process import make_part
from millstream.sources import Reading, discover

FOLDER = corpus((("jsonl", (3,) * 60), ("jsonl.gz", (5,) * 30), ("csv", (4,) * 30)))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "default-cache"))


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_a_stream_is_a_pretrain_loader_and_shows_every_method() -> None:
    loader: Any = stream(FOLDER)
    with loader:
        assert isinstance(loader, PretrainDataLoader)
        missing = [name for name in vars(DataLoader) if not name.startswith("_") and not hasattr(loader, name)]
        assert missing == []


def test_rows_of_a_rank_are_those_whose_number_is_its_own_modulo_the_ranks() -> None:
    with stream(FOLDER, rank=3, world_size=4, batch_size=5) as loader:
        loader.next()
        samples = loader._run.samples()
    assert [sample % 4 for sample in samples] == [3] * 5 and samples[0] == 23


@pytest.mark.parametrize("ranks", [3, 128])
def test_ranks_that_do_not_divide_the_lanes_are_refused(ranks: int) -> None:
    with pytest.raises(OrderError, match="cannot share 16 lanes") as refused:
        stream(FOLDER, cut=100, rank=0, world_size=ranks)
    assert "divides 16" in follows_its_hint(refused.value)


def test_lanes_are_64_where_the_data_allow_it_and_never_more_than_there_are_ranges(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", [json.dumps({"text": "x" * 100})] * 3000)
    files = discover(lines).files
    assert Ranges(files, Reading(chunk_bytes=4096)).lanes == 64
    assert Ranges(files, Reading(chunk_bytes=80_000)).lanes == 4
    assert Ranges(files, Reading(chunk_bytes=1 << 30)).lanes == 1


def test_parquet_is_cut_by_row_groups(tmp_path: Path) -> None:
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    table = pyarrow.table({"text": [f"{n} words in a row" for n in range(100)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    with stream(tmp_path, cut=1, batch_size=8) as loader:
        loader.next()
        origin = loader.explain(0)[3]
        span = origin.spans[0]
    assert loader.stream.ranges.count == 10 and loader.stream.lanes == 8
    assert isinstance(span, StreamSpan) and origin.text == f"{span.row} words"[:LENGTH]


@pytest.mark.parametrize("cut", [64, 1 << 20])
def test_a_bad_record_is_an_error_with_its_place_again_and_again(tmp_path: Path, cut: int) -> None:
    path = write_lines(tmp_path / "a.jsonl", [json.dumps({"text": f"{n} words"}) for n in range(20)] + ["{broken"])
    with stream(path, cut=cut, shuffle=False, batch_size=200) as loader:
        for _ in range(2):
            with pytest.raises(SourceError, match=r"a\.jsonl( from byte \d+)?:\d+: not JSON") as refused:
                loader.next()
            assert 'on_bad="skip"' in follows_its_hint(refused.value)
        assert loader.step == 0


def test_a_step_that_compares_all_documents_is_refused() -> None:
    with pytest.raises(LoaderError, match="which a stream cannot") as refused:
        stream(FOLDER, recipe=["exact_dedup"])
    assert "prepare()" in follows_its_hint(refused.value)


def test_a_recipe_gives_the_tokens_that_prepare_gives(tmp_path: Path) -> None:
    recipe = [{"name": "length", "min_words": 5}]
    report = prepare(FOLDER, tmp_path / "store", TOKENIZER, recipe=recipe, cache=False)
    with stream(FOLDER, recipe=recipe, cut=1 << 20) as loader:
        for _ in loader:
            pass
        assert sum(loader._run.lanes.lane_tokens.values()) == report.tokens
        assert any("length" in reason for reason in loader.losses)


def test_tokens_tables_and_impossible_settings_are_refused(tmp_path: Path) -> None:
    prepare(FOLDER, tmp_path / "store", TOKENIZER, cache=False)
    how: dict[str, Any] = {"chunk_size": LENGTH, "streaming": True}
    for wrong, message in (
        ({"path": tmp_path / "store", "tokenizer": TOKENIZER}, "tokens, not raw files"),
        ({"path": FOLDER}, "needs a tokenizer"),
        ({"path": FOLDER, "tokenizer": TOKENIZER, "documents": "row"}, "neither"),
        ({"path": FOLDER, "tokenizer": TOKENIZER, "reading": {"field": "x"}}, "is unknown"),
    ):
        with pytest.raises(LoaderError, match=message) as refused:
            PretrainDataLoader(**wrong, **how)
        follows_its_hint(refused.value)
    with pytest.raises(LoaderError, match="these are tokens"):
        PretrainDataLoader(tmp_path / "store", chunk_size=LENGTH, recipe=["normalize"])
    with pytest.raises(SourceError, match="on_bad='ignore' is unknown") as unknown:
        stream(FOLDER, on_bad="ignore")
    follows_its_hint(unknown.value)


def test_every_batch_is_full_so_there_is_no_last_one_to_drop_or_to_pad() -> None:
    for how in ({"drop_last": True}, {"pad_last": True}):
        with stream(FOLDER, batch_size=5, **how) as loader:
            for batch in loader:
                assert (batch.metadata["rows"], any(batch.metadata.get("filler", ()))) == (5, False)
            assert "dropped_rows" not in loader.losses


def test_the_length_is_unknown_until_every_lane_was_read_once() -> None:
    with stream(FOLDER, batch_size=16) as loader:
        with pytest.raises(UnknownLength):
            loader.get_num_batches()
        with pytest.raises(TypeError):
            len(loader)
        epochs = [[batch.metadata["epoch"] for batch in loader] for _ in range(3)]
        assert [set(epoch) for epoch in epochs] == [{0}, {1}, {2}]
        loader.seek(len(epochs[0]))
        assert loader.get_num_batches() == len(epochs[1]) == len(loader)
        loader.reset()
        assert loader.get_num_batches() == len(epochs[0])


def test_ranks_iterate_only_over_epochs_whose_end_all_of_them_know() -> None:
    with stream(FOLDER, batch_size=8) as whole:
        steps = len(list(whole))
        state = whole.state_dict()
    for rank in range(2):
        with stream(FOLDER, rank=rank, world_size=2, batch_size=4) as loader:
            with pytest.raises(UnknownLength):
                next(loader.get_iterator())
            loader.load_state_dict(state)
            loader.reset()
            assert len(list(loader)) == steps


def test_seek_goes_back_exactly_and_not_into_the_unknown() -> None:
    with stream(FOLDER, batch_size=6) as loader:
        rows = [loader.next().input_ids.tolist() for _ in range(9)]
        loader.seek(4)
        assert loader.next().input_ids.tolist() == rows[4]
        with pytest.raises(UnknownLength) as refused:
            loader.seek(10**6)
        assert "cache_dir" in follows_its_hint(refused.value)
        assert loader.next().input_ids.tolist() == rows[5]


def test_batches_of_another_size_are_cut_from_the_same_rows() -> None:
    with stream(FOLDER, batch_size=6) as one, stream(FOLDER, batch_size=1) as other:
        got = [row for size in (2, 5, 6, 1) for row in one.get_batch(size).input_ids.tolist()]
        assert got == [row for _ in got for row in other.next().input_ids.tolist()]
        assert one.step == 4 and len(one.explain(1)) == 5


def test_the_state_of_other_data_another_recipe_or_seed_is_refused_and_says_why(tmp_path: Path) -> None:
    with stream(FOLDER, batch_size=4) as loader:
        loader.next()
        state = json.loads(json.dumps(loader.state_dict()))
    other = corpus((("jsonl", (3,) * 61),))
    for folder, how, error, message in (
        (other, {}, FingerprintError, "files: 3 then, 1 now"),
        (FOLDER, {"recipe": ["normalize"]}, FingerprintError, "recipe"),
        (FOLDER, {"cut": 65}, FingerprintError, "reading"),
        (FOLDER, {"eos": None}, FingerprintError, "eos"),
        (FOLDER, {"seed": 1}, StateError, "seed=0"),
        (FOLDER, {"chunk_size": 8}, StateError, "chunk_size=7"),
    ):
        with stream(folder, **how) as wrong, pytest.raises(error, match=message) as refused:
            wrong.load_state_dict(state)
        follows_its_hint(refused.value)


@pytest.mark.parametrize(
    "damage", [{"cursors": [[0, 0, 0, 10**9]] * 16}, {"cursors": None}, {"steps": []}, {"step": -1}]
)
def test_a_damaged_state_changes_nothing(damage: dict[str, Any]) -> None:
    with stream(FOLDER, cut=40, batch_size=4) as loader:
        loader.next()
        state = {**loader.state_dict(), **damage}
        with pytest.raises(StateError):
            loader.load_state_dict(state)
        assert loader.step == 1


def test_states_of_different_steps_are_not_merged() -> None:
    with StreamRanks(FOLDER, 2, 4) as run:
        first = run.states()
        run.steps(1)
        with pytest.raises(StateError, match="differ in step, sample"):
            merge_states([first[0], run.states()[1]])
    with pytest.raises(StateError, match="no states"):
        merge_states([])


def test_a_log_on_disk_has_no_holes_whoever_writes_first(tmp_path: Path) -> None:
    """One run began in the middle, one at the beginning: a third finds what either read, each chunk once."""
    entries = [Entry(10 * number, 10 * number + 10, Place(0, number)) for number in range(6)]
    for run in (entries[3:5], entries[:5], entries):
        log = LaneLog(tmp_path)
        for entry in run:
            log.add(0, entry)

    assert [LaneLog(tmp_path).find(0, 10 * number + 4) for number in range(6)] == entries
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == len(entries) * 6 * 8  # five numbers and a check


def test_a_log_on_disk_leaves_out_what_is_torn_or_damaged_and_goes_on(tmp_path: Path) -> None:
    entries = [Entry(10 * number, 10 * number + 10, Place(0, number)) for number in range(5)]
    log = LaneLog(tmp_path)
    for entry in entries[:3]:
        log.add(0, entry)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes()[:-7])
    data[48] ^= 1
    file.write_bytes(data)
    again = LaneLog(tmp_path)
    for entry in entries[3:]:
        again.add(0, entry)

    found = [LaneLog(tmp_path).find(0, 10 * number + 4) for number in range(5)]
    assert found == [entries[0], None, None, *entries[3:]]


def test_a_log_of_an_older_version_is_read(tmp_path: Path) -> None:
    entries = [Entry(10 * number, 10 * number + 10, Place(0, number)) for number in range(3)]
    np.array([(entry.start, entry.stop, *entry.place) for entry in entries[:2]], "<i8").tofile(tmp_path / "lane-00.log")
    log = LaneLog(tmp_path)
    for entry in entries:
        log.add(0, entry)

    assert [LaneLog(tmp_path).find(0, 10 * number + 4) for number in range(3)] == entries
    assert (tmp_path / "lane-00.records").stat().st_size == 6 * 8


def test_a_log_beside_the_checkpoint_finds_every_lane(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So one rank's state is enough on another number of ranks, and the past is explained by a new process."""
    how: dict[str, Any] = {"cache_dir": tmp_path, "seed": 1}
    with StreamRanks(FOLDER, 4, 8, **how) as run:
        rows = run.steps(20)
        state = run.states()[1]
        explained = run.loaders[0].explain(3)
    with StreamRanks(FOLDER, 1, 8, **how) as one:
        one.load([state], merged=False)
        lanes = one.loaders[0]._run.lanes
        behind = [lanes.token(lane) - lanes.cursor(lane).start for lane in range(32)]
        assert max(behind) < 200
        later = one.steps(3)
        assert [origin.spans for origin in one.loaders[0].explain(3)[::4]] == [origin.spans for origin in explained]
    with StreamRanks(FOLDER, 1, 8, seed=1) as whole:
        assert whole.steps(23) == rows + later


def test_closing_is_prompt_while_lanes_are_read_and_while_somebody_waits() -> None:
    def slow(record: Any) -> Any:
        time.sleep(0.1)
        return record

    loader = stream(FOLDER, recipe=[slow], threads=2, batch_size=8)
    failures: list[BaseException] = []

    def train() -> None:
        try:
            loader.next()
        except ClosedError as error:
            failures.append(error)

    trainer = threading.Thread(target=train)
    trainer.start()
    time.sleep(0.2)
    began = time.monotonic()
    loader.close()
    trainer.join(1)
    assert time.monotonic() - began < 1 and len(failures) == 1
    with pytest.raises(ClosedError):
        loader.next()


def test_ctrl_c_is_heard_while_a_batch_is_waited_for() -> None:
    def slow(record: Any) -> Any:
        time.sleep(5)
        return record

    with stream(FOLDER, recipe=[slow], cut=1 << 20, threads=1) as loader:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            loader.next()
        assert time.monotonic() - began < 2


def test_a_script_that_forgets_to_close_ends() -> None:
    code = """
        import sys
        from pathlib import Path
        from millstream import CharTokenizer, PretrainDataLoader
        tokenizer = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
        loader = PretrainDataLoader(Path(sys.argv[1]), tokenizer=tokenizer, chunk_size=7, streaming=True)
        print(loader.next().input_ids.shape[1])
    """
    assert ran(code, FOLDER) == ["7"]


def test_a_forked_child_reads_on_by_itself() -> None:
    code = """
        import os, sys
        from pathlib import Path
        from millstream import CharTokenizer, PretrainDataLoader
        tokenizer = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
        how = {"tokenizer": tokenizer, "chunk_size": 7, "streaming": True, "framework": "numpy"}
        loader = PretrainDataLoader(Path(sys.argv[1]), **how)
        loader.next()
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, bytes(loader.next().input_ids.ravel().tolist()))
            os._exit(0)
        os.wait()
        print(list(os.read(read, 1000)) == loader.next().input_ids.ravel().tolist())
    """
    assert ran(code, FOLDER) == ["True"]


def test_a_fork_while_another_thread_is_inside_next_does_not_hang() -> None:
    tokenizer = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
    inside, over = threading.Event(), threading.Event()

    def slow(batch: TrainingBatch) -> TrainingBatch:
        inside.set()
        over.wait()
        return batch

    how: Any = {"tokenizer": tokenizer, "chunk_size": 7, "streaming": True, "framework": "numpy"}
    with PretrainDataLoader(FOLDER, transforms=[slow], **how) as loader, PretrainDataLoader(FOLDER, **how) as other:
        thread = threading.Thread(target=loader.next)
        thread.start()
        inside.wait()

        def work() -> list[list[int]]:
            over.set()
            rows: list[list[int]] = loader.next().input_ids.tolist()
            loader.close()
            return rows

        assert in_child(work)() in [other.next().input_ids.tolist() for _ in range(2)]
        over.set()
        thread.join()


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx"])
def test_batches_come_in_the_tensors_of_every_framework(framework: str) -> None:
    importlib.import_module("mlx.core" if framework == "mlx" else framework)
    with stream(FOLDER, framework=framework, documents="isolate") as one, stream(FOLDER, documents="isolate") as other:
        batch = one.next().to("numpy").validate()
        expected = other.next()
    assert one.settings.framework == framework
    assert all((batch[name] == expected[name]).all() for name in ("input_ids", "labels", "position_ids", "cu_seqlens"))


def test_callbacks_hear_of_epochs_batches_and_errors() -> None:
    heard: list[str] = []

    class Listener:
        def on_epoch_start(self, epoch: int) -> None:
            heard.append(f"start {epoch}")

        def on_epoch_end(self, epoch: int) -> None:
            heard.append(f"end {epoch}")

        def on_error(self, error: Exception) -> None:
            heard.append(type(error).__name__)

    with stream(FOLDER, batch_size=64, callbacks=[Listener()]) as loader:
        for _ in range(2):
            for _ in loader:
                pass
    with pytest.raises(ClosedError):
        loader.next()
    assert heard == ["start 0", "end 0", "start 1", "end 1", "ClosedError"]


def test_a_changed_file_is_an_error_and_not_other_data(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [json.dumps({"text": "one of the words"})] * 9)
    with stream(path) as loader:
        write_lines(path, [json.dumps({"text": "one of the birds"})] * 10)
        with pytest.raises(SourceError, match="changed: the file is not as it was found"):
            loader.next()


def test_the_first_batch_reads_only_the_first_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it comes as soon on a corpus of any size: eight rows want eight ranges, and threads read a few ahead."""
    line = json.dumps({"text": "so many words " * 100}) + "\n"
    (tmp_path / "a.jsonl").write_text(line * 10_000)
    made: list[object] = []

    def counted(*given: Any) -> Any:
        made.append(given)
        return make_part(*given)

    monkeypatch.setattr("millstream.loaders.lane.make_part", counted)
    with stream(tmp_path / "a.jsonl", cut=1 << 14, batch_size=8, prefetch=1, threads=1) as loader:
        loader.next()
        assert loader.stream.ranges.count > 800
    assert len(made) <= 64 + 8


def test_random_transforms_of_rows_are_keyed_by_the_row() -> None:
    @per_row
    def noise(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        row["input_ids"][...] = rng.integers(0, 1000, row["input_ids"].shape)
        return row

    with StreamRanks(FOLDER, 1, 8, transforms=[noise]) as one, StreamRanks(FOLDER, 4, 8, transforms=[noise]) as four:
        assert one.steps(3) == four.steps(3)


def test_a_budget_that_cannot_work_says_how_much_is_needed() -> None:
    with stream(FOLDER, cut=100, memory_budget=1000, threads=1) as loader:
        with pytest.raises(BudgetError, match="memory_budget is 1,000 bytes") as refused:
            loader.next()
        assert "memory_budget=" in follows_its_hint(refused.value)


def test_raw_paths_are_prepared_once_and_then_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy", "cache_dir": tmp_path}
    prepare(FOLDER, tmp_path / "store", TOKENIZER, cache=False)
    with PretrainDataLoader(path=FOLDER, **how) as raw, load(tmp_path / "store", chunk_size=LENGTH) as mapped:
        assert isinstance(mapped, PretrainDataLoader)
        assert raw.store.fingerprint == mapped.store.fingerprint
        assert raw.next().input_ids.tolist() == mapped.next().input_ids.tolist()
    monkeypatch.setattr("millstream.parts.prepare.prepare_store", lambda *_: pytest.fail("it was prepared again"))
    with load(FOLDER, **how) as again:
        assert again.explain(0)[0].text


def test_a_changed_file_is_prepared_again(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [json.dumps({"text": "one of the words"})] * 9)
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy"}
    with PretrainDataLoader(path, **how) as first:
        before = len(first.store)
    write_lines(path, [json.dumps({"text": "one of the words"})] * 10)
    with PretrainDataLoader(path, **how) as second:
        assert len(second.store) > before


def test_several_ranks_prepare_one_store(tmp_path: Path) -> None:
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy", "cache_dir": tmp_path}
    stores: list[str] = []

    def rank() -> None:
        with PretrainDataLoader(FOLDER, **how) as loader:
            stores.append(loader.store.fingerprint)

    threads = [threading.Thread(target=rank) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 3 and len(set(stores)) == 1
    assert len(list((tmp_path / "stores").iterdir())) == 1


def test_reading_again_is_said_when_it_is_much(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.loaders.stream_run.WORTH_SAYING_TOKENS", 10)
    with StreamRanks(FOLDER, 2, 8) as two:
        two.steps(40)
        state = two.states()[0]
    with caplog.at_level(logging.WARNING), stream(FOLDER) as one:
        one.load_state_dict(state)
    assert "merge_states" in caplog.text


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
