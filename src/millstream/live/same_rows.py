"""What a rank delivers, compared with what the first one has written down: ranks that go apart are noticed.

Whatever sets them apart, such as a file that one of them could still read and another could not, shows here.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError
from millstream.live.row_log import STEP, RowLog, hash_of
from millstream.storage import RecordLog, are_whole

MOST = 4096
"""Steps that the first rank may lie behind and are compared when it has made them."""


class SameRows:
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
