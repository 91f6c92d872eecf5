"""One growing body: entries are buffered, hashed block by block while they are hot, and written out.

The buffer always begins at a block's start, so a block is hashed once, from memory, and never read back.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.format import BLOCK_BYTES, FRAME_BYTES, Frame, Words, hash_blocks

BUFFER_BLOCKS = 4
START_AGAIN = "the disk lost or changed bytes; millstream.store.discard(path) throws the unfinished part away"


class Column:
    """A `.part` file that grows: a place for the frame, then entries of one dtype."""

    def __init__(self, path: Path, dtype: np.dtype[Any], fd: int) -> None:
        self.path, self.fd, self.count = path, fd, 0
        self._buffer = np.empty(BUFFER_BLOCKS * BLOCK_BYTES, np.uint8)
        self._entries = self._buffer.view(dtype)
        self._fill = 0  # entries in the buffer
        self._out = 0  # of which this many are in the file already
        self._hashes: list[Words] = []  # of the blocks before the buffer

    @classmethod
    def begin(cls, path: Path, dtype: np.dtype[Any]) -> Column:
        """Start an empty file; 64 zero bytes keep the place of the frame."""
        column = cls(path, dtype, disk.create(path))
        disk.write(column.fd, bytes(FRAME_BYTES), 0)
        return column

    @classmethod
    def resume(cls, path: Path, dtype: np.dtype[Any], count: int) -> Column:
        """Cut a file back to `count` entries and go on behind them; what is kept is read and hashed again."""
        column = cls(path, dtype, disk.reopen(path))
        end = FRAME_BYTES + count * dtype.itemsize
        if os.fstat(column.fd).st_size < end:
            column.close()
            raise StoreError(f"{path}: is shorter than at its last checkpoint, {end} bytes", hint=START_AGAIN)
        disk.truncate(column.fd, end)
        disk.write(column.fd, bytes(FRAME_BYTES), 0)
        column._reread(count)
        return column

    def _reread(self, count: int) -> None:
        while self.count < count:
            part = self._entries[: min(len(self._entries), count - self.count)]
            if os.preadv(self.fd, [part.data], self._position) != part.nbytes:
                raise StoreError(f"{self.path}: ends while it is read", hint=START_AGAIN)
            self._fill = self._out = len(part)
            self.count += len(part)
            self._turn_over()

    @property
    def _position(self) -> int:
        """Byte of the file at which the buffer's unwritten entries go."""
        return FRAME_BYTES + (self.count - self._fill + self._out) * self._entries.itemsize

    def extend(self, values: NDArray[Any]) -> None:
        """Add entries at the end."""
        while len(values):
            part = values[: len(self._entries) - self._fill]
            self._entries[self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            self.count += len(part)
            self._turn_over()
            values = values[len(part) :]

    def _turn_over(self) -> None:
        """When the buffer is full: hash its blocks, write what is not written, begin again."""
        if self._fill == len(self._entries):
            self._hashes.append(hash_blocks(self._buffer, BLOCK_BYTES))
            self.flush()
            self._fill = self._out = 0

    def flush(self) -> None:
        """Hand everything to the system; the last, unfinished blocks stay in the buffer too."""
        disk.write(self.fd, self._entries[self._out : self._fill].view(np.uint8).data, self._position)
        self._out = self._fill

    @property
    def tail(self) -> bytes:
        """What a checkpoint does not find in the file."""
        return b""

    def hashes(self) -> Words:
        """Hash every block so far, the unfinished one as it is."""
        rest = hash_blocks(self._entries[: self._fill].view(np.uint8), BLOCK_BYTES)
        return np.concatenate([*self._hashes, rest])

    def seal(self, frame: Frame) -> None:
        """Write the frame, last of all, and wait for the disk."""
        self.flush()
        disk.write(self.fd, frame.encode(), 0)
        disk.sync(self.fd)

    def close(self) -> None:
        """Give the file descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()  # whoever stopped in the middle of something did not
