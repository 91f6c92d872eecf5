"""Which position each row of each step was: 16 bytes a row, so that any step can be explained later.

rows.bin      the origins of all rows (`ORIGIN`), step by step
rows.idx      for each step the number of rows up to its end, and a hash of its origins
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream._core import xxh64
from millstream.errors import LoaderError, StateError, StoreError
from millstream.games import ORIGIN
from millstream.store import disk

STEP = np.dtype([("end", "<u8"), ("hash", "<u8")])
REMEMBERED = 256
"""Steps that are remembered where there is no folder."""
FREE_SPACE = "free some space, then go on from the last state"
Origins = npt.NDArray[np.void]


class RowLog:
    """Remembers the rows of steps, in a folder or the last ones in memory.

    >>> rows = RowLog(None)
    >>> rows.append(np.zeros(3, ORIGIN))
    >>> len(rows), rows[0]["ply"].tolist()
    (1, [0, 0, 0])

    Args:
        folder: Where it lies; None: in memory.
        steps: How many steps to keep of what lies there.
    """

    def __init__(self, folder: Path | None, steps: int = 0) -> None:
        self._recent: OrderedDict[int, Origins] = OrderedDict()
        self._steps, self._rows, self._files = steps, 0, list[int]()
        self._folder = folder
        if folder is None:
            return
        with disk.reported(folder, full=FREE_SPACE):
            disk.make_directory(folder)
            for name in ("rows.bin", "rows.idx"):
                path = folder / name
                self._files.append(disk.reopen(path) if path.exists() else disk.create(path))
            self._rows = int(self._step(steps - 1)["end"]) if steps else 0
            disk.truncate(self._files[0], self._rows * ORIGIN.itemsize)
            disk.truncate(self._files[1], steps * STEP.itemsize)

    def __len__(self) -> int:
        """How many steps there were."""
        return self._steps

    def append(self, origins: Origins) -> None:
        """Remember the rows of the next step."""
        if self._folder is None:
            self._recent[self._steps] = origins
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
        else:
            data = np.ascontiguousarray(origins).view(np.uint8)
            step = np.array([(self._rows + len(origins), xxh64(data))], STEP)
            with disk.reported(self._folder, full=FREE_SPACE):
                disk.write(self._files[0], data.tobytes(), self._rows * ORIGIN.itemsize)
                disk.write(self._files[1], step.tobytes(), self._steps * STEP.itemsize)
            self._rows += len(origins)
        self._steps += 1

    def __getitem__(self, step: int) -> Origins:
        if not 0 <= step < self._steps:
            raise LoaderError(f"step {step} was not made yet", hint=f"steps before {self._steps} can be explained")
        if self._folder is None:
            if step not in self._recent:
                raise LoaderError(
                    f"step {step} is forgotten: without a folder the last {REMEMBERED} steps are remembered",
                    hint="pass cache_dir=, a folder beside the checkpoints",
                )
            return self._recent[step]
        entry = self._step(step)
        end, expected = int(entry["end"]), int(entry["hash"])
        begin = int(self._step(step - 1)["end"]) if step else 0
        data = os.pread(self._files[0], (end - begin) * ORIGIN.itemsize, begin * ORIGIN.itemsize)
        if end < begin or xxh64(np.frombuffer(data, np.uint8)) != expected:
            raise StoreError(
                f"{self._folder / 'rows.bin'}: the rows of step {step} are damaged", hint="see a copy of it"
            )
        return np.frombuffer(data, ORIGIN)

    def sync(self) -> None:
        """Wait until it is on the disk: a state is saved."""
        if self._folder is not None:
            with disk.reported(self._folder, full=FREE_SPACE):
                for file in self._files:
                    disk.sync(file)

    def close(self) -> None:
        """Let go of the files."""
        while self._files:
            os.close(self._files.pop())

    def _step(self, step: int) -> np.void:
        found = os.pread(self._files[1], STEP.itemsize, step * STEP.itemsize)
        if len(found) < STEP.itemsize:
            raise StateError(
                f"{self._folder}: the rows of step {step} are missing",
                hint="take a state that was saved with this folder",
            )
        return np.frombuffer(found, STEP)[0]  # type: ignore[no-any-return]
