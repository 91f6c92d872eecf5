"""FrameShuffler: positions of one game after the other -> positions of many games in random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.games import ORIGIN, FrameBlock, Game, Reservoir
from millstream.live.place import Place
from millstream.stages import MapStage, Queue, Stage

DRAINED = 1024
"""Positions that leave the reservoir at once when nothing more comes in."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What happened to the slots of a reservoir, as far as it concerns where frames are from."""

    filled: npt.NDArray[np.void]
    """Origins that went into free slots, first of all."""
    slots: npt.NDArray[np.uint32]
    """The slot of each frame that left."""
    arrivals: npt.NDArray[np.void]
    """The origin of what took its place; none when nothing came in: then the last slot's frame did."""
    place: Place | None
    """Where the game stands that they came from."""

    def split(self, rows: int) -> tuple[Moves, Moves]:
        """Cut them behind so many frames that left."""
        if rows == len(self.slots):
            return self, Moves(self.filled[:0], self.slots[:0], self.arrivals[:0], self.place)
        place = self.place and replace(self.place, used=self.place.used - (len(self.slots) - rows))
        head = Moves(self.filled, self.slots[:rows], self.arrivals[:rows], place)
        return head, Moves(self.filled[:0], self.slots[rows:], self.arrivals[rows:], self.place)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Frames that left the reservoir."""

    frames: FrameBlock
    moves: Moves

    def __len__(self) -> int:
        return len(self.frames)

    def split(self, rows: int) -> tuple[Shuffled, Shuffled]:
        """Cut it behind so many frames."""
        head, rest = self.moves.split(rows)
        if rows == len(self):
            return self, Shuffled(FrameBlock.empty(), rest)
        return Shuffled(self.frames.part(0, rows), head), Shuffled(self.frames.part(rows, len(self)), rest)


class FrameShuffler(MapStage[Game, Shuffled]):
    """Holds so many positions, and gives a random one for each that comes in; at the end, all that are left.

    >>> from millstream.games.example import example_games
    >>> games = Queue()
    >>> stage = FrameShuffler(games, frames=6, seed=1)
    >>> stage.start()
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(2, plies=4))
    >>> [piece.frames.origins["chunk"].tolist() for piece in stage.output()]
    [[], [0, 1], [1, 0, 1, 0, 1, 0]]

    Args:
        input: Gives games whose positions are chosen.
        frames: Positions that it holds.
        seed: Of the order.
        restore: Positions that it holds from the start, slot by slot, and how many it had given out.
    """

    takes, gives = Game, Shuffled
    together = 8

    def __init__(
        self,
        input: Queue[Game] | Stage[Game],
        *,
        frames: int = 1 << 17,
        seed: int = 0,
        restore: tuple[FrameBlock, int] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(input, **{**settings, "threads": 1})
        self._reservoir = Reservoir(frames, seed)
        if restore is not None:
            self._reservoir.restore(*restore)

    def process(self, item: Game) -> Iterator[Shuffled]:
        """Let the positions of a game in, and as many others out, when it is full."""
        out = self._reservoir.exchange(item.frames)
        filled = len(item.frames) - len(out.frames)
        place = Place(item.draw, item.chunk, item.use, item.source, item.index, item.skip + len(item.frames))
        origins = item.frames.origins
        yield Shuffled(out.frames, Moves(origins[:filled], out.slots, origins[filled:], place))

    def finish(self) -> Iterator[Shuffled]:
        """Give what is left."""
        nothing = np.zeros(0, ORIGIN)
        while len(self._reservoir):
            out = self._reservoir.drain(DRAINED)
            yield Shuffled(out.frames, Moves(nothing, out.slots, nothing, None))

    def gauges(self) -> dict[str, float]:
        """Positions that it holds, of how many, and their bytes; none leaves before it is full."""
        return {"frames": len(self._reservoir), "capacity": self._reservoir.capacity, "bytes": self._reservoir.nbytes}
