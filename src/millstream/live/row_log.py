"""Which position each row of each step was: 16 bytes a row, so that any step can be explained later.

rows.bin      the origins of all rows (`ORIGIN`), step by step
rows.idx      for each step the number of rows up to its end, a hash of its origins, what batch and epoch it was, and a
              check of all this (`STEP`)
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream._core import xxh64
from millstream.errors import ClosedError, LoaderError, StoreError
from millstream.games import ORIGIN
from millstream.storage import disk

logger = logging.getLogger("millstream.live")
STEP = np.dtype([("end", "<u8"), ("hash", "<u8"), ("batch", "<u4"), ("epoch", "<u4"), ("check", "<u8")])
_SALT, _ODD = np.uint64(0x6D696C6C73747265), np.uint64(0x9E3779B97F4A7C15)
REMEMBERED = 256
"""Steps that are remembered where there is no folder."""
OTHERS = "other steps may still be whole"
FREE_SPACE = "free some space, then go on from the last state"


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step."""

    origins: npt.NDArray[np.void]
    """Of all ranks."""
    batch_size: int
    """Rows of each rank; the last ones may have fewer."""
    epoch: int

    def of_rank(self, rank: int) -> npt.NDArray[np.void]:
        """The rows of a rank."""
        return self.origins[rank * self.batch_size : (rank + 1) * self.batch_size]


def hash_of(origins: npt.NDArray[np.void]) -> int:
    """What tells the rows of a step from others."""
    return xxh64(np.ascontiguousarray(origins).view(np.uint8))


def _entries(*told: tuple[int, int, int, int]) -> npt.NDArray[np.void]:
    """Entries of steps, each with its check."""
    entries = np.array([(*each, 0) for each in told], STEP)
    entries["check"] = _checks(entries)
    return entries


