"""Bodies of files, read in runs of whole blocks and checked: checksums, ids, document ends.

They are read, not mapped: a bad disk then gives an error with a name, not a signal that ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.format import Words, hash_blocks, token_dtype
from millstream.store.numbers import SHRUNK
from millstream.store.weights import ids_in

RUN_BYTES = 1 << 22


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong: the file and, for a damaged block, its number and bytes [start, stop)."""

    file: str
    what: str
    block: int | None = None
    start: int | None = None
    stop: int | None = None

    def __str__(self) -> str:
        where = "" if self.block is None else f" block {self.block} (bytes {self.start} to {self.stop}):"
        return f"{self.file}:{where} {self.what}"


@dataclass
class Report:
    """What `verify()` found; `unchecked` says what could not be checked and why."""

    blocks: int = 0
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.damages

    def __str__(self) -> str:
        state = "ok" if self.ok else f"{len(self.damages)} damages"
        head = f"{state}: {self.blocks} blocks, {self.bytes} bytes checked"
        return "\n".join([head, *map(str, self.damages), *self.unchecked])


@dataclass
class Body:
    """What a body should be: its block checksums, if they are known, and what its entries may be."""

    path: Path
    report: Report
    sums: Words | None = None
    block_bytes: int = RUN_BYTES

    def check(self, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        """Check a run of whole blocks that starts at block `first` and at byte `offset` of the file."""
        self.report.bytes += data.size
        if self.sums is not None:
            self._check_blocks(self.sums, offset, first, data)
        self._check_entries(offset, data)

    def _check_blocks(self, sums: Words, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        found = hash_blocks(data, self.block_bytes)
        self.report.blocks += len(found)
        wanted = sums[first : first + len(found)]
        if len(wanted) != len(found):
            self._add(f"block {first} or one behind it has no checksum")
            return
        for block in np.flatnonzero(found != wanted).tolist():
            start = offset + block * self.block_bytes
            stop = min(start + self.block_bytes, offset + data.size)
            self._add("the checksum does not agree", first + block, start, stop)

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Check what the entries say; each kind of body has its own rule."""

    def _add(self, what: str, *block: int) -> None:
        self.report.damages.append(Damage(str(self.path), what, *block))


@dataclass
class TokenBody(Body):
    """Token ids: each is below `limit`."""

    dtype: str = "uint16"
    limit: int = 1 << 32

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        ids: NDArray[Any] = data.view(token_dtype(self.dtype))
        ids = ids_in(ids, self.dtype)
        if int(ids.max()) < self.limit and (ids.dtype.kind == "u" or int(ids.min()) >= 0):
            return
        place = int(((ids >= self.limit) | (ids < 0)).argmax())
        where = offset + place * ids.itemsize
        self._add(f"id {ids[place]} at byte {where} is not in 0..{self.limit - 1}")


@dataclass
class EndsBody(Body):
    """Document ends: they never fall."""

    last: int = 0
    documents: int = 0
    words: int = 1
    """Of each document; the first is its end."""

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        ends = data.view(np.uint64)[:: self.words]
        falls = np.flatnonzero(ends < np.append(np.uint64(self.last), ends[:-1]))
        if falls.size:
            self._add(f"document {self.documents + int(falls[0])} ends before it starts")
        self.last, self.documents = int(ends[-1]), self.documents + len(ends)


def scan(body: Body, offset: int) -> Iterator[int]:
    """Read a file from `offset` to its end and check it; yields the bytes of each run."""
    run = max(RUN_BYTES, body.block_bytes)
    buffer = np.empty(run, np.uint8)
    fd = disk.open_regular(body.path)
    try:
        end, block = os.fstat(fd).st_size, 0
        while offset < end:
            data = buffer[: min(run, end - offset)]
            if os.preadv(fd, [data.data], offset) != data.size:
                raise StoreError(f"{body.path}: ends while it is read, at byte {offset}", hint=SHRUNK)
            body.check(offset, block, data)
            offset += data.size
            block += run // body.block_bytes
            yield data.size
    finally:
        os.close(fd)
