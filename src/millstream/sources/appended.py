"""A file of JSON lines that grows -> what was added to it since it was read last.

A file is recognized by its inode and by the bytes at the two ends of what was read of it. One that was replaced, cut
or rewritten is read from its start again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from millstream.errors import SourceError
from millstream.sources.chunk import CHANGED, GONE, UNREADABLE, ChunkRead, FileFailure, Reading, empty_block
from millstream.sources.decoding import decoded_after
from millstream.sources.formats import format_named
from millstream.sources.separated import cut_at_last, stream_chunks
from millstream.sources.source_file import FoundFile, opened, read_at
from millstream.storage import xxh64

BEGUN_ANEW = "begun anew"
READING = Reading()
_END_BYTES = 4096


class GrowingLines:
    """Reads files of JSON lines again and again, and gives of each only what is new.

    A last line without its end that cannot be used may still be written: it is read again with what follows it.

    >>> import tempfile
    >>> path, growing = Path(tempfile.mkdtemp()) / "a.jsonl", GrowingLines(print)
    >>> for line in ('{"text": "one"}\\n{"te', 'xt": "two"}\\n'):
    ...     with path.open("a") as file:
    ...         _ = file.write(line)
    ...     for read in growing.read(path):
    ...         print([(record.row, record.text) for record in read.block], len(read.bad))
    [(0, 'one')] 1
    [(1, 'two')] 0
    >>> _ = path.write_text('{"text": "three"}\\n')
    >>> [record.text for read in growing.read(path) for record in read.block]
    begun anew
    ['three']

    Args:
        count: Called for each file that was replaced or cut, and is read from its start again.
        reading: Which field is the text, and limits for hostile files.
    """

    def __init__(self, count: Callable[[str], None], reading: Reading = READING) -> None:
        self._count, self._reading = count, reading
        self._marks: dict[str, _Mark] = {}

    def read(self, path: str | os.PathLike[str]) -> Iterator[ChunkRead]:
        """What was added to a file, with rows that count from its start.

        A file that disappears or changes meanwhile gives what could be read, and the rest at the next call."""
        key = os.fspath(path)
        try:
            file = _found(Path(path))
            known = self._marks.get(key, _Mark(inode=file.inode))
            if not _continues(file, known):
                self._count(BEGUN_ANEW)
                known = _Mark(inode=file.inode)
            for read, mark in _appended(file, self._reading, known):
                self._marks[key] = mark
                yield read
        except (FileFailure, SourceError) as error:
            failure = error if isinstance(error, FileFailure) else FileFailure(UNREADABLE, error.message, error.hint)
            if failure.reason not in (GONE, CHANGED):
                rows = self._marks.get(key, _Mark()).rows
                yield ChunkRead(empty_block(key), 0).ending_badly(failure.record(0, 0)).counted_from(rows)


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far a file was read: the place in its decoded stream, the rows before it, and the bytes it had."""

    place: int = 0
    rows: int = 0
    inode: int = 0
    bytes: int = 0
    ends: int = 0


def _found(path: Path) -> FoundFile:
    try:
        status = path.stat()
    except OSError as error:
        raise FileFailure(GONE, str(error)) from error
    return FoundFile(path, str(path), "jsonl", status.st_size, status.st_mtime_ns, status.st_ino)


def _continues(file: FoundFile, mark: _Mark) -> bool:
    """Whether a file is the one that was read up to a mark, as it was or longer."""
    if file.inode != mark.inode or file.bytes < mark.bytes:
        return False
    with opened(file) as handle:
        return not mark.bytes or _ends(handle, file, mark.bytes) == mark.ends


def _appended(file: FoundFile, reading: Reading, mark: _Mark) -> Iterator[tuple[ChunkRead, _Mark]]:
    """The lines after a mark, piece by piece, and the mark after each piece."""
    format, cut = format_named("jsonl"), partial(cut_at_last, b"\n")
    with opened(file) as handle:
        ends = _ends(handle, file, file.bytes)
    with decoded_after(file, reading, mark.place) as (blocks, start, encoding):
        for chunk in stream_chunks(blocks, start, reading, cut, b"\n", "line"):
            read = format.read(replace(chunk, encoding=encoding), file, reading).counted_from(mark.rows)
            place, rows = chunk.stop, mark.rows + read.rows
            if read.rows and not chunk.data.endswith(b"\n"):  # what comes next belongs to the same row
                rows -= 1
                place = read.bad[-1].start if read.bad and read.bad[-1].row == rows else place
            mark = _Mark(place, rows, file.inode, file.bytes, ends)
            yield read, mark


def _ends(handle: int, file: FoundFile, size: int) -> int:
    """A hash of the first and the last of the first `size` bytes."""
    last = max(0, size - _END_BYTES)
    found = read_at(handle, file, 0, min(size, _END_BYTES)) + read_at(handle, file, last, size - last)
    return xxh64(np.frombuffer(found, np.uint8))
