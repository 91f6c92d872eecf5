"""TensorGenerator: shuffled positions -> batches of tensors, in buffers of a pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream._core import Budget, BytePool
from millstream.errors import BudgetError, Stopped
from millstream.games import FrameBlock, fill_tensors
from millstream.live.frame_shuffler import Moves, Shuffled
from millstream.stages import MapStage, Queue, Stage

SHAPES = ((112, 8, 8), (1858,), (6, 3))
ROW_FLOATS = [int(np.prod(shape)) for shape in SHAPES]
ALIGN = 16
"""Floats: a cache line."""
PAUSE_S = 0.002
"""Between two looks for a buffer that came back."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """A batch of this rank, and what making it did to the reservoir, on all ranks."""

    planes: npt.NDArray[np.float32]
    policy: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    origins: npt.NDArray[np.void]
    """Where every row of the step is from, on all ranks."""
    rows: tuple[int, int]
    """Which of them are in this batch."""
    moves: list[Moves]


class TensorGenerator(MapStage[Shuffled, Tensors]):
    """Collects a batch for each rank, and makes tensors of its own.

    Args:
        source: Gives positions.
        batch_size: Rows of each rank.
        rank: Whose rows these are.
        world_size: How many ranks there are.
        drop_last: Leave out a last batch that is not full; it is counted.
        budget: Bytes that batches may take, those in the user's hands too.
        skip: Steps of so many rows that were given out before: they are counted, and not made.
    """

    takes, gives = Shuffled, Tensors

    def __init__(
        self,
        source: Queue[Shuffled] | Stage[Shuffled],
        *,
        batch_size: int = 1024,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        budget: Budget | None = None,
        skip: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(source, **{"capacity": 2, **settings, "threads": 1})
        self.batch_size, self._rank, self._ranks, self._drop_last = batch_size, rank, world_size, drop_last
        self._offsets = np.cumsum([0, *(-(-size * batch_size // ALIGN) * ALIGN for size in ROW_FLOATS)])
        self._pool = BytePool(int(self._offsets[-1]) * 4, budget or Budget(), 4)
        self._waiting: list[Shuffled] = []
        self._rows, self._skip = 0, skip

    def process(self, item: Shuffled) -> Iterator[Tensors]:
        """Add positions; gives every step that is full."""
        step = self.batch_size * self._ranks
        while self._rows + len(item) >= step:
            head, item = item.split(step - self._rows)
            yield from self._made([*self._waiting, head])
            self._waiting, self._rows = [], 0
        self._waiting.append(item)
        self._rows += len(item)

    def finish(self) -> Iterator[Tensors]:
        """The rest, which is not full."""
        if self._drop_last and self._rows:
            self.count("last batch not full", self._rows)
        elif self._rows:
            yield from self._made(self._waiting)

    def _made(self, pieces: list[Shuffled]) -> Iterator[Tensors]:
        if self._skip:
            self._skip -= 1
            return
        blocks = [piece.frames for piece in pieces]
        total = sum(map(len, blocks))
        start, stop = (min(rank * self.batch_size, total) for rank in (self._rank, self._rank + 1))
        arrays = self._arrays(stop - start)
        row = -start
        for block in blocks:
            self._fill(block, row, arrays)
            row += len(block)
        origins = np.concatenate([block.origins for block in blocks])
        yield Tensors(*arrays, origins=origins, rows=(start, stop), moves=[piece.moves for piece in pieces])

    def _fill(self, block: FrameBlock, row: int, arrays: list[npt.NDArray[np.float32]]) -> None:
        """Fill the rows from `row` on with those frames of a block that are ours."""
        rows = len(arrays[0])
        first, last = max(0, -row), min(len(block), rows - row)
        if first < last:
            ours = block if (first, last) == (0, len(block)) else block.select(range(first, last))
            fill_tensors(ours, *(array[row + first : row + last] for array in arrays))

    def _arrays(self, rows: int) -> list[npt.NDArray[np.float32]]:
        while (buffer := self._pool.take()) is None:
            if not self._pool.out:
                raise BudgetError("no batch fits into the memory budget", hint="raise memory_budget, or shrink batches")
            if self.stopping.wait(PAUSE_S):
                raise Stopped("the stage was stopped", hint="begin again")
        floats = buffer.view(np.float32)
        return [
            floats[offset : offset + rows * size].reshape(rows, *shape)
            for offset, size, shape in zip(self._offsets, ROW_FLOATS, SHAPES, strict=False)
        ]
