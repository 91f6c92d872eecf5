"""Which position each row of each step was: 16 bytes a row, so that any step can be explained later.

rows.bin      the origins of all rows (`ORIGIN`), step by step
rows.idx      for each step the number of rows up to its end, and a hash of its origins
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
from millstream.store import disk

logger = logging.getLogger("millstream.live")
STEP = np.dtype([("end", "<u8"), ("hash", "<u8"), ("batch", "<u4"), ("epoch", "<u4")])
REMEMBERED = 256
"""Steps that are remembered where there is no folder."""
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
        self._steps, self._rows, self._files = steps, 0, list[int]()
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

    def _kept(self, steps: int) -> int:
        """How many rows the first steps have; the places of those at the end whose rows are not there become empty."""
        room = os.fstat(self._files[0]).st_size // ORIGIN.itemsize
        found = os.pread(self._files[1], steps * STEP.itemsize, 0)
        ends = np.frombuffer(found, STEP, len(found) // STEP.itemsize)["end"].astype(np.int64)
        there = np.where(ends <= room, ends, -1)
        whole = (there >= 0) & (there == np.maximum.accumulate(there))
        kept = int(np.flatnonzero(whole)[-1]) + 1 if whole.any() else 0
        rows = int(ends[kept - 1]) if kept else 0
        if kept < steps:
            empty = np.zeros(steps - kept, STEP)
            empty["end"] = rows
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
            entry = np.array([(end, hash_of(step.origins), step.batch_size, step.epoch)], STEP)
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
        if entry is None or not entry["batch"]:
            raise LoaderError(
                f"step {step} is forgotten: its rows are not in {self._folder}", hint="keep cache_dir whole"
            )
        end, begin = int(entry["end"]), 0 if before is None else int(before["end"])
        if end < begin or end * ORIGIN.itemsize > os.fstat(self._files[0]).st_size:
            where = self._folder / "rows.idx"
            raise StoreError(f"{where}: the entry of step {step} is damaged", hint="other steps may still be whole")
        data = os.pread(self._files[0], (end - begin) * ORIGIN.itemsize, begin * ORIGIN.itemsize)
        if xxh64(np.frombuffer(data, np.uint8)) != int(entry["hash"]):
            where = self._folder / "rows.bin"
            raise StoreError(f"{where}: the rows of step {step} are damaged", hint="other steps may still be whole")
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
