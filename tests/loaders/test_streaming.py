"""Streams of raw files: settings, errors, states and the face they share with every loader."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forks import in_child
from laws import examples
from loaders.corpora import LENGTH, TOKENIZER, corpora, corpus, cuts, epoch_of, parts_of, ranks_of, stream
from loaders.samples import follows_its_hint, ran
from millstream import (
    BudgetError,
    CharTokenizer,
    ClosedError,
    DataLoader,
    LoaderError,
    LossWarning,
    PretrainDataLoader,
    SourceError,
    TokenStore,
    TrainingBatch,
    load,
    per_row,
    prepare,
)
from millstream.loaders.growing.stream import AHEAD, StreamSpan
from millstream.sources import FileFailure, file_digests, read_at

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


def test_tokens_tables_and_impossible_settings_are_refused(tmp_path: Path) -> None:
    prepare(FOLDER, tmp_path / "store", TOKENIZER, cache=False)
    how: dict[str, Any] = {"chunk_size": LENGTH, "streaming": True}
    for wrong, message in (
        ({"path": tmp_path / "store", "tokenizer": TOKENIZER}, "tokens, not raw files"),
        ({"path": FOLDER}, "needs a tokenizer"),
        ({"path": FOLDER, "tokenizer": TOKENIZER, "documents": "row"}, 'no documents="row"'),
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


def test_batches_of_another_size_are_cut_from_the_same_rows() -> None:
    with stream(FOLDER, batch_size=6) as one, stream(FOLDER, batch_size=1) as other:
        got = [row for size in (2, 5, 6, 1) for row in one.get_batch(size).input_ids.tolist()]
        assert got == [row for _ in got for row in other.next().input_ids.tolist()]
        assert one.step == 4 and len(one.explain(1)) == 5


def test_closing_is_prompt_while_parts_are_made_and_while_a_thread_waits() -> None:
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
    ended = threading.Event()

    def slow(record: Any) -> Any:
        ended.wait(5)
        return record

    with stream(FOLDER, recipe=[slow], cut=1 << 20, threads=1) as loader:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            loader.next()
        assert time.monotonic() - began < 2
        ended.set()


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


def test_raw_paths_are_prepared_once_and_then_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy", "cache_dir": tmp_path}
    prepare(FOLDER, tmp_path / "store", TOKENIZER, cache=False)
    with PretrainDataLoader(path=FOLDER, **how) as raw, load(tmp_path / "store", chunk_size=LENGTH) as mapped:
        assert isinstance(mapped, PretrainDataLoader)
        assert raw.store.fingerprint == mapped.store.fingerprint
        assert raw.next().input_ids.tolist() == mapped.next().input_ids.tolist()
    monkeypatch.setattr("millstream.preparation.prepare_store", lambda *_: pytest.fail("it was prepared again"))
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


def test_bounded_batches_that_are_held_fill_the_budget_and_the_run_goes_on_when_they_are_released() -> None:
    """Windows and batches share it. A step that found no room is given later; larger ones take smaller ones' room."""
    folder, budget = corpus((("jsonl", (400,) * 20),)), 400_000
    how: dict[str, Any] = {"cut": 100, "threads": 1}
    with stream(folder, batch_size=8, **how) as loader:
        expected = [loader.next().input_ids.tolist() for _ in range(500)]
    with stream(folder, batch_size=8, memory_budget=budget, prefetch=1000, **how) as loader:
        kept: list[TrainingBatch] = []
        with pytest.raises(BudgetError, match="in use by your code") as caught:
            while len(kept) < 500:
                kept.append(loader.next())
        assert "release" in follows_its_hint(caught.value)
        memory = loader.get_profiling_results()["memory"]
        assert 2 < len(kept) < 500 and sum(memory.values()) <= budget
        assert loader.step == len(kept)
        got = [batch.input_ids.tolist() for batch in kept]
        for batch in kept:
            batch.release()
        got.append(loader.next().input_ids.tolist())
        assert got == expected[: len(got)]
        rows = len(kept) - 1  # an eighth of what all that were kept have
        assert loader.get_batch(rows).metadata["rows"] == rows
        with pytest.raises(BudgetError, match=r"half of it for batches.* two are needed") as caught:
            loader.get_batch(rows * 16)
        least = re.search(r"memory_budget=(\d+) or more", follows_its_hint(caught.value))
    assert least is not None
    with stream(folder, batch_size=rows * 16, memory_budget=int(least[1]), **how) as loader:
        loader.next()