def _checks(entries: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """What tells entries from damaged ones: a change of one word always shows, others but for 1 in 2**64.

    Of all entries at once: those of a long run are looked at whenever it goes on.
    """
    words = np.ascontiguousarray(entries).view("<u8").reshape(-1, STEP.itemsize // 8)
    mixed = np.full(len(words), _SALT, np.uint64)
    for word in words[:, :-1].T:
        mixed = (mixed ^ word) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _is_whole(entry: np.void) -> bool:
    return bool(entry["check"] == _checks(np.atleast_1d(entry))[0])


class RowLog:
    """Remembers the rows of steps, in a folder or the last ones in memory.

    >>> rows = RowLog(None)
    >>> rows.append(StepRows(np.zeros(3, ORIGIN), batch_size=2, epoch=0))
    >>> len(rows), rows[0].of_rank(1)["ply"].tolist()
    (1, [0])

    Args:
        folder: Where it lies; None: in memory.
        steps: How many steps to keep of what lies there.
    """

    NAMES = ("rows.bin", "rows.idx")

    def __init__(self, folder: Path | None, steps: int = 0) -> None:
        self._recent: OrderedDict[int, StepRows] = OrderedDict()
        self.first = self._steps = steps
        self._rows, self._files = 0, list[int]()
        self._folder, self._guard = folder, threading.Lock()
        if folder is None:
            return
        with disk.reported(folder, full=FREE_SPACE):
            disk.make_directory(folder)
            for name in self.NAMES:
                path = folder / name
                self._files.append(disk.reopen(path) if path.exists() else disk.create(path))
            self._rows = self._kept(steps)
            disk.truncate(self._files[0], self._rows * ORIGIN.itemsize)
            disk.truncate(self._files[1], steps * STEP.itemsize)

    @classmethod
    def recorded(cls, folder: Path) -> RowLog:
        """What a run remembers in a folder, for whoever only looks; the run may go on meanwhile."""
        rows = cls(None)
        with disk.reported(folder, full=FREE_SPACE):
            rows._files = [os.open(folder / name, os.O_RDONLY) for name in cls.NAMES]
        rows._folder, rows._steps = folder, os.fstat(rows._files[1]).st_size // STEP.itemsize
        return rows

    @property
    def _room(self) -> int:
        """Rows that there are."""
        return os.fstat(self._files[0]).st_size // ORIGIN.itemsize

    def _data(self, begin: int, end: int) -> bytes:
        return os.pread(self._files[0], (end - begin) * ORIGIN.itemsize, begin * ORIGIN.itemsize)

    def _kept(self, steps: int) -> int:
        """How many rows the first steps have; the places of those at the end whose rows are not there become empty."""
        room = self._room
        found = os.pread(self._files[1], steps * STEP.itemsize, 0)
        entries = np.frombuffer(found, STEP, len(found) // STEP.itemsize)
        ends = entries["end"].astype(np.int64)
        there = np.where((ends <= room) & (entries["check"] == _checks(entries)), ends, -1)
        whole = (there >= 0) & (there == np.maximum.accumulate(there))
        kept = int(np.flatnonzero(whole)[-1]) + 1 if whole.any() else 0
        rows = int(ends[kept - 1]) if kept else 0
        if kept < steps:
            empty = _entries(*[(rows, 0, 0, 0)] * (steps - kept))
            disk.write(self._files[1], empty.tobytes(), kept * STEP.itemsize)
        if missing := steps - int(whole.sum()):
            name = self.NAMES[0 if (ends[kept:] > room).any() else 1]
            logger.warning(
                "%s: the rows of %d of the first %d steps are damaged or missing; these steps cannot be explained",
                *(Path(self._folder or "", name), missing, steps),
            )
        elif steps:
            self._look_at(steps - 1)
        return rows

    def _look_at(self, step: int) -> None:
        """Warn of a step whose rows are not those that were written."""
        try:
            self[step]
        except StoreError as error:
            logger.warning("%s", error.message)
        except LoaderError:  # it was empty before
            pass

    @property
    def oldest_chunk(self) -> int | None:
        """Of what is remembered in memory, the oldest game."""
        return min(
            (int(step.origins["chunk"].min()) for step in self._recent.values() if len(step.origins)), default=None
        )

    def __len__(self) -> int:
        """How many steps there were."""
        return self._steps

    def __contains__(self, step: int) -> bool:
        """Whether a step is in memory."""
        return step in self._recent

    def append(self, step: StepRows) -> None:
        """Remember the rows of the next step."""
        if self._folder is None:
            self._recent[self._steps] = step
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
        else:
            end = self._rows + len(step.origins)
            entry = _entries((end, hash_of(step.origins), step.batch_size, step.epoch))
            with self._guard, disk.reported(self._folder, full=FREE_SPACE):
                if not self._files:
                    raise ClosedError("the rows of the run were closed", hint="make another loader")
                disk.write(self._files[0], step.origins.tobytes(), self._rows * ORIGIN.itemsize)
                disk.write(self._files[1], entry.tobytes(), self._steps * STEP.itemsize)
            self._rows = end
        self._steps += 1

    def __getitem__(self, step: int) -> StepRows:
        if not 0 <= step < self._steps:
            raise LoaderError(f"step {step} was not made yet", hint=f"steps before {self._steps} can be explained")
        if self._folder is None:
            if step not in self._recent:
                raise LoaderError(
                    f"step {step} is forgotten: without a folder the last {REMEMBERED} steps are remembered",
                    hint="pass cache_dir=, a folder beside the checkpoints",
                )
            return self._recent[step]
        entry, before = self._entry(step), self._entry(step - 1) if step else None
        if entry is None or (_is_whole(entry) and not entry["batch"]):
            raise LoaderError(
                f"step {step} is forgotten: its rows are not in {self._folder}", hint="keep cache_dir whole"
            )
        end, begin = int(entry["end"]), 0 if before is None else int(before["end"])
        if not _is_whole(entry) or end < begin or end > self._room:
            where = self._folder / "rows.idx"
            raise StoreError(f"{where}: the entry of step {step} is damaged", hint=OTHERS)
        data = self._data(begin, end)
        if xxh64(np.frombuffer(data, np.uint8)) != int(entry["hash"]):
            where = self._folder / "rows.bin"
            raise StoreError(f"{where}: the rows of step {step} are damaged", hint=OTHERS)
        return StepRows(np.frombuffer(data, ORIGIN), int(entry["batch"]), int(entry["epoch"]))

    def sync(self) -> None:
        """Wait until it is on the disk: a state is saved."""
        if self._folder is not None:
            with disk.reported(self._folder, full=FREE_SPACE):
                for file in self._files:
                    disk.sync(file)

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            while self._files:
                os.close(self._files.pop())

    def _entry(self, step: int) -> np.void | None:
        found = os.pread(self._files[1], STEP.itemsize, step * STEP.itemsize)
        return np.frombuffer(found, STEP)[0] if len(found) == STEP.itemsize else None
