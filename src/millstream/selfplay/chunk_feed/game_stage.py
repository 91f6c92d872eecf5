"""What the stages over games share: a game and its draw, the report of what is dropped, and refused games.

Each drop is reported with the number of its draw, so the losses before any step are known exactly.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from millstream.errors import RecipeError, RecordError
from millstream.games import ChunkSource, FrameBlock, Game
from millstream.stages import MapStage, Stage

In = TypeVar("In")
Out = TypeVar("Out")
KEPT = 100


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
    """Positions at its front that were given out before a run resumed."""
    weighed: bool = False
    """Its weight was known when it was drawn, though its file may be gone now."""

    def frames(self, plies: npt.NDArray[np.uint32] | None = None) -> FrameBlock:
        """Read its frames, or those at some plies; a RecordError says why that cannot be."""
        if self.source is None:
            raise RecordError("gone", "its file is not there any more", None, self.name)
        frames = self.source.read(self.index, plies)
        frames.origins["chunk"], frames.origins["use"] = self.chunk, self.use  # no other reference to them exists
        return frames

    def game(self) -> Game:
        """Read the whole game."""
        frames = self.frames()
        return Game(self.chunk, self.use, self.name, self.index, len(frames), frames, draw=self.number, skip=self.skip)


class DropReportingStage(MapStage[In, Out], Generic[In, Out]):
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


class GameStage(DropReportingStage[Game | Draw, Game]):
    """Counts the games that it refuses by their reasons, and lists the last ones.

    A game that was unpacked passes: it was looked at when it came, and its positions were kept.

    Args:
        inputs: Games, or which games are to be read.
        whole: Whether what it does needs every frame of a game.
        settings: As for every stage.
    """

    takes, gives = (Game, Draw), Game

    def __init__(self, *inputs: Any, whole: bool = True, **settings: Any) -> None:
        super().__init__(*inputs, **settings)
        self._rejections = Rejections()
        for before in self.upstream():
            if getattr(before, "chooses", False):
                raise self._needs_whole_games(before, "choose positions behind it, with a chunk_unpacker")
            if whole and getattr(before, "drops_frames", False):
                raise self._needs_whole_games(before, f"let {before.name} stand behind it")

    def _needs_whole_games(self, before: Stage[Any], hint: str) -> RecipeError:
        said = f"{self.name} looks at whole games, and {before.name} leaves only some of their positions"
        return RecipeError(said, hint=hint)

    @property
    def rejections(self) -> list[Rejection]:
        """The last games that were dropped, oldest first."""
        return self._rejections.last()

    @abstractmethod
    def changed(self, game: Game) -> Game:
        """What becomes of a whole game; a RecordError says why it is refused."""

    def process(self, item: Game | Draw) -> Iterable[Game]:
        """The game as the next stage gets it, if it does."""
        try:
            game = item.game() if isinstance(item, Draw) else item
            return [game if game.unpacked else self.changed(game)]
        except RecordError as error:
            draw, source = (item.number, item.name) if isinstance(item, Draw) else (item.draw, item.source)
            self.drop(draw, error.reason)
            self._rejections.add(Rejection(source, item.index, item.chunk, error.reason, error.found))
            return []


@dataclass(frozen=True, slots=True)
class GamePlace:
    """A game: which draw it was, and how many of its chosen positions are used up."""

    draw: int
    chunk: int
    use: int
    source: str
    index: int
    used: int
    of: int
    """How many positions of it were chosen."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A game that was not passed on, and why."""

    source: str
    index: int
    chunk: int
    reason: str
    found: str = ""


class Rejections:
    """The last rejections; several threads may add some."""

    def __init__(self, most: int = KEPT) -> None:
        self._last: deque[Rejection] = deque(maxlen=most)
        self._lock = threading.Lock()

    def add(self, rejection: Rejection) -> None:
        """One more; the oldest is forgotten if they are too many."""
        with self._lock:
            self._last.append(rejection)

    def last(self) -> list[Rejection]:
        """The last ones, oldest first."""
        with self._lock:
            return list(self._last)
