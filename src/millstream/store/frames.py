"""The files of a store: frames, dtypes, checksums, and the numbers after a frame (docs/reference/formats.md).

(path) -> frame, numbers. A file is believed only after its frame agrees with its size. A mapped page that is gone ends
the process; a read that comes back short is an error with a name. So the code reads, and makes a view only after it
checked the size.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN, disk
from millstream.storage import xxh64 as xxh64_of_bytes
from millstream.store.weighted_tokens import ID_BITS, WEIGHTED

FRAME_BYTES = 64
BLOCK_BYTES = 1 << 20
MAGIC = b"\x89MLS"
DTYPES = {"uint16": 1, "uint32": 2, "int32": 3, "weighted": 4}

Tokens = NDArray[Any]
Words = NDArray[np.uint64]


def token_dtype(name: str) -> np.dtype[Any]:
    """Turn a dtype's name into numpy's dtype (the core builds on little-endian machines only).

    >>> token_dtype("uint16"), token_dtype("weighted")
    (dtype('uint16'), dtype('uint32'))
    """
    if name not in DTYPES:
        raise StoreError(f"dtype {name!r} cannot be stored", hint=f"use one of {', '.join(DTYPES)}")
    return np.dtype(np.uint32 if name == WEIGHTED else name)


def id_limit(dtype: str) -> int:
    """Say 1 + the largest id that a dtype can hold.

    >>> id_limit("uint16"), id_limit("int32"), id_limit("weighted")
    (65536, 2147483648, 16777216)
    """
    return 1 << ID_BITS if dtype == WEIGHTED else int(np.iinfo(token_dtype(dtype)).max) + 1


def index_kind(dtype: str) -> str:
    """Say which kind of document index belongs to tokens of a dtype: weighted ones have weighed documents."""
    return "E" if dtype == WEIGHTED else "D"


def words_of_an_end(dtype: str) -> int:
    """How many words the index has for a document: its end and, if tokens have weights, their sum.

    >>> words_of_an_end("uint16"), words_of_an_end("weighted")
    (1, 2)
    """
    return 2 if dtype == WEIGHTED else 1


def shard_name(number: int) -> str:
    """Name the shard's files, without their ending.

    >>> shard_name(7), shard_name(1234567)
    ('00007', '1234567')
    """
    return f"{number:05d}"


def xxh64(data: bytes | NDArray[Any]) -> int:
    """Hash bytes, or the bytes of an array.

    >>> hex(xxh64(b"abc"))
    '0x44bc2cf5ad770999'
    """
    if isinstance(data, bytes):
        return xxh64_of_bytes(np.frombuffer(data, np.uint8))
    return xxh64_of_bytes(np.ascontiguousarray(data).reshape(-1).view(np.uint8))


def hash_blocks(data: NDArray[np.uint8], block_bytes: int) -> Words:
    """Hash each block of `data`; the last may be short.

    >>> hash_blocks(np.zeros(10, np.uint8), 4).size
    3
    """
    out = np.empty(-(-data.size // block_bytes), np.uint64)
    _core.hash_blocks(data, block_bytes, out)
    return out


@dataclass(frozen=True)
class Frame:
    """The 64 bytes at the start of a file: what its body is and how many entries it has."""

    kind: str
    count: int
    bound: int
    tag: int
    documents: int = 0
    dtype: str = ""
    block: int = 0

    def encode(self) -> bytes:
        """Give the 64 bytes.

        >>> Frame("D", count=2, bound=9, tag=1).encode()[:8]
        b'\\x89MLSD\\r\\n\\x1a'
        """
        code = DTYPES[self.dtype] if self.dtype else 0
        return _core.encode_frame(self.kind, code, self.count, self.bound, self.tag, self.documents, self.block)

    @property
    def entry(self) -> np.dtype[Any]:
        """The dtype of one entry of the body."""
        return token_dtype(self.dtype) if self.kind in "TZ" else np.dtype("<u8")

    @property
    def words(self) -> int:
        """The number of elements of the mapped body: a row of a table has eight, an origin three, a weighed end two."""
        return self.count * {"S": 8, "O": 3, "E": 2}.get(self.kind, 1)


def parse_frame(path: Path, first_bytes: bytes, file_bytes: int, kind: str) -> Frame:
    """Check a file's first bytes against its size, and give its frame; tokens ("T") may turn out to be packed ("Z")."""
    try:
        found, code, count, bound, tag, documents, block = _core.parse_frame(first_bytes, file_bytes, kind)
    except RuntimeError as error:
        hint = (
            COPY_AGAIN
            if first_bytes.startswith(MAGIC)
            else "is this the right file? A store is made with `millstream prepare`"
        )
        raise StoreError(f"{path}: {error}", hint=hint) from None
    dtype = next((name for name, each in DTYPES.items() if each == code), "")
    return Frame(found, count, bound, tag, documents, dtype, block)


def read_frame(path: Path, kind: str) -> Frame:
    """Read and check the frame of a file."""
    fd = disk.open_regular(path)
    try:
        return parse_frame(path, os.pread(fd, FRAME_BYTES, 0), os.fstat(fd).st_size, kind)
    finally:
        os.close(fd)


