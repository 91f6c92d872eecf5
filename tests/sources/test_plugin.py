"""Formats of other people: known once their package is installed, or by one call; under the same rules as ours."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from millstream import CharTokenizer, prepare
from millstream.errors import SourceError
from millstream.sources import BadRecord, Reading, RecordFormat, formats, register_format
from sources.samples import PACKERS, judge, see, write

ROOT = Path(__file__).parents[2]
PAGES = ["the mill", "the strēam", "the end"]
USING_IT = """
import sys
import millstream
report = millstream.prepare(sys.argv[1], sys.argv[2], "char")
store = millstream.TokenStore(report.path)
print(report.documents, report.skipped)
"""


def wet(kind: str, body: bytes) -> bytes:
    return f"WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"


def test_an_installed_plugin_is_used_without_being_imported(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    package = ROOT / "examples" / "millstream-warc"
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", tmp_path / "site", package], check=True)
    members = [wet("warcinfo", b"about"), *(wet("conversion", page.encode()) for page in PAGES)]
    (tmp_path / "crawl.warc.wet.gz").write_bytes(b"".join(map(gzip.compress, members)))

    done = subprocess.run(
        [sys.executable, "-c", USING_IT, tmp_path / "crawl.warc.wet.gz", tmp_path / "corpus"],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "3 {}"


class Fortunes(RecordFormat):
    name, suffixes = "fortunes", (".fortunes",)

    def records(self, stream: BinaryIO, reading: Reading) -> Iterator[str | bytes | BadRecord]:
        for line in stream:
            bad = BadRecord("unlucky", 0, -1, -1, "thirteen", raw=line)
            yield bad if line == b"13\n" else line.rstrip(b"\n")


@pytest.fixture
def fortunes() -> Iterator[None]:
    register_format(Fortunes())
    yield
    del formats._formats["fortunes"]


@pytest.mark.usefixtures("fortunes")
@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("chunk_bytes", [1, 8, 1 << 20])
def test_a_registered_format_gives_the_same_records_whatever_the_chunks(
    ending: str, chunk_bytes: int, tmp_path: Path
) -> None:
    raw = b"luck\n\n13\ncaf\xe9\nrain\n" + b"x" * 40

    seen = see(
        write(tmp_path / ("a.fortunes" + ending), PACKERS[ending](raw)), chunk_bytes=chunk_bytes, max_document_bytes=30
    )

    assert [(record.row, record.text) for record in seen.records] == [(0, "luck"), (4, "rain")]
    assert [(bad.row, bad.reason) for bad in seen.bad] == [(2, "unlucky"), (3, "not UTF-8"), (5, "too long")]
    assert seen.skipped == {"empty": 1}


@pytest.mark.usefixtures("fortunes")
def test_a_cut_file_of_a_registered_format_is_one_bad_record(tmp_path: Path) -> None:
    raw = gzip.compress(b"luck\n" * 1000 + os.urandom(1000).replace(b"\n", b""))
    file = write(tmp_path / "a.fortunes.gz", raw[:-500])

    with pytest.raises(SourceError, match=r"truncated"):
        judge(file, on_invalid="replace")
    assert see(file, again=False).reasons[-1] == "truncated"


class Failing(Fortunes):
    name, suffixes = "failing", (".failing",)

    def records(self, stream: BinaryIO, reading: Reading) -> Iterator[Any]:
        for line in stream:
            if line == b"boom\n":
                raise RuntimeError("boom")
            odd: dict[bytes, Any] = {b"5\n": 5, b"half\n": "\ud800"}
            yield odd.get(line, line.rstrip(b"\n"))


@pytest.fixture
def failing() -> Iterator[None]:
    register_format(Failing())
    yield
    del formats._formats["failing"]


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("tokenizer", ["char", CharTokenizer("luckrain")], ids=["learned", "given"])
@pytest.mark.parametrize(
    ("row", "reason", "found"),
    [
        ("boom", "the format failed", "'failing' raised RuntimeError: boom"),
        ("5", "not text", "the format 'failing' gave a record of type int"),
        ("half", "not Unicode", "the format 'failing' gave a str"),
    ],
)
def test_what_a_registered_format_does_wrong_is_a_bad_record_that_names_file_and_format(
    tmp_path: Path, tokenizer: object, row: str, reason: str, found: str
) -> None:
    file = write(tmp_path / "a.failing", f"luck\n{row}\nrain\n".encode())
    with pytest.raises(SourceError, match=rf"a\.failing.*{reason}: .*{found}") as caught:
        prepare(file.path, tmp_path / "refused", tokenizer)
    assert caught.value.hint

    for on_bad in ("skip", "quarantine"):
        report = prepare(file.path, tmp_path / on_bad, tokenizer, on_bad=on_bad)
        assert (report.documents, report.skipped) == (1 if row == "boom" else 2, {reason: 1})


def test_a_format_of_the_name_of_one_of_ours_replaces_it(tmp_path: Path) -> None:
    class Lines(Fortunes):
        name, suffixes = "jsonl", (".jsonl",)

    register_format(Lines())
    try:
        assert see(write(tmp_path / "a.jsonl", b"luck\n")).records[0].text == "luck"
    finally:
        del formats._formats["jsonl"]


def test_a_class_is_registered_by_its_decorator_and_stays_a_class(tmp_path: Path) -> None:
    try:

        @register_format
        class Decorated(Fortunes):
            name, suffixes = "decorated", (".deco",)

        assert isinstance(Decorated, type)
        seen = see(write(tmp_path / "a.deco", b"luck\nrain\n"))
        assert [record.text for record in seen.records] == ["luck", "rain"]
    finally:
        formats._formats.pop("decorated", None)


class Choosy(Fortunes):
    name = "choosy"

    def __init__(self, choice: int) -> None:
        self.choice = choice


class Unfinished(RecordFormat):
    name, suffixes = "unfinished", (".half",)


class Ending(Fortunes):
    suffixes = ".fortunes"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Choosy, "cannot be made of Choosy.*choice"),
        (Unfinished, "cannot be made of Unfinished.*abstract"),
        (Ending, "suffixes='.fortunes'"),
        (Ending(), "suffixes='.fortunes'"),
        (object(), "no format: it has no name, suffixes, chunks, read, raw"),
        (str, "no format"),
        ("jsonl", "no format"),
    ],
)
def test_what_is_no_format_is_refused_with_a_hint_and_not_registered(wrong: Any, message: str) -> None:
    before = dict(formats._formats)
    with pytest.raises(SourceError, match=message) as caught:
        register_format(wrong)
    assert caught.value.hint
    assert formats._formats == before


def test_a_plugin_that_cannot_be_loaded_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        name, value = "broken", "nowhere:Format"

        def load(self) -> None:
            raise ImportError("no module named nowhere")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Broken()])
    formats._plugins.cache_clear()
    try:
        assert "jsonl" in formats.known_formats()
    finally:
        formats._plugins.cache_clear()

    assert "the format plugin 'broken' (nowhere:Format) cannot be loaded: no module named nowhere" in caplog.text


@pytest.mark.parametrize("suffix", ["txt", ".TXT"])
def test_an_ending_that_no_file_can_match_is_refused(suffix: str) -> None:
    format = Fortunes()
    format.suffixes = (suffix,)  # type: ignore[misc]

    with pytest.raises(SourceError, match="is no ending"):
        register_format(format)
