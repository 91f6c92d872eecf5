"""Growing bodies of files: entries are buffered, hashed block by block while they are hot, and written out.

The buffer always begins at the start of a block, so a block is hashed once, from memory, and never read back. A packed
column compresses blocks as they fill, in the thread of the caller and without the GIL. Its whole blocks are in the file
from a checkpoint on and are never written again; the tokens of the unfinished block, the tail, are in the journal.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import disk, need_zstd
from millstream.store import compressed_blocks
from millstream.store.frames import BLOCK_BYTES, FRAME_BYTES, Frame, Words, hash_blocks

BUFFER_BLOCKS = 4
START_AGAIN = "the disk lost or changed bytes; millstream.store.discard(path) throws the unfinished part away"


class ColumnWriter:
    """A `.part` file that grows: a place for the frame, then entries of one dtype."""

    def __init__(self, path: Path, dtype: np.dtype[Any], fd: int) -> None:
        self.path, self.fd, self.count = path, fd, 0
        self._buffer = np.empty(BUFFER_BLOCKS * BLOCK_BYTES, np.uint8)
        self._entries = self._buffer.view(dtype)
        self._fill = 0  # entries in the buffer
        self._out = 0  # of which this many are in the file already
        self._hashes: list[Words] = []  # of the blocks before the buffer

    @classmethod
    def begin(cls, path: Path, dtype: np.dtype[Any]) -> ColumnWriter:
        """Start an empty file; 64 zero bytes keep the place of the frame."""
        column = cls(path, dtype, disk.create(path))
        disk.write(column.fd, bytes(FRAME_BYTES), 0)
        return column

    @classmethod
    def resume(cls, path: Path, dtype: np.dtype[Any], count: int) -> ColumnWriter:
        """Cut a file back to `count` entries and continue after them; what is kept is read and hashed again."""
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
        self.close()  # a writer that stopped in the middle did not


@dataclass
class Packing:
    """How tokens are packed, and what it gave and cost so far in this process."""

    level: int
    raw_bytes: int = 0
    packed_bytes: int = 0
    cpu_seconds: float = 0.0


class PackedWriter(ColumnWriter):
    """A `.part` file of packed blocks; the table of their ends comes when it is sealed."""

    def __init__(self, path: Path, dtype: np.dtype[Any], fd: int, packing: Packing) -> None:
        super().__init__(path, dtype, fd)
        self._packing, self._block = packing, compressed_blocks.BLOCK_TOKENS
        self._end = FRAME_BYTES  # of the packed blocks in the file
        self._ends: list[Words] = []

    @classmethod
    def begin_packed(cls, path: Path, dtype: np.dtype[Any], packing: Packing) -> PackedWriter:
        """Start an empty file; 64 zero bytes keep the place of the frame."""
        need_zstd()
        column = cls(path, dtype, disk.create(path), packing)
        disk.write(column.fd, bytes(FRAME_BYTES), 0)
        return column

    @classmethod
    def resume_packed(cls, path: Path, dtype: np.dtype[Any], packing: Packing, count: int, tail: bytes) -> PackedWriter:
        """Cut a file back to the whole blocks of `count` tokens, hash them again, and continue after the tail."""
        need_zstd()
        column = cls(path, dtype, disk.reopen(path), packing)
        try:
            column._reread_blocks(count // column._block)
            column._restore(tail, count % column._block)
            disk.truncate(column.fd, column._end)
            disk.write(column.fd, bytes(FRAME_BYTES), 0)
        except BaseException:
            column.close()
            raise
        return column

    def _reread_blocks(self, blocks: int) -> None:
        size = self._block * self._entries.itemsize
        while self.count < blocks * self._block:
            few = min(len(self._entries) // self._block, blocks - self.count // self._block)
            piece = np.frombuffer(os.pread(self.fd, few * compressed_blocks.most_packed(size), self._end), np.uint8)
            ends, part = np.empty(few, np.uint64), self._entries[: few * self._block]
            whole = _core.find_frames(piece, ends) == few
            if not whole or _core.unpack_blocks(piece, ends, size, part.view(np.uint8))[0] < few:
                raise StoreError(f"{self.path}: lacks blocks that it had at its last checkpoint", hint=START_AGAIN)
            self._fill = self._out = len(part)
            self.count += len(part)
            self._keep(ends)
            self._turn_over()

    def _restore(self, tail: bytes, count: int) -> None:
        if len(tail) != count * self._entries.itemsize:
            raise StoreError(f"{self.path}: the journal's tail is not that of its last checkpoint", hint=START_AGAIN)
        self._entries[self._fill : self._fill + count] = np.frombuffer(tail, self._entries.dtype)
        self._fill += count
        self.count += count

    @property
    def tail(self) -> bytes:
        """The tokens after the last whole block."""
        return self._entries[self._out : self._fill].tobytes()

    def flush(self) -> None:
        """Pack what is whole, and hand it to the system."""
        self._pack((self._fill - self._out) // self._block * self._block)

    def _pack(self, count: int) -> None:
        if not count:
            return
        began = time.thread_time()
        raw = self._entries[self._out : self._out + count].view(np.uint8)
        ends = np.empty(-(-count // self._block), np.uint64)
        data = _core.pack_blocks(raw, self._block * self._entries.itemsize, self._packing.level, ends)
        self._packing.cpu_seconds += time.thread_time() - began
        self._packing.raw_bytes += raw.size
        self._packing.packed_bytes += len(data)
        disk.write(self.fd, data, self._end)
        self._out += count
        self._keep(ends)

    def _keep(self, ends: Words) -> None:
        self._ends.append(ends + np.uint64(self._end))
        self._end = int(self._ends[-1][-1])

    def seal(self, frame: Frame) -> None:
        """Pack the rest, write the table and then the frame, and wait for the disk."""
        self._pack(self._fill - self._out)
        table = np.concatenate([np.empty(0, np.uint64), *self._ends])
        disk.write(self.fd, table.tobytes(), self._end)
        super().seal(replace(frame, kind="Z", block=self._block))
