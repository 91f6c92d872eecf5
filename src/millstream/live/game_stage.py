"""GameStage: a stage that changes whole games, or refuses them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from millstream.errors import RecordError
from millstream.games.game import Game
from millstream.live.drops import DrawStage
from millstream.live.rejections import Rejection, Rejections


class GameStage(DrawStage[Game, Game]):
    """Counts the games that it refuses by their reasons, and lists the last ones.

    A game that was unpacked passes: it was looked at when it came.
    """

    takes = gives = Game

    def __init__(self, *inputs: Any, **settings: Any) -> None:
        super().__init__(*inputs, **settings)
        self._rejections = Rejections()

    @property
    def rejections(self) -> list[Rejection]:
        """The last games that were dropped, oldest first."""
        return self._rejections.last()

    @abstractmethod
    def changed(self, game: Game) -> Game:
        """What becomes of a whole game; a RecordError says why it is refused."""

    def process(self, item: Game) -> Iterable[Game]:
        """The game as it goes on, if it does."""
        if item.unpacked:
            return [item]
        try:
            return [self.changed(item)]
        except RecordError as error:
            self.drop(item.draw, error.reason)
            self._rejections.add(item, error.reason, error.found)
            return []
