"""A file that changes, disappears or cannot be read is an error that names it; other data is never read instead."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.errors import SourceError
from millstream.sources import FoundFile, Reading, format_named, read_file
from sources.samples import judge, see, write

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


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_two_chunks_is_an_error(file: FoundFile, change: Callable[[Path], None]) -> None:
    reads = read_file(file, READING)
    next(reads)
    change(file.path)

    with pytest.raises(SourceError, match=r"a.txt: this file has changed since it was found"):
        next(reads)


def test_a_file_that_disappears_is_an_error(file: FoundFile) -> None:
    reads = read_file(file, READING)
    next(reads)
    file.path.unlink()

    with pytest.raises(SourceError, match=r"a.txt: this file is gone; it was there"):
        next(reads)


@pytest.mark.parametrize("change", CHANGES[:3])
def test_a_file_that_changes_while_a_chunk_is_read_is_an_error(
    file: FoundFile, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread

    def meanwhile(handle: int, size: int, start: int) -> bytes:
        data = pread(handle, size, start)
        change(file.path)
        return data

    chunk = next(iter(format_named("text").chunks(file, READING)))
    monkeypatch.setattr(os, "pread", meanwhile)

    with pytest.raises(SourceError, match="has changed"):
        format_named("text").read(chunk, file, READING)


def test_a_file_that_cannot_be_opened_is_an_error(file: FoundFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)

    with pytest.raises(SourceError, match=r"a.txt: cannot be opened: Permission denied"):
        list(read_file(file, READING))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tar", "a.parquet", "a.arrow"])
@pytest.mark.parametrize("documents", ["file", "line"])
def test_a_file_that_may_not_be_read_is_one_bad_record(
    name: str, documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / name, b"text\nanything\n")
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK)

    with pytest.raises(SourceError, match=rf"{name}:1: unreadable: permission denied"):
        judge(file, documents=documents)
    assert see(file, documents=documents).reasons == ["unreadable"]


def test_a_disk_that_fails_is_an_error(file: FoundFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)

    with pytest.raises(SourceError, match=r"a.txt: cannot be read: Input/output error"):
        list(read_file(file, READING))


def test_a_folder_in_the_place_of_a_file_is_an_error(file: FoundFile) -> None:
    file.path.unlink()
    file.path.mkdir()

    with pytest.raises(SourceError, match=r"a.txt: this file has changed"):
        list(read_file(file, READING))
