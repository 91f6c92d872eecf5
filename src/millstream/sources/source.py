"""What a source is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Protocol

from millstream.sources.record import Record
from millstream.sources.rejects import Rejects

MAX_RECORD_BYTES = 64 << 20
"""The longest record that is read unless told otherwise: one record is held in memory, and its tokens too."""


class Source(Protocol):
    """Reads one format: a stream of bytes -> records.

    A source never opens files and never decides what a bad record means: it hands it to `rejects`.
    """

    format: str
    """The name of the format, e.g. "jsonl"."""

    def records(self, stream: BinaryIO, file: str, rejects: Rejects) -> Iterator[Record]:
        """Give the records of `stream` in their order; `file` names it in origins and errors."""
        ...
