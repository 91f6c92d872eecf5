"""ChunkUnpacker: games -> the positions that this use of each of them gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from millstream.games import FrameBlock, Game
from millstream.live.drops import Draw, DrawStage
from millstream.live.position_cache import PositionCache
from millstream.live.positions import ALL_POSITIONS, PositionSampling
from millstream.order import derive_key, source_key
from millstream.stages import Queue, Stage


class ChunkUnpacker(DrawStage[Game | Draw, Game]):
    """Chooses positions of games, others at each use.

    >>> from millstream.games import example_games
    >>> games = Queue()
    >>> stage = ChunkUnpacker(games, sampling=PositionSampling.of(2), seed=1)
    >>> stage.start()
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(3))
    >>> [game.frames.origins["ply"].tolist() for game in stage.output()]
    [[0, 10], [6, 10], [5, 4]]

    Args:
        input: Gives games, or says which.
        sampling: How many positions a use gives.
        seed: Of the choice.
        cache: Where the positions of the next uses are kept, for whoever reads games.
        prefetch: For how many uses.
    """

    takes, gives = (Game, Draw), Game
    together = 16
    chooses = True
    """It gives chosen positions, and not whole games."""

    def __init__(
        self,
        input: Queue[Game] | Queue[Draw] | Stage[Game] | Stage[Draw],
        *,
        sampling: PositionSampling = ALL_POSITIONS,
        seed: int = 0,
        cache: PositionCache | None = None,
        prefetch: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._choose = Positions(sampling, seed)
        self._cache, self._prefetch = cache, prefetch

    def process(self, item: Game | Draw) -> Iterator[Game]:
        """Choose the positions of a use; a game of which it gives none ends here, and is counted."""
        if (game := self.game_of(item)) is not None:
            yield from self._unpacked(game)

    def _unpacked(self, item: Game) -> Iterator[Game]:
        if not item.unpacked:
            for use in range(item.use + 1, item.use + 1 + self._prefetch if self._cache is not None else 0):
                assert self._cache is not None
                self._cache.put(item.chunk, use, item.length, self._chosen(item, use).of_game(item.chunk, use))
            item = replace(item, frames=self._chosen(item, item.use), unpacked=True)
        if item.skip or item.limit is not None:
            stop = len(item.frames) if item.limit is None else min(item.limit, len(item.frames))
            item = replace(item, frames=item.frames.part(min(item.skip, stop), stop))
        if len(item.frames):
            yield item
        else:
            self.drop(item.draw, "no position chosen")

    def _chosen(self, game: Game, use: int) -> FrameBlock:
        if self._choose.takes_all:
            return game.frames
        return game.frames.select(self._choose.of(game.chunk, use, len(game.frames), game.frames))


class Positions:
    """The positions of each use of each game of a run."""

    def __init__(self, sampling: PositionSampling, seed: int) -> None:
        self.sampling, self._key = sampling, source_key(seed, "positions")

    @property
    def takes_all(self) -> bool:
        """Whether each use gives all positions."""
        return self.sampling.rate is None and self.sampling.count is None

    def of(self, chunk: int, use: int, length: int, frames: FrameBlock | None = None) -> Any:
        """The plies that a use of a game gives."""
        return self.sampling.plies(derive_key(self._key, chunk), use, length, frames)
