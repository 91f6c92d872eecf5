"""A file that changes, disappears or cannot be read is a bad record that says so; other data is never read instead."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.errors import SourceError
from millstream.preparation import BadRecords
from millstream.sources import ChunkRead, FoundFile, Reading, format_named, read_file
from sources.samples import PACKERS, judge, see, write

READING = Reading(documents="line", chunk_bytes=100)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more\n")


def shrink(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:150])


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


CHANGES = [grow, shrink, rewrite, replace]


@pytest.fixture
def file(tmp_path: Path) -> FoundFile:
    return write(tmp_path / "a.txt", b"a line of text\n" * 40)


def assert_refused(read: ChunkRead, file: FoundFile, message: str) -> None:
    """Nothing of a file that fails is used, and with on_bad="error" an error says why."""
    assert not len(read.block)
    with pytest.raises(SourceError, match=message):
        BadRecords("error").take(file.name, read.bad)


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_two_chunks_is_a_bad_record(
    file: FoundFile, change: Callable[[Path], None]
) -> None:
    reads = read_file(file, READING)
    next(reads)
    change(file.path)

    assert_refused(next(reads), file, r"a.txt:\d+: changed: the file is not as it was found")


def test_a_file_that_disappears_is_a_bad_record(file: FoundFile) -> None:
    reads = read_file(file, READING)
    next(reads)
    file.path.unlink()

    assert_refused(next(reads), file, r"a.txt:\d+: gone: the file was there when the files were listed")


@pytest.mark.parametrize("change", CHANGES[:3])
def test_what_is_read_of_a_file_while_it_changes_is_not_used(
    file: FoundFile, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread

    def meanwhile(handle: int, size: int, start: int) -> bytes:
        monkeypatch.setattr(os, "pread", pread)
        data = pread(handle, size, start)
        change(file.path)
        return data

    chunk = next(iter(format_named("text").chunks(file, READING)))
    monkeypatch.setattr(os, "pread", meanwhile)

    assert_refused(format_named("text").read(chunk, file, READING), file, r"a.txt:1: changed: ")


@pytest.mark.parametrize("name", ["a.csv", "a.txt.gz", "a.jsonl.xz"])
def test_a_stream_whose_file_changes_ends_with_a_chunk_of_its_own_that_says_so(name: str, tmp_path: Path) -> None:
    content = b'"text"\n' + b'{"text": "a line"}\n' * 40
    file = write(tmp_path / name, PACKERS[Path(name).suffix if name != "a.csv" else ""](content))
    numbers, reasons = [], []
    for chunk in format_named(file.format).chunks(file, READING):
        os.utime(file.path, ns=(1, 1))
        numbers.append(chunk.number)
        reasons += [bad.reason for bad in format_named(file.format).read(chunk, file, READING).bad]

    assert numbers == list(range(len(numbers))) and len(numbers) > 1
    assert reasons[-1] == "changed"


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tar", "a.parquet", "a.arrow"])
@pytest.mark.parametrize("documents", ["file", "line"])
def test_a_file_that_may_not_be_read_is_one_bad_record(
    name: str, documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / name, b"text\nanything\n")

    def denied(path: object, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)

    with pytest.raises(SourceError, match=rf"{name}:1: unreadable: it cannot be opened: Permission denied"):
        judge(file, documents=documents)
    assert see(file, documents=documents).reasons == ["unreadable"]


def test_a_disk_that_fails_is_an_error(file: FoundFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)

    with pytest.raises(SourceError, match=r"a.txt: cannot be read: Input/output error"):
        list(read_file(file, READING))


def test_a_folder_in_the_place_of_a_file_is_a_bad_record(file: FoundFile) -> None:
    file.path.unlink()
    file.path.mkdir()

    (read,) = read_file(file, READING)
    assert_refused(read, file, r"a.txt:1: changed: ")
