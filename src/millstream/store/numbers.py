"""A file of numbers: read by asking the system, or handed out as a view of the mapped file.

A mapped page that is gone ends the process; a read that comes back short is an error with a name. So our own code
reads, and a view is made only after a look at the size.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.format import FRAME_BYTES, Frame, parse_frame

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
    """Read and check the frame of one of our files, and open the numbers behind it."""
    frame, fd = open_framed(path, kind)
    return frame, Numbers(path, fd, frame.entry, FRAME_BYTES, frame.words)
