"""Bad input of every kind, from the file to the store: an error that says where, or left out, counted and kept aside.

Beside each bad file lie two good ones; whatever the policy, nothing else than what is bad is lost.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from millstream.api import PrepareReport, prepare
from millstream.errors import SourceError
from millstream.sources import discover
from millstream.storage import ZstdReader
from millstream.store import TokenStore
from millstream.tokens import BPETokenizer

TOKENIZER = BPETokenizer.train(["the mill by the stream"], vocab_size=260)
LINES = "".join(json.dumps({"text": f"line {number} of the bad file"}) + "\n" for number in range(2000)).encode()
BROKEN = b'{"text": "before"}\n%s\n{"text": "behind"}\n'


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path_factory.mktemp("cache")))


def parquet() -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "two"]}), written)
    return written.getvalue()


def tar(*names: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 6
            archive.addfile(member, io.BytesIO(b"inside"))
    return written.getvalue()


@dataclass(frozen=True)
class Bad:
    """A bad file, what is said about it, and what of it is good all the same."""

    name: str
    content: bytes
    reason: str
    found: str
    kept: list[str] | None = None


BINARY = bytes(range(128, 256)) * 4
AROUND = ["before", "behind"]
KINDS = {
    "truncated gzip": Bad(
        "m.jsonl.gz", gzip.compress(LINES)[:-900], "truncated", "the gzip data ends in the middle; .* ends at byte"
    ),
    "truncated zstd": Bad(
        "m.jsonl.zst", zstandard.compress(LINES)[:-90], "truncated", "the zstd data ends in the middle; .* ends at byte"
    ),
    "truncated Parquet": Bad("m.parquet", parquet()[:-40], "damaged", "Parquet magic bytes not found", []),
    "Parquet without its end": Bad("m.parquet", parquet()[:200], "damaged", "", []),
    "binary named .jsonl": Bad("m.jsonl", BINARY, "not UTF-8", "byte 0 of the file is 0x80", []),
    "a cut line": Bad(
        "m.jsonl", b'{"text": "before"}\n{"text": "cut of', "not JSON", "Unterminated string", ["before"]
    ),
    "no text field": Bad("m.jsonl", BROKEN % b'{"body": "x"}', "no text in 'text'", "it has 'body'", AROUND),
    "a number": Bad("m.jsonl", BROKEN % b"17", "not an object", "a JSON number", AROUND),
    "a number for a text": Bad("m.jsonl", BROKEN % b'{"text": 17}', "no text in 'text'", "it is a JSON number", AROUND),
    "mixed encodings": Bad(
        "m.jsonl", BROKEN % '{"text": "grün"}'.encode("latin-1"), "not UTF-8", "byte 31 of the file is 0xfc", AROUND
    ),
    "damaged UTF-16": Bad(
        "m.txt", b"\xff\xfea\x00\x00\xd8b\x00", "not UTF-16-LE", "what stands at byte 1 of the text", []
    ),
    "a line of NULs": Bad("m.jsonl", BROKEN % bytes(9), "not JSON", "", AROUND),
    "a zip bomb": Bad("m.txt.gz", gzip.compress(bytes(64 << 20)), "expands too far", r"max_expansion=1,000 times", []),
    "a tar name with ..": Bad(
        "m.tar", tar("a.txt", "../../b.txt", "c.txt"), "unsafe name", r"'../../b.txt' leads out", ["inside", "inside"]
    ),
    "an absolute tar name": Bad(
        "m.tar", tar("a.txt", "/etc/b.txt"), "unsafe name", "'/etc/b.txt' leads out", ["inside"]
    ),
    "a truncated tar": Bad(
        "m.tar", tar("a.txt", "b.txt")[:1200], "truncated", "ends in the middle of a member", ["inside"]
    ),
}


def folder_with(bad: Bad, folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("the first good text")
    (folder / bad.name).write_bytes(bad.content)
    (folder / "z.jsonl").write_text('{"text": "the last good text"}\n')
    return folder


def texts_of(report: PrepareReport) -> list[str]:
    with TokenStore(report.path) as store:
        return [TOKENIZER.decode(store.document(place)[:-1].tolist()) for place in range(store.documents)]


def kept_aside(report: PrepareReport) -> list[dict[str, Any]]:
    assert report.quarantine is not None
    with report.quarantine.open("rb") as packed, io.BufferedReader(ZstdReader(packed)) as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_file_row_what_was_found_and_what_to_do(kind: str, tmp_path: Path) -> None:
    bad = KINDS[kind]

    with pytest.raises(SourceError, match=rf"^{bad.name}:\d+: {bad.reason}: .*{bad.found}") as caught:
        prepare(folder_with(bad, tmp_path / "raw"), tmp_path / "corpus", TOKENIZER)

    assert caught.value.hint is not None
    assert 'on_bad="skip"' in caught.value.hint
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(("on_bad", "workers"), [("skip", 1), ("quarantine", 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_bad_is_left_out_counted_and_kept_aside_and_nothing_else(
    kind: str, on_bad: Any, workers: int, tmp_path: Path
) -> None:
    bad = KINDS[kind]

    report = prepare(folder_with(bad, tmp_path / "raw"), tmp_path / "corpus", TOKENIZER, on_bad=on_bad, workers=workers)

    first, *middle, last = texts_of(report)
    assert report.skipped == {bad.reason: 1}
    assert (first, last) == ("the first good text", "the last good text")
    if bad.kept is not None:
        assert middle == bad.kept
    else:
        assert middle == [json.loads(line)["text"] for line in LINES.splitlines()[: len(middle)]]
    if on_bad == "quarantine":
        kept = kept_aside(report)
        assert [(each["file"], each["reason"]) for each in kept] == [(bad.name, bad.reason)]
        assert kept[0]["row"] == len(middle) or bad.kept == AROUND or "tar" in kind
        assert all({"start", "stop", "found", "raw"} <= set(each) for each in kept)


@pytest.mark.parametrize("on_bad", ["error", "skip", "quarantine"])
@pytest.mark.parametrize(
    ("name", "content", "skipped"),
    [
        ("m.txt", b"", {"empty": 1}),
        ("m.txt.gz", gzip.compress(b"", mtime=0), {"empty": 1}),
        ("m.txt", b"\xef\xbb\xbf", {"empty": 1}),
        ("m.jsonl", b"", {}),
        ("m.csv", b"", {}),
        ("m.tar", b"", {}),
    ],
)
def test_an_empty_file_is_never_an_error(
    name: str, content: bytes, skipped: dict[str, int], on_bad: Any, tmp_path: Path
) -> None:
    bad = Bad(name, content, "", "")

    report = prepare(folder_with(bad, tmp_path / "raw"), tmp_path / "corpus", TOKENIZER, on_bad=on_bad)

    assert (report.documents, report.skipped) == (2, skipped)


def test_nuls_in_a_text_are_characters_of_it(tmp_path: Path) -> None:
    bad = Bad("m.jsonl", b'{"text": "a\\u0000b"}\n', "", "")
    (tmp_path / "n.txt").write_bytes(b"a\0b")

    report = prepare([folder_with(bad, tmp_path / "raw"), tmp_path / "n.txt"], tmp_path / "corpus", TOKENIZER)

    assert texts_of(report).count("a\0b") == 2


@pytest.mark.parametrize("on_bad", ["error", "skip", "quarantine"])
def test_loops_of_links_are_passed_over_and_counted(on_bad: Any, tmp_path: Path) -> None:
    raw = folder_with(Bad("m.txt", b"the middle", "", ""), tmp_path / "raw")
    (raw / "loop").symlink_to(raw)
    (raw / "self.txt").symlink_to(raw / "self.txt")

    report = prepare(raw, tmp_path / "corpus", TOKENIZER, on_bad=on_bad)

    assert report.documents == 3
    assert report.skipped == {"folder reached twice": 1, "broken link": 1}


def gone(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"text": "more"}\n')


def rewritten(path: Path) -> None:
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(1, 1))


Change = Callable[[Path], None]
CHANGES: dict[Change, str] = {gone: "gone", grown: "changed", rewritten: "changed"}


@pytest.fixture(params=["m.jsonl", "m.txt", "m.jsonl.gz", "m.parquet"])
def good(request: pytest.FixtureRequest) -> Bad:
    contents = {
        "m.jsonl": b'{"text": "the middle"}\n',
        "m.txt": b"the middle",
        "m.jsonl.gz": gzip.compress(b'{"text": "the middle"}\n'),
        "m.parquet": parquet(),
    }
    return Bad(request.param, contents[request.param], "", "")


@pytest.mark.parametrize(("change", "tokenizer"), [(gone, "char"), (grown, TOKENIZER), (rewritten, "char")])
def test_a_file_that_is_another_one_when_it_is_read_is_never_read_instead(
    good: Bad, change: Change, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = folder_with(good, tmp_path / "raw")
    whole = prepare(raw, tmp_path / "before", tokenizer, cache=False)

    def and_then(*arguments: Any, **settings: Any) -> Any:
        found = discover(*arguments, **settings)
        change(raw / good.name)
        return found

    content = (raw / good.name).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("millstream.loaders.growing.raw_files.discover", and_then)
        with pytest.raises(SourceError, match=rf"^{good.name}:1: {CHANGES[change]}: the file .*\n  hint: ") as caught:
            prepare(raw, tmp_path / "corpus", tokenizer)
        (raw / good.name).write_bytes(content)
        report = prepare(raw, tmp_path / "corpus", tokenizer, on_bad="quarantine")
    (raw / good.name).write_bytes(content)
    again = prepare(raw, tmp_path / "again", tokenizer)

    assert 'on_bad="skip"' in str(caught.value.hint)
    assert report.skipped == {CHANGES[change]: 1}
    assert report.documents == 2
    assert [(each["file"], each["row"]) for each in kept_aside(report)] == [(good.name, 0)]
    assert again.fingerprint == whole.fingerprint, "what a file was for a moment is not found in the cache"


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_not_used(
    good: Bad, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = folder_with(good, tmp_path / "raw")
    pread, inode, waiting = os.pread, (raw / good.name).stat().st_ino, [change]

    def meanwhile(handle: int, size: int, start: int) -> bytes:
        data = pread(handle, size, start)
        if waiting and os.fstat(handle).st_ino == inode:
            waiting.pop()(raw / good.name)
        return data

    monkeypatch.setattr(os, "pread", meanwhile)

    report = prepare(raw, tmp_path / "corpus", TOKENIZER, on_bad="skip", workers=1)

    assert report.documents == 2
    assert report.skipped == {CHANGES[change]: 1}


@pytest.mark.parametrize("tokenizer", [TOKENIZER, "char"], ids=["given", "learned"])
def test_a_file_that_may_not_be_read_is_one_bad_record_and_read_when_it_may(
    good: Bad, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = folder_with(good, tmp_path / "raw")
    opened = os.open

    def denied(path: Any, *arguments: Any, **settings: Any) -> int:
        if Path(path).name == good.name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        with pytest.raises(SourceError, match=rf"^{good.name}:1: unreadable: .*Permission denied\n  hint: look at"):
            prepare(raw, tmp_path / "corpus", tokenizer)
        report = prepare(raw, tmp_path / "corpus", tokenizer, on_bad="quarantine")

    assert (report.documents, report.skipped) == (2, {"unreadable": 1})
    assert [(each["file"], each["reason"]) for each in kept_aside(report)] == [(good.name, "unreadable")]
    assert prepare(raw, tmp_path / "again", tokenizer).documents > 2
