"""A draw, which is a game to be used next, and the stages that work on one at a time. What they leave out is told with
the number of its draw, so that what lies behind a trainer is known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.games import ChunkSource, FrameBlock, Game
from millstream.stages import MapStage

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class Draw:
    """A game that is to be read: which draw it is, which game, how often it was used before, and where it lies."""

    number: int
    chunk: int
    use: int
    name: str
    index: int
    source: ChunkSource | None
    """None: its file is gone."""
    skip: int = 0
    """Positions at its front that were given out before a run was gone on with."""
    weighed: bool = False
    """Its weight was known when it was drawn, though its file may be gone now."""

    def frames(self, plies: npt.NDArray[np.uint32] | None = None) -> FrameBlock:
        """Read its frames, or those at some plies; a RecordError says why that cannot be."""
        if self.source is None:
            raise RecordError("gone", "its file is not there any more", None, self.name)
        frames = self.source.read(self.index, plies)
        frames.origins["chunk"], frames.origins["use"] = self.chunk, self.use  # nobody else has seen them
        return frames

    def game(self) -> Game:
        """Read the whole game."""
        frames = self.frames()
        return Game(self.chunk, self.use, self.name, self.index, len(frames), frames, draw=self.number, skip=self.skip)


class DrawStage(MapStage[In, Out], Generic[In, Out]):
    """A stage that works on one draw at a time."""

    def game_of(self, item: Game | Draw) -> Game | None:
        """A game; one that is still to be read is read here, and dropped if that cannot be."""
        if isinstance(item, Game):
            return item
        try:
            return item.game()
        except RecordError as error:
            self.drop(item.number, error.reason)
            return None

    def drop(self, draw: int, reason: str) -> None:
        """Count a draw that gives nothing."""
        self.count(reason, at=draw)
