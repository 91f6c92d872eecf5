"""Log of the origin (game, ply) of every row: 16 bytes a row, so that any step can be explained later.

rows.bin      the origins of all rows (`ORIGIN`), step by step
rows.idx      a record log (`storage/record_log.py`): for each step the number of rows up to its end, a hash of its
              origins, its batch size and its epoch (`STEP`)

`RankConsistencyCheck` compares what a follower delivers with these hashes, which the leader writes. It notices ranks
that differ, for instance because one of them could not read a file.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.errors import ClosedError, LoaderError, StoreError
from millstream.games import ORIGIN
from millstream.storage import RecordLog, are_whole, disk, record_type, records_of, xxh64

logger = logging.getLogger("millstream.selfplay")
STEP = record_type(("end", "<u8"), ("hash", "<u8"), ("batch", "<u4"), ("epoch", "<u4"))
REMEMBERED = 256
"""Steps that are remembered where there is no folder."""
OTHERS = "other steps may still be whole"
FREE_SPACE = "free some space, then go on from the last state"
MOST = 4096
"""Steps that the first rank may lie behind and are compared when it has made them."""


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
        self.first = self._steps = steps
        self._rows, self._bin = 0, -1
        self._index: RecordLog | None = None
        self._folder, self._guard = folder, threading.Lock()
        if folder is None:
            return
        with disk.reported(folder, full=FREE_SPACE):
            disk.make_directory(folder)
            path, index = (folder / name for name in self.NAMES)
            self._bin = disk.reopen(path) if path.exists() else disk.create(path)
            self._index = RecordLog(index, STEP)
            self._rows = self._kept(steps, self._index)
            disk.truncate(self._bin, self._rows * ORIGIN.itemsize)
            self._index.cut(steps)

    @classmethod
    def recorded(cls, folder: Path) -> RowLog:
        """What a run remembers in a folder, to be read only; the run may write at the same time."""
        rows = cls(None)
        with disk.reported(folder, full=FREE_SPACE):
            rows._bin = os.open(folder / cls.NAMES[0], os.O_RDONLY | os.O_CLOEXEC)
            rows._index = RecordLog(folder / cls.NAMES[1], STEP, writes=False)
        rows._folder, rows._steps = folder, len(rows._index)
        return rows

    @property
    def _room(self) -> int:
        """Rows that there are."""
        return os.fstat(self._bin).st_size // ORIGIN.itemsize

    def _data(self, begin: int, end: int) -> bytes:
        return os.pread(self._bin, (end - begin) * ORIGIN.itemsize, begin * ORIGIN.itemsize)

    def _kept(self, steps: int, index: RecordLog) -> int:
        """How many rows the first steps have; steps at the end whose rows are missing become empty."""
        room = self._room
        entries = index.read(0, steps)
        ends = entries["end"].astype(np.int64)
        there = np.where((ends <= room) & are_whole(entries), ends, -1)
        whole = (there >= 0) & (there == np.maximum.accumulate(there))
        kept = int(np.flatnonzero(whole)[-1]) + 1 if whole.any() else 0
        rows = int(ends[kept - 1]) if kept else 0
        if kept < steps:
            index.write(kept, records_of(STEP, *[(rows, 0, 0, 0)] * (steps - kept)))
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
            entry = records_of(STEP, (end, hash_of(step.origins), step.batch_size, step.epoch))
            with self._guard, disk.reported(self._folder, full=FREE_SPACE):
                if self._index is None:
                    raise ClosedError("the rows of the run were closed", hint="make another loader")
                disk.write(self._bin, step.origins.tobytes(), self._rows * ORIGIN.itemsize)
                self._index.write(self._steps, entry)
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
        before, entry, is_whole = self._entry(step)
        if entry is None or (is_whole and not entry["batch"]):
            raise LoaderError(
                f"step {step} is forgotten: its rows are not in {self._folder}", hint="keep cache_dir whole"
            )
        begin, end = before, int(entry["end"])
        if not is_whole or end < begin or end > self._room:
            where = self._folder / "rows.idx"
            raise StoreError(f"{where}: the entry of step {step} is damaged", hint=OTHERS)
        data = self._data(begin, end)
        if xxh64(np.frombuffer(data, np.uint8)) != int(entry["hash"]):
            where = self._folder / "rows.bin"
            raise StoreError(f"{where}: the rows of step {step} are damaged", hint=OTHERS)
        return StepRows(np.frombuffer(data, ORIGIN), int(entry["batch"]), int(entry["epoch"]))

    def sync(self) -> None:
        """Wait until it is on the disk: a state is saved."""
        if self._folder is not None and self._index is not None:
            with disk.reported(self._folder, full=FREE_SPACE):
                disk.sync(self._bin)
                self._index.sync()

    def close(self) -> None:
        """Close the files."""
        with self._guard:
            if self._index is not None:
                self._index.close()
                os.close(self._bin)
                self._index = None

    def _entry(self, step: int) -> tuple[int, np.void | None, bool]:
        """The rows before a step, its entry if it is there, and whether that is whole."""
        if self._index is None:
            raise ClosedError("the rows of the run were closed", hint="make another loader")
        found = self._index.read(max(0, step - 1), min(2, step + 1))
        if len(found) < min(2, step + 1):
            return 0, None, False
        return int(found[0]["end"]) if step else 0, found[-1], bool(are_whole(found)[-1])


class RankConsistencyCheck:
    """Compares steps as soon as both ranks have made them.

    Args:
        folder: Where the first rank writes its rows.
    """

    def __init__(self, folder: Path) -> None:
        self._index = folder / RowLog.NAMES[1]
        self._made: deque[tuple[int, int]] = deque(maxlen=MOST)

    def forget(self) -> None:
        """The run stands elsewhere."""
        self._made.clear()

    def check(self, step: int, origins: npt.NDArray[np.void]) -> None:
        """This rank is about to deliver a step, given by the rows of all ranks."""
        if not self._made or self._made[-1][0] != step:
            self._made.append((step, hash_of(origins)))
        with suppress(FileNotFoundError), RecordLog(self._index, STEP, writes=False) as index:
            while self._made and self._agrees(index, *self._made[0]):
                self._made.popleft()

    def _agrees(self, index: RecordLog, step: int, mine: int) -> bool:
        """Whether the first rank has made a step, and in the same way."""
        found = index.read(step, 1)
        if len(found) and not are_whole(found)[0]:  # still being written, or damaged: then there is nothing to compare
            return len(index) > step + 1
        if not len(found) or not (entry := found[0])["batch"]:
            return False
        if int(entry["hash"]) != mine:
            raise LoaderError(
                f"step {step} has other rows here than on rank 0",
                hint="keep files as long as they are in the window; go on from the last state on all ranks",
            )
        return True
