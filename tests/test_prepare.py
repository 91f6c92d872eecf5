"""From raw files to a store: complete, the same every time, and nothing half-made."""

from __future__ import annotations

import csv
import errno
import io
import json
import lzma
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from millstream.api import PrepareReport, prepare
from millstream.errors import LoaderError, SourceError, StoreError, TokenizerError
from millstream.preparation import OnBad
from millstream.stats import Progress
from millstream.storage import ZstdReader, disk
from millstream.store import TokenStore
from millstream.tokens import BPETokenizer, CharTokenizer, find_tokenizer, load_tokenizer

TEXTS = ["the mill by the stream", "grinds <|endoftext|> the grain", "日本語 ünï\n\nand more"]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "b.txt").write_text(TEXTS[0])
    return folder


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path_factory.mktemp("cache")))


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a store but its report, which tells the time it took."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "report" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def kept_aside(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    with path.open("rb") as packed, io.BufferedReader(ZstdReader(packed)) as lines:
        return [json.loads(line) for line in lines]


def test_every_document_arrives_in_order_and_ends_with_the_end_token(raw: Path, tmp_path: Path) -> None:
    report = prepare(raw, tmp_path / "corpus", "bpe:300")

    store = TokenStore(report.path)
    tokenizer = load_tokenizer(report.path)
    documents = [store.document(place).tolist() for place in range(store.documents)]
    assert [tokenizer.decode(ids[:-1]) for ids in documents] == [*TEXTS, TEXTS[0]]
    assert all(ids.count(tokenizer.eos_id) == 1 and ids[-1] == tokenizer.eos_id for ids in documents)
    assert (report.documents, report.tokens, report.files) == (4, len(store), 2)


@pytest.mark.parametrize("output", ["corpus", "corpus.bin"])
def test_the_same_input_gives_the_same_bytes_with_any_number_of_workers(raw: Path, tmp_path: Path, output: str) -> None:
    for place, workers in enumerate((1, 3)):
        (tmp_path / str(place)).mkdir()
        prepare(raw, tmp_path / str(place) / output, "bpe:300", workers=workers)

    assert files_of(tmp_path / "0") == files_of(tmp_path / "1")
    assert len(TokenStore(tmp_path / "0" / output)) > 0


def test_the_manifest_says_what_it_was_made_from(raw: Path, tmp_path: Path) -> None:
    prepare(raw, tmp_path / "corpus", "char")

    manifest = TokenStore(tmp_path / "corpus").manifest
    assert [source["path"] for source in manifest["sources"]] == ["a.jsonl", "b.txt"]
    assert [source["bytes"] for source in manifest["sources"]] == [
        (raw / name).stat().st_size for name in ("a.jsonl", "b.txt")
    ]
    assert manifest["recipe"]["documents_per_source"] == [3, 1]
    assert manifest["tokenizer"]["name"] == "char"
    assert manifest["tokenizer"]["fingerprint"] == load_tokenizer(tmp_path / "corpus").fingerprint


def test_lines_can_be_documents(raw: Path, tmp_path: Path) -> None:
    (raw / "b.txt").write_text("one\ntwo\n\nthree\n")

    report = prepare(raw / "b.txt", tmp_path / "corpus", "char", documents="line")

    assert report.documents == 3
    assert report.skipped == {"empty": 1}


