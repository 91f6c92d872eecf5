"""Chunk: a piece of a file that can be read on its own: the unit of work, of caching and of resuming.

A record belongs to the chunk in which it begins. Chunks depend on the file and the settings alone, never on
the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from millstream.sources.record import RecordBlock

CHUNK_BYTES = 8 << 20
MAX_DOCUMENT_BYTES = 256 << 20
MAX_EXPANSION = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """How raw files are cut into documents, and the limits that hold for hostile ones."""

    text_field: str = "text"
    documents: str = "file"
    separator: str | None = None
    encoding: str = "auto"
    on_invalid: str = "reject"
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    max_expansion: int = MAX_EXPANSION
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Units [start, stop) of a file: bytes of its decoded stream, or rows. `data` is what a stream has decoded
    already; without it the reader of the format fetches the bytes itself."""

    number: int
    start: int
    stop: int
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be used: what is wrong with it, and its raw bytes (the first of them) to keep aside.

    `row` counts from the start of the chunk, like the rows of a block.
    """

    reason: str
    row: int
    start: int
    stop: int
    found: str
    hint: str | None = None
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """What a chunk held: records in columns, what could not be used, what was left out under every policy
    (empty texts, blank lines; counted by reason), the rows it had in all, and a hash of its content."""

    block: RecordBlock
    rows: int
    bad: list[BadRecord] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


def empty_block(file: str) -> RecordBlock:
    """A block without records.

    >>> len(empty_block("a.txt"))
    0
    """
    none = np.zeros(0, np.int64)
    return RecordBlock(file, np.zeros(0, np.uint8), none, none, none, none)
