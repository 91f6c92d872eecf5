"""GameStage: a stage that changes whole games, or refuses them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from millstream.errors import RecipeError, RecordError
from millstream.games import Game
from millstream.live.drops import Draw, DrawStage
from millstream.live.rejections import Rejection, Rejections
from millstream.stages import Stage


class GameStage(DrawStage[Game | Draw, Game]):
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
        """The game as it goes on, if it does."""
        try:
            game = item.game() if isinstance(item, Draw) else item
            return [game if game.unpacked else self.changed(game)]
        except RecordError as error:
            draw, source = (item.number, item.name) if isinstance(item, Draw) else (item.draw, item.source)
            self.drop(draw, error.reason)
            self._rejections.add(Rejection(source, item.index, item.chunk, error.reason, error.found))
            return []
