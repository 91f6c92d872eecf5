"""ChunkFilter: only games that are valid, and those that a user wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from millstream.errors import RecipeError, RecordError
from millstream.games import FieldMatch, Game, Predicate, Rules, Wanted, check_rules, checked, reason_against
from millstream.selfplay.chunk_feed.game_stage import Draw, GameStage
from millstream.stages import Queue, Stage


class ChunkFilter(GameStage):
    """Drops games that break a rule or are not wanted; each is counted by its reason, and the last ones are listed.

    A game that was unpacked passes: it was looked at when it came.

    >>> from millstream.games import example_games
    >>> games = Queue()
    >>> stage = ChunkFilter(games, match={"result_q": {-1, 1}})
    >>> stage.start()
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(4))
    >>> [game.source for game in stage.output()], stage.counters()["drops"]
    (['training.0.gz', 'training.2.gz', 'training.3.gz'], {'result_q does not match': 1})

    Args:
        input: Games, or which games are to be read, as a `ChunkSet` says.
        rules: What a game must keep: `values`, `moves` or `legal` (`Rules`); None looks at nothing.
        match: Fields and what they must be, as in `{"visits": (1, None), "input_format": {1, 2}}`.
        keep: What does not match is dropped with its whole game (`games`), or alone (`frames`). A rescorer needs whole
            games: drop frames behind it.
        predicates: Functions of a game that give True, or False or a reason to drop it.
        settings: As for any stage: `threads`, `name`, `capacity`, `overflow`.
    """

    def __init__(
        self,
        input: Queue[Game] | Queue[Draw] | Stage[Game] | Stage[Draw],
        *,
        rules: Rules | None = "moves",
        match: Mapping[str, Wanted] | None = None,
        keep: Literal["games", "frames"] = "games",
        predicates: Sequence[Predicate] = (),
        **settings: Any,
    ) -> None:
        if keep not in ("games", "frames"):
            raise RecipeError(f"keep is {keep!r}", hint="pass 'games' or 'frames'")
        if rules is not None:
            check_rules(rules)
        super().__init__(input, whole=rules in ("moves", "legal"), **settings)
        self.rules, self.keep = rules, keep
        self.match, self.predicates = FieldMatch(match or {}), tuple(predicates)

    @property
    def drops_frames(self) -> bool:
        """Whether games may come out with less frames than they had."""
        return self.keep == "frames" and bool(self.match.match)

    def changed(self, game: Game) -> Game:
        """The game, or what is left of it, if it is wanted."""
        if self.rules is not None:
            checked(game.frames, self.rules)
        return self._matching(game)

    def _matching(self, game: Game) -> Game:
        for predicate in self.predicates:
            if reason := reason_against(predicate, game):
                raise RecordError(reason, "not wanted", hint="change predicates= to keep such games")
        kept = np.ones(len(game.frames), np.bool_)
        for reason, matching in self.match(game.frames.fields).items():
            missed = int((kept & ~matching).sum())
            kept &= matching
            if missed and (self.keep == "games" or not kept.any()):
                ply = game.frames.origins["ply"][int(matching.argmin())]
                raise RecordError(reason, f"ply {ply}", hint="change match= to keep such games")
            if missed:
                self.count(f"frames: {reason}", missed)
        return game if kept.all() else replace(game, frames=game.frames.select(np.flatnonzero(kept)))