def test_every_kind_of_file_gives_the_same_tokens(tmp_path: Path) -> None:
    table = pyarrow.table({"text": TEXTS})
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.xz").write_bytes(lzma.compress(lines))
    (tmp_path / "c.txt").write_text("<|>".join(TEXTS))
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    pyarrow.feather.write_feather(table, str(tmp_path / "e.feather"))
    with (tmp_path / "f.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    tokenizer = CharTokenizer.train(TEXTS)
    sources = sorted(tmp_path.iterdir())

    reports = [prepare(path, tmp_path / "out" / path.name, tokenizer, separator="<|>") for path in sources]

    assert len({report.fingerprint for report in reports}) == 1
    assert reports[0].documents == len(TEXTS)


def test_no_end_token_when_none_is_wanted(raw: Path, tmp_path: Path) -> None:
    report = prepare(raw / "b.txt", tmp_path / "corpus", CharTokenizer.train(TEXTS), eos=None)

    assert report.tokens == len(TEXTS[0])


def test_the_token_type_follows_the_vocabulary(raw: Path, tmp_path: Path) -> None:
    wide = CharTokenizer([chr(code) for code in range(0x20, 0x20 + 70_000) if not 0xD800 <= code < 0xE000] + ["\n"])

    assert prepare(raw, tmp_path / "narrow", "char").dtype == "uint16"
    assert prepare(raw, tmp_path / "wide", wide).dtype == "uint32"
    assert prepare(raw, tmp_path / "asked", "char", dtype="int32").dtype == "int32"


def test_a_bad_record_stops_everything_and_leaves_nothing(raw: Path, tmp_path: Path) -> None:
    with (raw / "a.jsonl").open("a") as file:
        file.write("not json\n")

    with pytest.raises(SourceError, match=r"a.jsonl:4: not JSON"):
        prepare(raw, tmp_path / "corpus", "char")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


@pytest.mark.parametrize("on_bad", ["skip", "quarantine"])
def test_bad_records_are_left_out_counted_and_told_once_and_kept_aside_when_asked(
    raw: Path, tmp_path: Path, on_bad: OnBad, caplog: pytest.LogCaptureFixture
) -> None:
    with (raw / "a.jsonl").open("ab") as file:
        file.write(b'not json\n{"text": 5}\n\xff\n{"text": "the end"}\n')

    report = prepare(raw, tmp_path / "corpus", "char", on_bad=on_bad)

    assert report.skipped == {"not JSON": 1, "no text in 'text'": 1, "not UTF-8": 1}
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 3
    assert report.documents == 5
    assert TokenStore(report.path).manifest["recipe"]["left_out"] == report.skipped
    if on_bad == "quarantine":
        assert len(kept_aside(report.quarantine)) == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_what_the_tokenizer_cannot_encode_is_left_out_counted_and_kept_aside(
    raw: Path, tmp_path: Path, workers: int
) -> None:
    known = CharTokenizer.train([TEXTS[0], TEXTS[1]])

    report = prepare(raw, tmp_path / "corpus", known, on_bad="quarantine", workers=workers)

    store = TokenStore(report.path)
    assert report.skipped == {"cannot be encoded": 1}
    assert [known.decode(store.document(place)[:-1].tolist()) for place in range(3)] == [*TEXTS[:2], TEXTS[0]]
    assert [store.file_of(place) for place in range(3)] == ["a.jsonl", "a.jsonl", "b.txt"]
    (kept,) = kept_aside(report.quarantine)
    assert (kept["file"], kept["row"], kept["raw"]) == ("a.jsonl", 2, TEXTS[2])
    assert json.loads((raw / "a.jsonl").read_bytes()[kept["start"] : kept["stop"]]) == {"text": TEXTS[2]}


def test_a_quarantine_that_nothing_went_into_is_not_named(raw: Path, tmp_path: Path) -> None:
    with (raw / "a.jsonl").open("a") as file:
        file.write("\n\n")

    report = prepare(raw, tmp_path / "corpus", "char", on_bad="quarantine")

    assert report.skipped == {"blank line": 2}
    assert report.quarantine is None


@pytest.mark.parametrize("name", ["long.jsonl", "long.txt", "lines.txt"])
def test_of_a_record_that_is_too_long_its_beginning_and_its_place_are_kept(tmp_path: Path, name: str) -> None:
    long = "x" * 200_000
    line = json.dumps({"text": long}) if name == "long.jsonl" else long
    (tmp_path / name).write_text(f"{line}\n")
    (tmp_path / "good.txt").write_text("good")
    lines = "line" if name == "lines.txt" else "file"

    report = prepare(
        [tmp_path / name, tmp_path / "good.txt"], tmp_path / "corpus", "char",
        on_bad="quarantine", max_document_bytes=100_000, documents=lines,
    )  # fmt: skip

    assert report.skipped == {"too long": 1}
    (kept,) = kept_aside(report.quarantine)
    assert kept["raw"] == line[: 1 << 16]
    assert (kept["start"], kept["stop"]) == (0, 100_000)


@pytest.mark.parametrize("name", ["workers", "max_document_bytes"])
def test_settings_below_1_are_refused(raw: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(LoaderError, match=f"{name} must be an integer of at least 1"):
        prepare(raw, tmp_path / "corpus", "char", **{name: 0})  # type: ignore[arg-type]


def test_a_full_disk_is_told_with_the_way_on(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", full)

    with pytest.raises(
        StoreError,
        match=r"corpus: No space left on device\n  hint: .*a loader resumes by itself, `prepare` with resume=True",
    ) as caught:
        prepare(raw, tmp_path / "corpus", "char")

    assert ".preparing" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]


def test_a_source_without_a_single_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()

    with pytest.raises(SourceError, match=r": no document was found \(left out: 1 empty\)"):
        prepare(tmp_path / "empty.txt", tmp_path / "corpus", CharTokenizer("ab"))

    assert not (tmp_path / "corpus").exists()


def test_a_text_that_the_tokenizer_cannot_encode_is_named(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"^a.jsonl:1: cannot be encoded: character 't'"):
        prepare(raw, tmp_path / "corpus", CharTokenizer("ab"))


def test_an_old_store_is_replaced_only_when_asked(raw: Path, tmp_path: Path) -> None:
    first = prepare(raw, tmp_path / "corpus", "char")
    (raw / "b.txt").write_text("another text")

    with pytest.raises(StoreError, match="this store exists"):
        prepare(raw, tmp_path / "corpus", "char")
    assert TokenStore(tmp_path / "corpus").fingerprint == first.fingerprint
    second = prepare(raw, tmp_path / "corpus", "char", overwrite=True)

    assert TokenStore(tmp_path / "corpus").fingerprint == second.fingerprint != first.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "raw"]


def test_what_is_not_a_store_is_never_replaced(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        prepare(raw, raw, "char", overwrite=True)

    assert len(files_of(raw)) == 2


def test_progress_is_called_back_and_ends_at_the_total(raw: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []

    report = prepare(raw, tmp_path / "corpus", "char", progress=seen.append)

    assert {step.task for step in seen} == {"learn tokenizer", "prepare"}
    learned = [step for step in seen if step.task == "learn tokenizer"]
    assert learned[-1].done == learned[-1].total == report.bytes
    assert seen[-1].done == seen[-1].total == report.bytes
    assert isinstance(report, PrepareReport)


def test_the_tokenizer_is_found_again_beside_the_store_and_never_another_one(raw: Path, tmp_path: Path) -> None:
    prepare(raw, tmp_path / "corpus", "bpe:300")
    description = TokenStore(tmp_path / "corpus").manifest["tokenizer"]

    found = find_tokenizer(tmp_path / "corpus", description)
    BPETokenizer.train(["other texts"], vocab_size=300).save(tmp_path / "corpus" / "tokenizer.json")

    assert found is not None
    assert found.fingerprint == description["fingerprint"]
    assert find_tokenizer(tmp_path / "corpus", description) is None


HALTED = """
import sys, time
from millstream.api import prepare
def halt(step):
    if step.task == "prepare":
        print(step.done, flush=True)
        while True:  # in short sleeps: a signal that comes just before a long one would not end it
            time.sleep(0.01)
prepare(sys.argv[1], sys.argv[2], "char", progress=halt, documents="line")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_nothing_that_opens_and_the_next_one_works(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "big.txt").write_text(("abc" * 1000 + "\n") * 3000)
    output = tmp_path / "out" / "corpus"
    child = subprocess.Popen(
        [sys.executable, "-c", HALTED, str(tmp_path / "big.txt"), str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, how)
    child.wait()
    child.stdout.close()

    assert child.returncode != 0
    with pytest.raises(StoreError):
        TokenStore(output)
    assert prepare(tmp_path / "big.txt", output, "char", documents="line").documents == 3000
    assert sorted(path.name for path in output.parent.iterdir()) == ["corpus"]


@pytest.mark.parametrize("output", ["corpus", "corpus.bin"])
def test_a_packed_store_holds_the_same_tokens_and_the_report_says_what_it_saves(
    raw: Path, tmp_path: Path, output: str
) -> None:
    (raw / "long.txt").write_text("the mill by the stream " * 10_000)

    plain = prepare(raw, tmp_path / "plain" / output, "char")
    packed = prepare(raw, tmp_path / "packed" / output, "char", compress=True)

    assert packed.fingerprint == plain.fingerprint
    assert TokenStore(packed.path)[:].tolist() == TokenStore(plain.path)[:].tolist()
    assert packed.details["storage"]["ratio"] > 10
    assert packed.details["storage"]["token_bytes"] == plain.details["storage"]["token_bytes"]


def test_a_keyword_that_prepare_does_not_have_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'textfield'"):
        prepare(tmp_path / "nothing", tmp_path / "corpus", textfield="text")  # type: ignore[call-arg]
