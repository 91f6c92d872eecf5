"""TensorGenerator: shuffled positions -> batches of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.errors import LoaderError
from millstream.live.frame_shuffler import Shuffled
from millstream.live.tensor_maker import Output, TensorMaker, Tensors, take_rows
from millstream.settings import at_least, byte_count
from millstream.stages import Budget, MapStage, Queue, Stage


class TensorGenerator(MapStage[Shuffled, Tensors]):
    """Collects a batch for each rank, and makes tensors of its own.

    >>> from millstream.games import example_games
    >>> from millstream.live.frame_shuffler import FrameShuffler
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


def _checked_ranks(rank: object, world_size: object) -> tuple[int, int]:
    hint = "ranks count from 0; pass both rank= and world_size=, or neither"
    place, ranks = at_least("rank", rank, hint, least=0), at_least("world_size", world_size, hint)
    if place >= ranks:
        raise LoaderError(f"rank {place} is outside 0..{ranks - 1}", hint=hint)
    return place, ranks
