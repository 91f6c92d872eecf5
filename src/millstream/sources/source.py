"""What a source is, and what it yields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from millstream.sources.rejects import Rejects

MAX_RECORD_BYTES = 64 << 20
"""The longest record that is read unless told otherwise: one record is held in memory, and its tokens too."""


@dataclass(frozen=True, slots=True)
class Record:
    """One text and where it comes from: bytes [start, stop) of a file, its `row`-th row (from 0).

    >>> Record("hello", file="a.txt", row=0, start=0, stop=5).where
    'a.txt:1'
    """

    text: str
    file: str
    row: int
    start: int
    stop: int

    @property
    def where(self) -> str:
        """File and line or row as people count them, from 1."""
        return f"{self.file}:{self.row + 1}"


class Source(Protocol):
    """Reads one format: a stream of bytes -> records.

    A source never opens files and never decides what a bad record means: it hands it to `rejects`.
    """

    format: str
    """The name of the format, e.g. "jsonl"."""

    def records(self, stream: BinaryIO, file: str, rejects: Rejects) -> Iterator[Record]:
        """Give the records of `stream` in their order; `file` names it in origins and errors."""
        ...
