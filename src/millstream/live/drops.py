"""What stages leave out of a draw: told with its number, so that what lies behind a trainer is known exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from millstream.errors import RecordError
from millstream.games.game import Game
from millstream.live.chunk_set import Draw
from millstream.stages import MapStage

In = TypeVar("In")
Out = TypeVar("Out")


class DrawStage(MapStage[In, Out], Generic[In, Out]):
    """A stage that works on one draw at a time."""

    dropped: Callable[[int, str], None] | None = None
    """Hears of each draw that gives nothing, and why."""

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
        self.count(reason)
        if self.dropped is not None:
            self.dropped(draw, reason)
