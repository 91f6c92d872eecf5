"""Record: one text and where it comes from. RecordBlock: many of them in columns, as native code takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_BYTES = -1
"""The byte range of a record whose format has none, such as a row of a Parquet file."""


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


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records of one file in columns: their texts end to end, and the origin of each.

    `text` is valid UTF-8; text i is `text[ends[i - 1] : ends[i]]`. Rows count from the start of the chunk that
    the block was read from; `ChunkRead.counted_from` adds the rows before it.

    >>> block = RecordBlock.of([Record("ab", "a.txt", 0, 0, 2), Record("é", "a.txt", 1, 3, 5)], "a.txt")
    >>> len(block), block.text_of(1), block.ends.tolist()
    (2, 'é', [2, 4])
    >>> [record.text for record in block.select([False, True])]
    ['é']
    """

    file: str
    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, records: Iterable[Record], file: str) -> RecordBlock:
        """Lay records out in columns."""
        records = list(records)
        origins = np.array([(each.row, each.start, each.stop) for each in records], np.int64).reshape(-1, 3)
        text, ends = joined([each.text.encode() for each in records])
        return cls(file, text, ends, *np.ascontiguousarray(origins.T))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[Record]:
        return (self.record(index) for index in range(len(self)))

    @property
    def begins(self) -> NDArray[np.int64]:
        """Where each text begins in `text`."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]]) if len(self) else self.ends

    def bytes_of(self, index: int) -> bytes:
        """The UTF-8 bytes of one text."""
        begin = int(self.ends[index - 1]) if index else 0
        return self.text[begin : int(self.ends[index])].tobytes()

    def text_of(self, index: int) -> str:
        """One text."""
        return self.bytes_of(index).decode()

    def origin(self, index: int) -> tuple[int, int, int]:
        """Row, start and stop of one record."""
        return int(self.rows[index]), int(self.starts[index]), int(self.stops[index])

    def record(self, index: int) -> Record:
        """One record by itself."""
        return Record(self.text_of(index), self.file, *self.origin(index))

    def select(self, keep: NDArray[np.bool_] | Sequence[bool]) -> RecordBlock:
        """Only the records where `keep` is true."""
        keep = np.asarray(keep, np.bool_)
        if keep.all():
            return self
        lengths = np.diff(self.ends, prepend=0)
        text = self.text[np.repeat(keep, lengths)]
        columns = (self.rows[keep], self.starts[keep], self.stops[keep])
        return RecordBlock(self.file, text, np.cumsum(lengths[keep]), *columns)

    def stretch(self, first: int, last: int) -> RecordBlock:
        """The records [first, last), without a copy of their texts."""
        begin, end = (int(self.ends[place - 1]) if place else 0 for place in (first, last))
        some = slice(first, last)
        columns = (self.rows[some], self.starts[some], self.stops[some])
        return RecordBlock(self.file, self.text[begin:end], self.ends[some] - begin, *columns)

    def with_texts(self, texts: Sequence[bytes]) -> RecordBlock:
        """The same origins with other texts, one for each."""
        text, ends = joined(texts)
        return replace(self, text=text, ends=ends)


def joined(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lay texts end to end, and say where each ends.

    >>> text, ends = joined([b"ab", b"", b"c"])
    >>> text.tobytes(), ends.tolist()
    (b'abc', [2, 2, 3])
    """
    ends: NDArray[Any] = np.cumsum([len(each) for each in texts], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends
