"""Chunk: a piece of a file that is read on its own: the unit of work, of caching and of resuming.

Chunks depend only on the file and the settings, never on the number of workers. The records that all chunks of a file
give are the same for every `chunk_bytes`. A file that fails in the middle keeps what was read before; one bad record
says where and why it ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from millstream.errors import SourceError
from millstream.sources.record_block import RecordBlock

CHUNK_BYTES = 4 << 20
MAX_DOCUMENT_BYTES = 256 << 20
MAX_EXPANSION = 1000
MAX_DECODED_BYTES = 1 << 42
UTF_8 = "utf-8"
KEPT_BYTES = 1 << 16
"""How much of a bad record is kept aside."""
TOO_LONG = "too long"
EMPTY = "empty"
BLANK = "blank line"
GONE, CHANGED, UNREADABLE = "gone", "changed", "unreadable"
FORMAT_FAILED, NO_TEXT = "the format failed", "not text"
FLEETING = frozenset({GONE, CHANGED, UNREADABLE, FORMAT_FAILED, NO_TEXT})
"""Failures that say nothing about the content of a file: what was made of it must not be cached."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How raw files are cut into documents, and the limits that hold for hostile ones.

    `documents` says what a document is in a text file: the "file", a "line", or what stands between two `separator`s.
    `encoding="auto"` goes by the byte order mark, else UTF-8. What is not valid in the encoding is a bad record
    (`on_invalid="reject"`) or becomes U+FFFD, counted ("replace"). A compressed file may grow to `max_expansion`
    times its size, and to `max_decoded_bytes`. With `whole_rows` the text of a record is its whole row as a JSON object
    (a line as it stands, if the file has such), and not one field of it.

    >>> Reading(separator="<|endoftext|>").documents
    'separator'
    >>> Reading(documents="page")
    Traceback (most recent call last):
    millstream.errors.SourceError: documents='page' is unknown
      hint: choose "file", "line" or "separator"
    """

    text_field: str = "text"
    documents: str = "file"
    separator: str | None = None
    encoding: str = "auto"
    on_invalid: str = "reject"
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    max_expansion: int = MAX_EXPANSION
    max_decoded_bytes: int = MAX_DECODED_BYTES
    chunk_bytes: int = CHUNK_BYTES
    whole_rows: bool = False

    def __post_init__(self) -> None:
        if self.separator and self.documents == "file":
            object.__setattr__(self, "documents", "separator")
        if self.documents not in ("file", "line", "separator"):
            raise SourceError(f"documents={self.documents!r} is unknown", hint='choose "file", "line" or "separator"')
        if (self.documents == "separator") != bool(self.separator):
            raise SourceError(
                f"documents={self.documents!r} and separator={self.separator!r} do not fit together",
                hint='pass documents="separator" and a separator such as "<|endoftext|>"',
            )
        if self.on_invalid not in ("reject", "replace"):
            raise SourceError(f"on_invalid={self.on_invalid!r} is unknown", hint='choose "reject" or "replace"')
        for name in ("max_document_bytes", "max_expansion", "max_decoded_bytes", "chunk_bytes"):
            if getattr(self, name) < 1:
                raise SourceError(f"{name}={getattr(self, name)} is impossible", hint="it is at least 1")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be used: what is wrong with it, and its raw bytes (the first of them) to keep aside.

    `row` counts from the start of the chunk, like the rows of a block. A file that fails in the middle is one bad
    record too: the one that its readable part ends with.
    """

    reason: str
    row: int
    start: int
    stop: int
    found: str
    hint: str | None = None
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Units [start, stop) of a file: bytes of its decoded stream, or rows.

    `data` is what `chunks` has decoded already (bytes, members of an archive, a table); without it `read` fetches it
    itself. `context` is what `read` must know besides, such as the column of the text. `bad` says that the file
    cannot be read beyond this chunk. `source_stop` is the byte of the file after the chunk, where that is not `stop`:
    progress is measured by it. `encoding` is what `data` was converted from.
    """

    number: int
    start: int
    stop: int
    data: Any = None
    context: Any = None
    bad: BadRecord | None = None
    source_stop: int | None = None
    encoding: str = UTF_8

    def behind(self, file_bytes: int) -> int:
        """The byte of a file of `file_bytes` after the chunk, as far as that is known.

        >>> Chunk(0, 0, 500).behind(100), Chunk(0, 0, 500, source_stop=70).behind(100)
        (100, 70)
        """
        return min(self.stop if self.source_stop is None else self.source_stop, file_bytes)


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """What a chunk held: records in columns, the number of its rows, and its bad records.

    `skipped` counts by reason what is left out under every policy (empty texts, blank lines), `repaired` what was
    repaired."""

    block: RecordBlock
    rows: int
    bad: list[BadRecord] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)

    def ending_badly(self, bad: BadRecord | None) -> ChunkRead:
        """The same and one more row, which is bad (`chunk.bad`), if there is one."""
        if bad is None:
            return self
        return replace(self, rows=self.rows + 1, bad=[*self.bad, replace(bad, row=self.rows)])

    def counted_from(self, row: int) -> ChunkRead:
        """The same with rows that count from the start of the file, when `row` rows lie before the chunk."""
        block = replace(self.block, rows=self.block.rows + row)
        return replace(self, block=block, bad=[replace(bad, row=bad.row + row) for bad in self.bad])


def numbered(reads: Iterator[ChunkRead]) -> Iterator[ChunkRead]:
    """Let the rows of all chunks of a file count from its start."""
    row = 0
    for read in reads:
        yield read.counted_from(row)
        row += read.rows


def empty_block(file: str) -> RecordBlock:
    """A block without records.

    >>> len(empty_block("a.txt"))
    0
    """
    none = np.zeros(0, np.int64)
    return RecordBlock(file, np.zeros(0, np.uint8), none, none, none, none)


class FileFailure(Exception):  # noqa: N818 - it says what a file did
    """A file cannot be read beyond the present place. It never reaches users: formats turn it into a bad record."""

    def __init__(self, reason: str, found: str, hint: str | None = None, *, has_place: bool = True) -> None:
        super().__init__(f"{reason}: {found}")
        self.reason, self.found, self.hint, self.has_place = reason, found, hint, has_place

    def record(self, start: int, stop: int, raw: bytes | None = None) -> BadRecord:
        """The bad record: what was read of it is bytes [start, stop) of the decoded stream."""
        found = f"{self.found}; what could be read ends at byte {stop:,}" if self.has_place else self.found
        hint = self.hint or "copy or download the file again"
        return BadRecord(self.reason, 0, start, stop, found, hint, raw[:KEPT_BYTES] if raw else None)


def too_long(what: str, start: int, limit: int, raw: bytes | memoryview | None = None) -> BadRecord:
    """A record that has more than `limit` bytes, and as many of them as there are at hand.

    >>> too_long("line", 5, 10).found
    'this line has more than 10 bytes; the limit is 10'
    """
    hint = "raise max_document_bytes"
    if what == "document":
        hint = f'cut it with documents="line" or a separator, or {hint}'
    found = f"this {what} has more than {limit:,} bytes; the limit is {limit:,}"
    kept = None if raw is None else bytes(raw[: min(KEPT_BYTES, limit)])
    return BadRecord(TOO_LONG, 0, start, start + limit, found, hint, kept)
