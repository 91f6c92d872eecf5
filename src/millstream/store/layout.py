"""Where tokens and documents lie: the shard table, the layout of its files, the document index of a shard.

The table has one row of eight words per shard. It is read and checked as a whole at open: everything downstream (the
engine too) trusts the rows. An index may contain wrong numbers: what is used is checked when it is used, and `verify()`
checks all of it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN
from millstream.store.frames import EverySecond, Frame, Numbers, Words, id_limit, open_body, shard_name, xxh64

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
    """Lay shards out as a table, following the rows of `after`: firsts are the sums of what lies before.

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


@dataclass(frozen=True, eq=False)
class Layout:
    """Files, widths and offsets of a store that was checked at open.

    `index` is "none" (one document), "ends" (an `.idx` beside each `.bin`) or "megatron". `block_tokens` is that of
    the largest blocks, where shards are packed. `paths` names the token file and the index of each shard, where they
    do not lie side by side; a file that is never asked for need not be there.
    """

    directory: str
    file: str
    dtype: str
    header_bytes: int
    table: NDArray[np.uint64] = field(repr=False)
    index: str
    index_file: str = ""
    pointers_offset: int = 0
    boundaries_offset: int = 0
    sequences: int = 0
    boundaries: int = 0
    block_tokens: int = 0
    paths: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def path_of(self, shard: int, suffix: str = ".bin") -> Path:
        """Name a file of a shard (its place in the table, not its file number)."""
        if self.paths:
            tokens, index = map(Path, self.paths[shard])
            return {".bin": tokens, ".idx": index}.get(suffix) or tokens.with_suffix(suffix)
        if self.directory:
            return Path(self.directory, shard_name(int(self.table[shard, FILE])) + suffix)
        if suffix == ".idx" and self.index_file:
            return Path(self.index_file)
        return Path(self.file).with_suffix(suffix)


VERIFY = "the index is damaged: `millstream verify` says where; restore it from a copy"


class Index(Protocol):
    """What the reader asks of an index; all numbers count from the start of the shard."""

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""

    def at(self, token: int) -> int:
        """Find the document that holds a token."""


def checked(path: Path, bounds: Words, tokens: int) -> Words:
    """Refuse bounds that fall or leave the shard."""
    if bounds[-1] > tokens or (bounds[1:] < bounds[:-1]).any():
        raise StoreError(f"{path}: document ends fall or lie beyond the last token", hint=VERIFY)
    return bounds


class OneDocument:
    """No index: the whole file is document 0.

    >>> OneDocument(7).bounds(0, 1).tolist()
    [0, 7]
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def bounds(self, first: int, last: int) -> Words:
        """Give 0 and the number of tokens."""
        return np.array([0, self._tokens], np.uint64)

    def at(self, token: int) -> int:
        """Find document 0."""
        return 0


class Ends:
    """Our own index: the end of each document."""

    def __init__(self, ends: Numbers | EverySecond, tokens: int) -> None:
        self._ends, self._tokens = ends, tokens

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        ends = self._ends.read(range(max(first - 1, 0), last))
        bounds = ends if first else np.insert(ends, 0, 0)
        return checked(self._ends.path, bounds, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends after the token."""
        found = self._ends.first_above(token)
        if found == len(self._ends):
            raise StoreError(f"{self._ends.path}: no document holds token {token}", hint=VERIFY)
        return found


class MegatronIndex:
    """Megatron's index: byte pointers of sequences, and documents as runs of sequences."""

    def __init__(self, path: Path, pointers: Numbers, boundaries: Numbers, *, tokens: int, width: int) -> None:
        self._path, self._pointers, self._boundaries = path, pointers, boundaries
        self._tokens, self._width = tokens, width

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        sequences = self._boundaries.read(range(first, last + 1))
        if (sequences < 0).any() or (sequences > len(self._pointers)).any():
            raise StoreError(f"{self._path}: a document boundary names a sequence that is not there", hint=VERIFY)
        out = np.full(len(sequences), self._tokens, np.uint64)
        inside = sequences < len(self._pointers)
        starts = np.array([self._pointers.at(int(each)) for each in sequences[inside]], np.int64)
        if (starts < 0).any() or (starts % self._width != 0).any():
            raise StoreError(f"{self._path}: a byte pointer is negative or lies inside a token", hint=VERIFY)
        out[inside] = (starts // self._width).astype(np.uint64)
        return checked(self._path, out, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends after the token, by bisection."""
        documents = range(len(self._boundaries) - 1)
        found = bisect_right(documents, token, key=lambda document: int(self.bounds(document, document + 1)[1]))
        if found == len(documents):
            raise StoreError(f"{self._path}: no document holds token {token}", hint=VERIFY)
        return found