@pytest.mark.parametrize("on_bad", ["skip", "quarantine"])
def test_honest_what_is_left_out_and_replaced_is_counted(tmp_path: Path, on_bad: str) -> None:
    """By the names that the loader of a prepared store has for it."""
    path, good = tmp_path / "a.jsonl", "".join(json.dumps({"text": f"{n} fine words"}) + "\n" for n in range(5))
    path.write_bytes(good.encode() + b'{"txt": 1}\n{"text": ""}\n{"text": "caf\xe9"}\n' + good.encode())
    prepare(path, tmp_path / "store", TOKENIZER, on_bad="skip", on_invalid="replace", cache=False)
    with PretrainDataLoader(tmp_path / "store", chunk_size=LENGTH, framework="numpy") as loader:
        expected = loader.losses
    assert {name.split(":")[0] for name in expected} == {"cut_tokens", "tail_tokens", "left_out", "changed"}
    shared: dict[str, Any] = {"cut": 1 << 20, "reading": {"on_invalid": "replace"}, "batch_size": 1}
    with stream(path, on_bad=on_bad, cache_dir=tmp_path / "cache", **shared) as loader:
        loader.next()
        assert loader.losses == expected
        loader.prefetch(9)
        loader.next()
        assert loader.losses == expected
    kept = list((tmp_path / "cache").rglob("*.quarantine.jsonl.zst"))
    assert len(kept) == (on_bad == "quarantine")


def test_kept_aside_records_need_a_folder() -> None:
    with pytest.raises(SourceError, match="needs a folder") as refused:
        stream(FOLDER, on_bad="quarantine")
    assert "cache_dir" in follows_its_hint(refused.value)


