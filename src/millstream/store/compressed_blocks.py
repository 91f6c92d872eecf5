"""Reads tokens in blocks that are compressed one by one: a table has the place of each, and each is decoded alone.

(places) -> tokens. The result is a copy; the file contains nothing that a view could show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN, need_zstd
from millstream.store.frames import FRAME_BYTES, RUN, Frame, Numbers, Tokens, Words


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


BLOCK_TOKENS = 4096
"""A row of 2048 tokens costs the decoding of one block or two; larger ones save little (docs/reference/formats.md)."""
DAMAGED = "`millstream verify` names every damaged block; restore the file from a copy"
MISPLACED = "it does not lie where the table says"


def most_packed(raw_bytes: int) -> int:
    """Bound the size of a packed block (zstd's own bound).

    >>> most_packed(8192) - 8192
    92
    """
    return raw_bytes + (raw_bytes >> 8) + (max(0, (128 << 10) - raw_bytes) >> 11)


class PackedTokens:
    """The tokens of a packed file; the descriptor becomes ours."""

    def __init__(self, path: Path, fd: int, frame: Frame) -> None:
        size = os.fstat(fd).st_size
        self.path, self._count, self._dtype = path, frame.count, frame.entry
        self._file = Numbers(path, fd, np.dtype(np.uint8), 0, size)
        self.block = frame.block
        self.blocks = -(-frame.count // frame.block)
        self._table_start = size - 8 * self.blocks
        self._last: tuple[int, Tokens] = (-1, np.empty(0, self._dtype))
        end = int(self._bounds(self.blocks - 1, self.blocks)[1]) if self.blocks else FRAME_BYTES
        if end != self._table_start:
            raise StoreError(f"{path}: its table of blocks does not agree with its size", hint=COPY_AGAIN)

    def __len__(self) -> int:
        return self._count

    @property
    def block_bytes(self) -> int:
        """Bytes of a whole block when it is decoded."""
        return self.block * self._dtype.itemsize

    def at(self, place: int) -> int:
        """Decode one token."""
        return int(self.read(range(place, place + 1))[0])

    def part(self, wanted: range) -> Tokens:
        """Copy the tokens at some rising places."""
        return self.read(wanted)

    def read(self, wanted: range) -> Tokens:
        """Copy the tokens at some rising places."""
        out, few = np.empty(len(wanted), self._dtype), max(1, RUN // wanted.step)
        for first in range(0, len(wanted), few):
            part = wanted[first : first + few]
            block, stop = part[0] // self.block, part[-1] // self.block + 1
            tokens, shift = self._decoded(block, stop), block * self.block
            out[first : first + few] = tokens[part[0] - shift : part[-1] - shift + 1 : wanted.step]
        return out

    def runs(self) -> Iterator[Tokens]:
        """Decode everything, a run at a time."""
        step = max(1, RUN // self.block)
        for first in range(0, self.blocks, step):
            yield self._decoded(first, min(first + step, self.blocks))

    def _decoded(self, first: int, stop: int) -> Tokens:
        """Decode blocks; the last single one is remembered: the next wish is often for what follows."""
        number, tokens = self._last
        if stop - first == 1 and number == first:
            return tokens
        tokens, damages = self.decode(first, stop)
        if damages:
            raise StoreError(str(damages[0]), hint=DAMAGED)
        if stop - first == 1:
            self._last = first, tokens
        return tokens

    def decode(self, first: int, stop: int) -> tuple[Tokens, list[Damage]]:
        """Decode blocks [first, stop), and say which of them are damaged."""
        bounds = self._bounds(first, stop)
        starts, stops = bounds[:-1], bounds[1:]
        inside = (starts >= FRAME_BYTES) & (starts < stops) & (stops <= self._table_start)
        believable = np.append(inside & (stops - starts <= most_packed(self.block_bytes)), False)
        tokens = np.zeros(min(stop * self.block, self._count) - first * self.block, self._dtype)
        damages, done = list[Damage](), 0
        while done < stop - first:
            whole = done + int(believable[done:].argmin())
            taken, reason = self._unpack(bounds[done : whole + 1], tokens[done * self.block : whole * self.block])
            done += taken
            if done < stop - first:
                span = int(bounds[done]), int(bounds[done + 1])
                damages.append(Damage(str(self.path), reason or MISPLACED, first + done, *span))
                done += 1
        return tokens, damages

    def _bounds(self, first: int, stop: int) -> Words:
        """Read where block `first` starts, and where each of [first, stop) ends. Nothing of it is believed yet."""
        start = self._table_start + 8 * max(first - 1, 0)
        ends = self._file.read(range(start, self._table_start + 8 * stop)).view("<u8")
        return ends if first else np.insert(ends, 0, FRAME_BYTES)

    def _unpack(self, bounds: Words, out: Tokens) -> tuple[int, str]:
        if len(bounds) < 2:
            return 0, ""
        need_zstd()
        packed: NDArray[Any] = self._file.read(range(int(bounds[0]), int(bounds[-1])))
        return _core.unpack_blocks(packed, bounds[1:] - bounds[0], self.block_bytes, out.view(np.uint8))
