"""The shard table: one row of eight words per shard, read and checked as a whole at open.

Everything downstream (the engine too) trusts the rows: here they are made trustworthy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN
from millstream.store.format import Frame, Words, id_limit, xxh64
from millstream.store.numbers import open_body

FIRST_TOKEN, TOKENS, FIRST_DOCUMENT, DOCUMENTS, TAG, BOUND, FILE = range(7)
COLUMNS = 8
MOST = 1 << 62  # tokens or documents of a store: leaves room for sums in 64 bits

Rows = NDArray[np.uint64]


@dataclass(frozen=True)
class Row:
    """One shard: how much it holds, what it contains (its tag) and its file number."""

    tokens: int
    documents: int
    tag: int
    bound: int
    file: int


def rows_of(shards: Iterable[Row], after: Rows | None = None) -> Rows:
    """Lay shards out as a table, behind the rows of `after`: firsts are the sums of what lies before.

    >>> rows_of([Row(5, 2, tag=9, bound=3, file=0), Row(7, 1, tag=8, bound=4, file=1)])[:, :4].tolist()
    [[0, 5, 0, 2], [5, 7, 2, 1]]
    """
    flat = [(0, s.tokens, 0, s.documents, s.tag, s.bound, s.file, 0) for s in shards]
    rows = np.array(flat, "<u8").reshape(-1, COLUMNS)
    if after is not None:
        rows = np.concatenate([after, rows])
    rows[:, FIRST_TOKEN] = before(rows[:, TOKENS])
    rows[:, FIRST_DOCUMENT] = before(rows[:, DOCUMENTS])
    return rows


def before(counts: Words) -> Words:
    """Sum what lies before each place.

    >>> before(np.array([3, 4, 5], np.uint64)).tolist()
    [0, 3, 7]
    """
    return np.cumsum(counts, dtype=np.uint64) - counts


def total(rows: Rows, column: int) -> int:
    """Sum one column of a checked table."""
    return int(rows[:, column].sum(dtype=np.uint64))


def fingerprint(dtype: str, rows: Rows) -> str:
    """Name a version by what it contains.

    >>> fingerprint("uint16", rows_of([]))
    '1354c0f53b6ae7a3e2f5655ed5b39a57'
    """
    digest = hashlib.blake2b(f"millstream 1 {dtype}".encode("ascii"), digest_size=16)
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def encode_table(rows: Rows) -> bytes:
    """Give the bytes of a `.tab` file."""
    frame = Frame("S", len(rows), bound=total(rows, TOKENS), tag=xxh64(rows), documents=total(rows, DOCUMENTS))
    return frame.encode() + rows.tobytes()


def load_table(path: Path, dtype: str) -> Rows:
    """Read a `.tab` file, 64 bytes a shard, and check every row."""
    frame, words = open_body(path, "S")
    rows = words.read(range(len(words))).reshape(-1, COLUMNS)
    rows.flags.writeable = False
    if xxh64(rows) != frame.tag:
        raise StoreError(f"{path}: the shard table is damaged (its tag fails)", hint=COPY_AGAIN)
    check_rows(path, rows, dtype)
    if (total(rows, TOKENS), total(rows, DOCUMENTS)) != (frame.bound, frame.documents):
        raise StoreError(f"{path}: the totals in the frame are not the sums of the rows", hint=COPY_AGAIN)
    return rows


def check_rows(path: Path, rows: Rows, dtype: str) -> None:
    """Refuse rows that contradict each other or the dtype; name the first one."""
    tokens, documents, bound = rows[:, TOKENS], rows[:, DOCUMENTS], rows[:, BOUND]
    for column, name in ((tokens, "tokens"), (documents, "documents")):
        # In floating point first: sums of hostile words would wrap around.
        if column.sum(dtype=np.float64) >= MOST:
            raise StoreError(f"{path}: the shard table counts an impossible number of {name}", hint=COPY_AGAIN)
    refuse(path, rows[:, FIRST_TOKEN] != before(tokens), "does not start where the one before it ends")
    refuse(path, rows[:, FIRST_DOCUMENT] != before(documents), "does not continue the count of documents")
    refuse(path, documents == 0, "has no documents")
    refuse(path, (bound == 0) != (tokens == 0), "has tokens but no largest id, or the reverse")
    refuse(path, bound > id_limit(dtype), f"has ids that do not fit {dtype}")
    refuse(path, rows[:, 7] != 0, "has a last word that is not 0")
    falls = rows[1:, FILE] <= rows[:-1, FILE]
    refuse(path, np.append(False, falls)[: len(rows)], "has a file number that does not rise")


def refuse(path: Path, bad: NDArray[np.bool_], what: str) -> None:
    """Raise for the first row that is bad."""
    if bad.any():
        raise StoreError(f"{path}: row {int(bad.argmax())} of the shard table {what}", hint=COPY_AGAIN)
