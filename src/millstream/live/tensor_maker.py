"""Positions -> the tensors of a batch, in buffers that are used again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream._core import Budget, BytePool
from millstream.errors import BudgetError, Stopped
from millstream.games import FrameBlock, fill_tensors
from millstream.games.block import join_records
from millstream.live.frame_shuffler import Moves, Shuffled

SHAPES = ((112, 8, 8), (1858,), (6, 3))
ROW_FLOATS = [int(np.prod(shape)) for shape in SHAPES]
ALIGN = 16
"""Floats: a cache line."""
PAUSE_S = 0.002
"""Between two looks for a buffer that came back."""
SMALL = 32
"""Frames that are copied in less time than a call takes."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tensors:
    """A batch of one rank, and where all rows of the step are from."""

    planes: Floats
    policy: Floats
    values: Floats
    origins: npt.NDArray[np.void]
    """Where every row of the step is from, on all ranks."""
    rows: tuple[int, int]
    """Which of them are in this batch."""
    batch_size: int
    """Rows of each rank; the last ones may have fewer."""
    pieces: list[Shuffled]
    """What it was made of, and what that did to the reservoir."""

    @property
    def moves(self) -> list[Moves]:
        """What happened to the reservoir."""
        return [piece.moves for piece in self.pieces]


class TensorMaker:
    """Makes batches of a size.

    Args:
        batch_size: Rows of each rank.
        rank: Whose rows are made.
        budget: Bytes that batches may take, those in the user's hands too.
        stopping: Waits so many seconds, and says whether to wait no longer for a buffer.
    """

    def __init__(self, batch_size: int, rank: int, budget: Budget, stopping: Callable[[float], bool]) -> None:
        self.batch_size, self._rank, self._stopping = batch_size, rank, stopping
        self._offsets = np.cumsum([0, *(-(-size * batch_size // ALIGN) * ALIGN for size in ROW_FLOATS)])
        self._pool = BytePool(int(self._offsets[-1]) * 4, budget, 4)

    def make(self, pieces: list[Shuffled]) -> Tensors:
        """The batch of this rank of a step that is made of these positions."""
        blocks = [piece.frames for piece in pieces]
        total = sum(map(len, blocks))
        start, stop = (min(rank * self.batch_size, total) for rank in (self._rank, self._rank + 1))
        planes, policy, values = arrays = self._arrays(stop - start)
        row = -start
        for block in _joined(blocks):
            _fill(block, row, arrays)
            row += len(block)
        origins = join_records([block.origins for block in blocks])
        return Tensors(planes, policy, values, origins, (start, stop), self.batch_size, pieces)

    def _arrays(self, rows: int) -> list[Floats]:
        while (buffer := self._pool.take()) is None:
            if not self._pool.out:
                raise BudgetError("no batch fits into the memory budget", hint="raise memory_budget, or shrink batches")
            if self._stopping(PAUSE_S):
                raise Stopped("nobody waits for this batch any more", hint="begin again")
        floats = buffer.view(np.float32)
        return [
            floats[offset : offset + rows * size].reshape(rows, *shape)
            for offset, size, shape in zip(self._offsets, ROW_FLOATS, SHAPES, strict=False)
        ]


def _joined(blocks: list[FrameBlock]) -> list[FrameBlock]:
    """The same frames in one block, where many small ones would each cost a call."""
    return [FrameBlock.concat(blocks)] if sum(map(len, blocks)) < SMALL * len(blocks) else blocks


def _fill(block: FrameBlock, row: int, arrays: Sequence[Floats]) -> None:
    """Fill the rows from `row` on with those frames of a block that have a row here."""
    first, last = max(0, -row), min(len(block), len(arrays[0]) - row)
    if first < last:
        ours = block if (first, last) == (0, len(block)) else block.part(first, last)
        fill_tensors(ours, *(array[row + first : row + last] for array in arrays))


def take_rows(waiting: list[Shuffled], rows: int) -> list[Shuffled]:
    """Take positions from the front of what waits: so many rows, or all there are."""
    taken: list[Shuffled] = []
    while waiting and (rows or not len(waiting[0])):
        piece = waiting.pop(0)
        if len(piece) > rows:
            piece, rest = piece.split(rows)
            waiting.insert(0, rest)
        taken.append(piece)
        rows -= len(piece)
    return taken
