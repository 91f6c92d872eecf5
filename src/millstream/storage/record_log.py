"""A log of records of one width, each with a check of itself: a torn or damaged record is noticed.

A record is an item of a numpy dtype that `record_type` makes. Record n lies at byte n times the width, so each is found
without reading the others, and a damaged one costs only itself. One process writes, or several that write the same
records; others may read at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from millstream.storage.durable import disk

CHECK = "check"
_SALT, _ODD = np.uint64(0x6D696C6C73747265), np.uint64(0x9E3779B97F4A7C15)

Records = npt.NDArray[np.void]


def record_type(*fields: tuple[str, str]) -> np.dtype[np.void]:
    """The type of records with these fields, which fill whole words of 64 bits, and a check after them.

    >>> record_type(("start", "<i8"), ("stop", "<i8")).itemsize
    24
    """
    kind = np.dtype([*fields, (CHECK, "<u8")])
    if kind.itemsize % 8:
        raise ValueError(f"the fields of a record fill {kind.itemsize - 8} bytes, not whole words of 8")
    return kind


def records_of(kind: np.dtype[np.void], *values: Sequence[Any]) -> Records:
    """Make records of the values of their fields, each with its check.

    >>> pairs = records_of(record_type(("start", "<i8"), ("stop", "<i8")), (0, 10), (10, 15))
    >>> pairs["stop"] += 1
    >>> are_whole(pairs).tolist()
    [False, False]
    """
    records = np.array([(*each, 0) for each in values], kind)
    records[CHECK] = _checks(records)
    return records


def are_whole(records: Records) -> npt.NDArray[np.bool_]:
    """Which of these records are as they were written."""
    return np.asarray(records[CHECK] == _checks(records))


def _checks(records: Records) -> npt.NDArray[np.uint64]:
    """The checks of records: a change of one word always changes it, other changes but for 1 in 2**64.

    Computed for all records at once, since a run that resumes checks all of them.
    """
    words = np.ascontiguousarray(records).view("<u8").reshape(-1, records.dtype.itemsize // 8)
    mixed = np.full(len(words), _SALT, np.uint64)
    for word in words[:, :-1].T:
        mixed = (mixed ^ word) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


class RecordLog:
    """The records of a file, by their numbers.

    >>> import tempfile
    >>> kind = record_type(("start", "<i8"), ("stop", "<i8"))
    >>> with RecordLog(Path(tempfile.mkdtemp()) / "pairs", kind) as log:
    ...     log.write(0, records_of(kind, (0, 10), (10, 15)))
    ...     len(log), log.read(1)["stop"].tolist()
    (2, [15])

    Args:
        path: The file; it is made if it is not there.
        kind: The type of its records.
        writes: Whether records are written; otherwise the file must be there.
    """

    def __init__(self, path: Path, kind: np.dtype[np.void], *, writes: bool = True) -> None:
        self.path, self.kind = path, kind
        if not writes:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            self._fd = disk.reopen(path) if path.exists() else disk.create(path)

    def __len__(self) -> int:
        """How many records there are, damaged ones too; a torn one at the end is none."""
        return os.fstat(self._fd).st_size // self.kind.itemsize

    def read(self, first: int = 0, most: int | None = None) -> Records:
        """The records from number `first` on, at most so many; those of them that are there, whole or not."""
        most = max(0, len(self) - first) if most is None else most
        found = os.pread(self._fd, most * self.kind.itemsize, first * self.kind.itemsize)
        return np.frombuffer(found, self.kind, len(found) // self.kind.itemsize)

    def write(self, first: int, records: Records) -> None:
        """Write records from number `first` on."""
        disk.write(self._fd, records.tobytes(), first * self.kind.itemsize)

    def cut(self, count: int) -> None:
        """Remove all records but the first `count`, and a torn one."""
        disk.truncate(self._fd, count * self.kind.itemsize)

    def sync(self) -> None:
        """Wait until the records are on the disk."""
        disk.sync(self._fd)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
