"""TensorGenerator: shuffled positions -> batches of tensors, in buffers that are used again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.errors import BudgetError, LoaderError, Stopped
from millstream.games import FrameBlock, fill_boards, fill_tensors, join_records
from millstream.selfplay.chunk_feed.frame_shuffler import ReservoirMoves, Shuffled
from millstream.settings import at_least, byte_count
from millstream.stages import Budget, BytePool, MapStage, Queue, Stage

Output = Literal["float32", "float16", "boards"]
_FLOATS = ((112, 8, 8), (1858,), (6, 3))
LAYOUTS: dict[str, list[tuple[tuple[int, ...], str]]] = {
    "float32": [(shape, "<f4") for shape in _FLOATS],
    "float16": [(shape, "<f2") for shape in _FLOATS],
    "boards": [((112,), "<u8"), ((1858,), "<f2"), ((6, 3), "<f2"), ((), "<f4")],
}
"""Planes, policy and values of a row; boards also have what their plane of the rule of 50 moves stands for."""
ALIGN = 64
"""Bytes: a cache line."""
PAUSE_S = 0.002
"""Between two looks for a buffer that came back."""
SMALL = 32
"""Frames that are copied in less time than a call takes."""
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tensors:
    """A batch of one rank, and where all rows of the step are from."""

    planes: Numbers
    policy: Numbers
    values: Numbers
    rule50: Numbers | None
    """Of boards."""
    origins: npt.NDArray[np.void]
    """Where every row of the step is from, on all ranks."""
    rows: tuple[int, int]
    """Which of them are in this batch."""
    batch_size: int
    """Rows of each rank; the last ones may have fewer."""
    pieces: list[Shuffled]
    """What it was made of, and what that did to the reservoir."""

    @property
    def moves(self) -> list[ReservoirMoves]:
        """What happened to the reservoir."""
        return [piece.moves for piece in self.pieces]


class TensorGenerator(MapStage[Shuffled, Tensors]):
    """Collects a batch for each rank, and makes tensors of its own.

    >>> from millstream.games import example_games
    >>> from millstream.selfplay.chunk_feed.frame_shuffler import FrameShuffler
    >>> games = Queue()
    >>> shuffled = FrameShuffler(games, frames=100)
    >>> batches = TensorGenerator(shuffled, batch_size=16)
    >>> shuffled.start(), batches.start()
    (None, None)
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(2, plies=12))
    >>> [batch.planes.shape for batch in batches.output()]
    [(16, 112, 8, 8), (8, 112, 8, 8)]

    Args:
        input: Gives positions.
        batch_size: Rows of each rank.
        rank: Whose rows these are.
        world_size: How many ranks there are.
        drop_last: Leave out a last batch that is not full; it is counted.
        memory_budget: Bytes that batches may take, those in the user's hands too.
        output: What tensors are made of: `"float32"`, `"float16"`, or `"boards"`, planes as 64 bits each.
        settings: As for every stage.
    """

    takes, gives = Shuffled, Tensors
    one_thread = True

    def __init__(
        self,
        input: Queue[Shuffled] | Stage[Shuffled],
        *,
        batch_size: int = 1024,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        memory_budget: int | None = None,
        output: Output = "float32",
        **settings: Any,
    ) -> None:
        batch_size = at_least("batch_size", batch_size, hint="it counts the rows of one rank; 1024 is a usual one")
        rank, world_size = _checked_ranks(rank, world_size)
        super().__init__(input, **{"capacity": 2, **settings})
        budget = Budget() if memory_budget is None else Budget(byte_count("memory_budget", memory_budget))
        self._maker = TensorMaker(batch_size, rank, budget, self.stopping.wait, output)
        self._step, self._drop_last = batch_size * world_size, drop_last
        self._waiting: list[Shuffled] = []
        self._rows = 0

    def process(self, item: Shuffled) -> Iterator[Tensors]:
        """Add positions; gives every step that is full."""
        self._waiting.append(item)
        self._rows += len(item)
        while self._rows >= self._step:
            self._rows -= self._step
            yield self._maker.make(take_rows(self._waiting, self._step))

    def finish(self) -> Iterator[Tensors]:
        """The rest, which is not full."""
        if self._rows and not self._drop_last:
            yield self._maker.make(take_rows(self._waiting, self._rows))
        elif self._rows:
            self.count("last batch not full", self._rows)


class TensorMaker:
    """Makes batches of a size.

    Args:
        batch_size: Rows of each rank.
        rank: Whose rows are made.
        budget: Bytes that batches may take, those in the user's hands too.
        stopping: Waits so many seconds, and says whether to wait no longer for a buffer.
        output: What tensors are made of: numbers of 32 or 16 bits, or planes as boards of 64 bits.
    """

    def __init__(
        self,
        batch_size: int,
        rank: int,
        budget: Budget,
        stopping: Callable[[float], bool],
        output: Output = "float32",
    ) -> None:
        if output not in LAYOUTS:
            raise LoaderError(f"output={output!r} is unknown", hint=f"use one of {', '.join(LAYOUTS)}")
        self.batch_size, self._rank, self._stopping = batch_size, rank, stopping
        self._layout, self._offsets = LAYOUTS[output], buffer_offsets(output, batch_size)
        self._pool = BytePool(self._offsets[-1], budget, 4)

    def make(self, pieces: list[Shuffled]) -> Tensors:
        """The batch of this rank of a step that is made of these positions."""
        blocks = [piece.frames for piece in pieces]
        total = sum(map(len, blocks))
        start, stop = (min(rank * self.batch_size, total) for rank in (self._rank, self._rank + 1))
        arrays = self._arrays(stop - start)
        row = -start
        for block in _joined(blocks):
            _fill(block, row, arrays)
            row += len(block)
        origins = join_records([block.origins for block in blocks])
        planes, policy, values, *rule50 = arrays
        whole = rule50[0] if rule50 else None
        return Tensors(planes, policy, values, whole, origins, (start, stop), self.batch_size, pieces)

    def _arrays(self, rows: int) -> list[Numbers]:
        while (buffer := self._buffer()) is None:
            if not self._pool.out:
                raise BudgetError("no batch fits into the memory budget", hint="raise memory_budget, or shrink batches")
            if self._stopping(PAUSE_S):
                raise Stopped("waiting for this batch was stopped", hint="begin again")
        return [
            buffer[offset:][: rows * math.prod(shape) * np.dtype(kind).itemsize].view(kind).reshape(rows, *shape)
            for offset, (shape, kind) in zip(self._offsets, self._layout, strict=False)
        ]

    def _buffer(self) -> npt.NDArray[np.uint8] | None:
        """Memory for a batch; None: those who hold what the budget allows have to give some back."""
        try:
            return self._pool.take()
        except MemoryError:
            raise BudgetError(
                f"a batch of batch_size={self.batch_size} takes {self._offsets[-1]:,} bytes, which are not to be had",
                hint='pass a smaller batch_size, or output="boards", which takes the least',
            ) from None


def buffer_offsets(output: Output, batch_size: int) -> list[int]:
    """Where the tensors of a batch begin in its buffer; behind the last one, its bytes."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize * batch_size for shape, kind in LAYOUTS[output]]
    return list(accumulate((-(-size // ALIGN) * ALIGN for size in sizes), initial=0))


def _joined(blocks: list[FrameBlock]) -> list[FrameBlock]:
    """The same frames in one block, where many small ones would each cost a call."""
    return [FrameBlock.concat(blocks)] if sum(map(len, blocks)) < SMALL * len(blocks) else blocks


def _fill(block: FrameBlock, row: int, arrays: Sequence[Numbers]) -> None:
    """Fill the rows from `row` on with those frames of a block that have a row here."""
    first, last = max(0, -row), min(len(block), len(arrays[0]) - row)
    if first < last:
        ours = block if (first, last) == (0, len(block)) else block.part(first, last)
        _fill_all(ours, *(array[row + first : row + last] for array in arrays))


def _fill_all(
    block: FrameBlock, planes: Numbers, policy: Numbers, values: Numbers, rule50: Numbers | None = None
) -> None:
    if rule50 is None:
        fill_tensors(block, planes, policy, values)
    else:
        fill_boards(block, planes, rule50)
        whole = block.policy()
        whole[np.isnan(whole)] = -1  # by which old files say illegal
        policy[:], values[:] = whole, block.values()


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


def _checked_ranks(rank: object, world_size: object) -> tuple[int, int]:
    hint = "ranks count from 0; pass both rank= and world_size=, or neither"
    place, ranks = at_least("rank", rank, hint, least=0), at_least("world_size", world_size, hint)
    if place >= ranks:
        raise LoaderError(f"rank {place} is outside 0..{ranks - 1}", hint=hint)
    return place, ranks