RUN = 1 << 18  # numbers that are read at once where more than one run is needed
SHRUNK = "replace a store by renaming, never by writing into its files; copy this one again"


class Numbers:
    """`count` numbers of one dtype from byte `offset` of a file on.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ids")
    >>> np.arange(9, dtype="<u2").tofile(path)
    >>> numbers = Numbers(path, disk.open_regular(path), np.dtype("<u2"), offset=4, count=7)
    >>> numbers.read(range(1, 6, 2)).tolist(), numbers.view()[-1], numbers.at(0)
    ([3, 5, 7], np.uint16(8), 2)
    """

    def __init__(self, path: Path, fd: int, dtype: np.dtype[Any], offset: int, count: int) -> None:
        self.path, self._fd = path, fd
        self.dtype, self._offset, self._count = dtype, offset, count

    def __len__(self) -> int:
        return self._count

    def __del__(self) -> None:
        os.close(self._fd)

    def view(self) -> NDArray[Any]:
        """Give all of them without a copy, if the file still has them."""
        if os.fstat(self._fd).st_size < self._end:
            raise self._shrunk()
        return self._mapped

    def part(self, wanted: range) -> NDArray[Any]:
        """Give the numbers at some rising places without a copy."""
        return self.view()[wanted.start : wanted.stop : wanted.step]

    def at(self, place: int) -> int:
        """Read one number."""
        return int(self._run(place, place + 1)[0])

    def read(self, wanted: range) -> NDArray[Any]:
        """Copy the numbers at some rising places."""
        if wanted.step == 1:
            return self._run(wanted.start, wanted.stop)
        out, few = np.empty(len(wanted), self.dtype), max(1, RUN // wanted.step)
        for first in range(0, len(wanted), few):
            part = wanted[first : first + few]
            out[first : first + few] = self._run(part[0], part[-1] + 1)[:: wanted.step]
        return out

    def runs(self) -> Iterator[NDArray[Any]]:
        """Read everything, a run at a time."""
        for first in range(0, self._count, RUN):
            yield self._run(first, min(first + RUN, self._count))

    def first_above(self, value: int) -> int:
        """Find the first number of a rising file that is larger than `value`."""
        low, high = 0, self._count
        while high - low > RUN >> 8:  # then one read is cheaper than some more steps
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(middle) > value else (middle + 1, high)
        return low + int(np.searchsorted(self._run(low, high), self.dtype.type(value), side="right"))

    @property
    def _end(self) -> int:
        return self._offset + self._count * self.dtype.itemsize

    @cached_property
    def _mapped(self) -> NDArray[Any]:
        if not self._count:
            return np.empty(0, self.dtype)
        try:
            mapped = mmap.mmap(self._fd, self._end, access=mmap.ACCESS_READ)
        except (OSError, ValueError, OverflowError) as error:
            hint = "`ulimit -v` and `sysctl vm.max_map_count` limit what a process may map"
            raise StoreError(f"{self.path}: cannot be mapped: {error}", hint=hint) from None
        return np.frombuffer(mapped, self.dtype, self._count, self._offset)

    def _run(self, first: int, stop: int) -> NDArray[Any]:
        out = np.empty(stop - first, self.dtype)
        rest, offset = out.view(np.uint8).data, self._offset + first * self.dtype.itemsize
        while len(rest):
            try:
                done = os.preadv(self._fd, [rest], offset)
            except OSError as error:
                hint = "the disk or the network file system fails; copy the store from a good copy"
                raise StoreError(f"{self.path}: cannot be read: {error.strerror}", hint=hint) from error
            if not done:
                raise self._shrunk()
            rest, offset = rest[done:], offset + done
        return out

    def _shrunk(self) -> StoreError:
        return StoreError(f"{self.path}: became shorter after it was opened", hint=SHRUNK)


class EverySecond:
    """The first one of each pair in a file of pairs; what `Ends` asks of numbers."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers, self.path = numbers, numbers.path

    def __len__(self) -> int:
        return len(self._numbers) // 2

    def at(self, place: int) -> int:
        """Read one number."""
        return self._numbers.at(2 * place)

    def read(self, wanted: range) -> NDArray[Any]:
        """Copy the numbers at some neighbouring places."""
        return self._numbers.read(range(2 * wanted.start, 2 * wanted.stop, 2)) if wanted else self._numbers.read(wanted)

    def first_above(self, value: int) -> int:
        """Find the first number of a rising file that is larger than `value`."""
        return bisect_right(range(len(self)), value, key=self.at)


def open_framed(path: Path, kind: str) -> tuple[Frame, int]:
    """Open one of our files, and check its frame."""
    fd = disk.open_regular(path)
    try:
        return parse_frame(path, os.pread(fd, FRAME_BYTES, 0), os.fstat(fd).st_size, kind), fd
    except BaseException:
        os.close(fd)
        raise


def open_body(path: Path, kind: str) -> tuple[Frame, Numbers]:
    """Read and check the frame of one of our files, and open the numbers after it."""
    frame, fd = open_framed(path, kind)
    return frame, Numbers(path, fd, frame.entry, FRAME_BYTES, frame.words)