def test_parquet_is_cut_by_row_groups(tmp_path: Path) -> None:
    pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    table = pyarrow.table({"text": [f"{n} words in a row" for n in range(100)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    with stream(tmp_path, cut=150, batch_size=8) as loader:
        loader.next()
        origins = loader.explain(0)
        assert loader.stream is not None and loader.stream.units.count >= 10
        assert loader.stream.units.from_front == []
    for origin in origins:
        text = ""
        for span in origin.spans:
            assert isinstance(span, StreamSpan) and span.first_byte is None
            text += f"{span.row} words in a row<|endoftext|>"[slice(span.start, None)]
        assert origin.text is not None and text.startswith(origin.text.removesuffix("<|endoftext|>"))


def test_a_recipe_gives_the_tokens_that_prepare_gives(tmp_path: Path) -> None:
    recipe = [{"name": "length", "min_words": 5}]
    report = prepare(FOLDER, tmp_path / "store", TOKENIZER, recipe=recipe, cache=False)
    with stream(FOLDER, recipe=recipe) as loader:
        rows = len(epoch_of(loader))
        assert rows == (report.tokens - 1) // LENGTH
        assert any("length" in reason for reason in loader.losses)
        assert loader.losses["tail_tokens:data"] == report.tokens - 1 - rows * LENGTH


def test_the_first_batch_reads_only_the_first_windows(tmp_path: Path) -> None:
    """So it comes as soon on a corpus of any size: a few units, and those of the windows that are made ahead."""
    line = json.dumps({"text": "so many words " * 100}) + "\n"
    (tmp_path / "a.jsonl").write_text(line * 10_000)
    with stream(tmp_path / "a.jsonl", cut=1 << 14, batch_size=8, prefetch=1, threads=1) as loader:
        loader.next()
        assert loader.stream is not None and loader.stream.units.count > 800
        source: Any = loader._run.growing.sources["data"]
        windows = source.windows
        assert windows.ready[0].window == 0
        most = sum(len(windows.plan.units_of(window)) for window in range(1 + 2 * AHEAD))  # in use, and made ahead
        assert parts_of(loader)["made"] <= most < 100


@pytest.mark.parametrize("ranks", [3, 4])
def test_random_transforms_of_rows_are_keyed_by_the_row(ranks: int) -> None:
    @per_row
    def noise(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        row["input_ids"][...] = rng.integers(0, 1000, row["input_ids"].shape)
        return row

    how: dict[str, Any] = {"transforms": [noise]}
    with ranks_of(FOLDER, 1, 12, **how) as one, ranks_of(FOLDER, ranks, 12, **how) as several:
        assert one.steps(3) == several.steps(3)


def test_a_budget_that_cannot_work_says_how_much_is_needed() -> None:
    with pytest.raises(BudgetError, match="memory_budget is 1,000 bytes") as refused:
        stream(FOLDER, cut=100, memory_budget=1000, threads=1)
    assert "memory_budget=" in follows_its_hint(refused.value)


def test_windows_in_memory_that_outgrow_the_budget_are_an_error_and_on_a_disk_they_do_not_count(tmp_path: Path) -> None:
    folder = corpus((("jsonl", (400,) * 200),))
    how: dict[str, Any] = {"cut": 2000, "memory_budget": 100_000, "threads": 1, "batch_size": 2}
    with stream(folder, **how) as loader, pytest.raises(BudgetError, match="windows of a stream take") as refused:
        while True:
            loader.next()
    assert "cache_dir" in follows_its_hint(refused.value)
    with stream(folder, cache_dir=tmp_path, **how) as loader:
        for _ in range(200):
            loader.next()
        assert "windows" not in loader.get_profiling_results()["memory"]


def test_bounded_windows_hold_what_the_budget_allows() -> None:
    folder = corpus((("jsonl", (400,) * 200),))
    with stream(folder, cut=2000, memory_budget="1MB", threads=2, prefetch=1000, batch_size=64) as loader:
        most = 0
        for _ in range(50):
            loader.next()
            memory = loader.get_profiling_results()["memory"]
            most = max(most, memory["windows"])
            assert sum(memory.values()) < 1_000_000

    assert most > 0


@given(
    folder=corpora, cut=cuts, labels=st.sampled_from(["next", "same"]), documents=st.sampled_from(["attend", "isolate"])
)
@examples(12)
def test_in_file_order_a_stream_gives_the_rows_of_a_store(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, cut: int, labels: Any, documents: Any
) -> None:
    """Ids, labels, positions and segments: column for column what the engine makes of the prepared data."""
    how: dict[str, Any] = {"chunk_size": LENGTH, "batch_size": 3, "labels": labels, "documents": documents}
    how |= {"shuffle": False, "framework": "numpy"}
    store = tmp_path_factory.mktemp("prepared") / "store"
    prepare(folder, store, TOKENIZER, workers=1, cache=False)
    assume(len(TokenStore(store)) > LENGTH)
    with stream(folder, cut=cut, **how) as raw, PretrainDataLoader(store, **how) as mapped:
        for expected, batch in zip(mapped, raw, strict=True):
            batch.validate()
            assert set(batch.keys()) == set(expected.keys())
            for name in ("input_ids", "labels", "position_ids", "cu_seqlens"):
                assert np.array_equal(batch[name], expected[name])
            assert batch.max_seqlen == expected.max_seqlen


@pytest.mark.parametrize("named", ["memory:", Path("memory://")], ids=repr)
def test_what_looks_like_memory_is_no_folder(named: str | Path) -> None:
    with pytest.raises(LoaderError, match="is no folder") as refused:
        stream(FOLDER, cache_dir=named)
    assert "memory://" in follows_its_hint(refused.value)


def test_a_cache_in_memory_is_for_streams_alone() -> None:
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy", "cache_dir": "memory://"}
    with pytest.raises(LoaderError, match="prepared as a whole") as refused:
        PretrainDataLoader(FOLDER, **how)
    assert "streaming=True" in follows_its_hint(refused.value)
    with stream(FOLDER, cache_dir="memory://") as one, stream(FOLDER) as other:
        assert one.next().input_ids.tolist() == other.next().input_ids.tolist()
        assert one.get_profiling_results()["memory"]["windows"] > 0


def test_a_file_that_is_gone_is_never_skipped(tmp_path: Path) -> None:
    """Rows of other ranks and of later epochs would be others."""
    for number in range(6):
        write_lines(tmp_path / f"{number}.jsonl", [json.dumps({"text": f"words of file {number}"})] * 40)
    with stream(tmp_path, on_bad="skip") as loader:
        (tmp_path / "3.jsonl").unlink()
        with pytest.raises(SourceError, match=r"3\.jsonl: gone") as refused:
            list(loader)
        assert "restore the file" in follows_its_hint(refused.value)


def test_a_closed_stream_says_that_it_explains_no_more(tmp_path: Path) -> None:
    with stream(FOLDER) as loader:
        loader.next()
        document = loader.explain(0)[0].spans[0].document
    state = loader.state_dict()
    assert state["step"] == 1
    for ask in (lambda: loader.explain(0), lambda: loader.steps_of(document)):
        with pytest.raises(ClosedError, match="closed loader") as refused:
            ask()
        assert "before close()" in follows_its_hint(refused.value)


def test_files_that_cannot_be_read_are_told_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when they are told apart."""
    write_lines(tmp_path / "a.jsonl", [json.dumps({"text": "some of the words"})] * 9)
    failing = [True]
    read = read_at

    def refused(*given: Any) -> bytes:
        if failing:
            raise FileFailure("unreadable", "it cannot be opened: Permission denied")
        return read(*given)

    monkeypatch.setattr(file_digests, "read_at", refused)
    with stream(tmp_path / "a.jsonl", batch_size=1) as loader:
        unreadable = loader.state_dict()["data"]["data"]["fingerprint"]
        failing.clear()
    with stream(tmp_path / "a.jsonl", batch_size=1) as loader:
        assert loader.state_dict()["data"]["data"]["fingerprint"] != unreadable


@pytest.mark.parametrize("cache_dir", [None, "memory://"])
def test_a_limit_of_a_cache_that_there_is_not_is_refused(cache_dir: str | None) -> None:
    with pytest.raises(LoaderError, match="cache_limit bounds a folder") as refused:
        stream(FOLDER, cache_dir=cache_dir, cache_limit="1GB")
    assert "cache_dir=" in follows_its_hint(refused.value)


def test_honest_files_that_are_passed_over_are_counted_as_prepare_counts_them(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [json.dumps({"text": "some of the words"})] * 9)
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    (folder / "picture.png").write_bytes(b"")
    skipped = prepare(folder, tmp_path / "store", TOKENIZER, cache=False).skipped
    assert skipped == {"broken link": 1, "unknown kind": 1}
    with warnings.catch_warnings(), stream(folder) as loader:
        warnings.simplefilter("error")  # no record is left out
        assert list(loader)
        assert loader.losses.items() >= {f"left_out:data:{reason}": count for reason, count in skipped.items()}.items()


def test_honest_what_a_stream_leaves_out_is_warned_of_once_on_one_rank(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [json.dumps({"text": "some of the words"}), "{broken", ""] * 40)
    for rank, count in ((0, 1), (1, 0)):
        with (
            warnings.catch_warnings(record=True) as caught,
            stream(path, on_bad="skip", rank=rank, world_size=2, cache_dir=tmp_path / "cache") as loader,
        ):
            warnings.simplefilter("always")
            for _ in range(2):
                assert list(loader)
        told = [each for each in caught if issubclass(each.category, LossWarning)]
        assert len(told) == count
        assert all("not JSON" in str(each.message) and each.filename == __file__ for each in told)


WORDS = [
    ("a.jsonl", {"txt": "words"}, {}, 'reading={"text_field": …}'),
    ("a.jsonl", {"text": "long " * 20}, {"max_document_bytes": 20}, 'reading={"max_document_bytes": …}'),
    ("a.txt", "long " * 20, {"max_document_bytes": 20}, 'reading={"documents": "line"}'),
    ("a.txt", b"caf\xe9", {}, 'reading={"encoding": …} or reading={"on_invalid": "replace"}'),
    ("a.unknown", "", {}, 'reading={"include": …} or reading={"format": …}'),
]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("name", "content", "how", "hint"), WORDS, ids=[each[3] for each in WORDS])
def test_hints_are_in_the_words_of_the_loader(
    tmp_path: Path, name: str, content: Any, how: dict[str, Any], hint: str, streaming: bool
) -> None:
    data = json.dumps(content) if isinstance(content, dict) else content
    (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    shared: dict[str, Any] = {"tokenizer": TOKENIZER, "chunk_size": LENGTH, "framework": "numpy", "reading": how}
    with pytest.raises(SourceError) as refused, PretrainDataLoader(tmp_path, streaming=streaming, **shared) as loader:
        loader.next()
    assert hint in follows_its_hint(refused.value) and hint in str(refused.value)
