"""ChunkRescorer: games as they were played -> games as a network should learn them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from millstream.errors import RecipeError
from millstream.games import Game, Rescorer, RescoreSettings
from millstream.selfplay.chunk_feed.game_stage import Draw, GameStage
from millstream.stages import Queue, Stage


class ChunkRescorer(GameStage):
    """Rescores games; one that cannot be is dropped, counted by its reason, and listed.

    A game that was unpacked passes: it was rescored when it came.

    >>> from millstream.games import example_games
    >>> games = Queue()
    >>> stage = ChunkRescorer(games, new_input_format=3, threads=2)
    >>> stage.start()
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(2))
    >>> [set(game.frames.fields["input_format"].tolist()) for game in stage.output()]
    [{3}, {3}]

    Args:
        input: Whole games, or which games are to be read, as a `ChunkSet` says.
        rescore: What to do; without it, the settings by their names, as in `syzygy_paths=["tables"]`.
        rules: What a game must keep: `moves` or `legal` (`Rules`).
        settings: As for any stage, `threads`, `name`, `capacity`, `overflow`; and those of `RescoreSettings`.
    """

    def __init__(
        self,
        input: Queue[Game] | Queue[Draw] | Stage[Game] | Stage[Draw],
        *,
        rescore: RescoreSettings | None = None,
        rules: Literal["moves", "legal"] = "moves",
        **settings: Any,
    ) -> None:
        named = {name: settings.pop(name) for name in RescoreSettings.__dataclass_fields__ if name in settings}
        if rescore is not None and named:
            raise RecipeError(f"rescore= is given, and {', '.join(named)} too", hint="pass all in one place")
        super().__init__(input, **settings)
        self._rescorer = Rescorer(rescore or RescoreSettings(**named), rules=rules)

    def changed(self, game: Game) -> Game:
        """The game, rescored."""
        return replace(game, frames=self._rescorer.rescore(game.frames))

    def gauges(self) -> dict[str, float]:
        """How many Gaviota tables there are, by their number of pieces."""
        return {f"gaviota_tables_{men}": found for men, (found, _) in self._rescorer.mate_coverage.items()}

    def join(self, timeout_s: float | None = None) -> bool:
        """As of any stage; then the tables are closed."""
        ended = super().join(timeout_s)
        if ended:
            self._rescorer.close()
        return ended
