"""ChunkUnpacker: games -> the positions that this use of each of them gives.

Positions that later uses of a game will give are kept in a `PositionCache`. A use depends on the game and its number
alone, so the cache saves reading a whole game for one position, and changes nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

from millstream.games import FrameBlock, Game
from millstream.order import derive_key, source_key
from millstream.selfplay import ALL_POSITIONS, PositionSampling
from millstream.selfplay.chunk_feed.game_stage import Draw, DropReportingStage
from millstream.stages import Queue, Stage

PREFETCHED_USES = 8
"""Uses of a game whose positions are kept when it is read."""
AROUND = 1100
"""Bytes that Python takes for an entry beside its frames: about as many as one frame has."""


class ChunkUnpacker(DropReportingStage[Game | Draw, Game]):
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
        cache: Where the positions of the next uses are kept for the stage that reads games.
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
        self._choose = PositionChoice(sampling, seed)
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


class PositionChoice:
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


class PositionCache:
    """Chosen positions by game and use, up to so many bytes. When it is full, those of the oldest games make room: they
    leave the window first, or have left it.

    >>> cache = PositionCache(most_bytes=2000)
    >>> cache.put(3, 1, 40, FrameBlock.empty()), cache.put(2, 1, 40, FrameBlock.empty())
    (True, False)
    >>> cache.take(3, 1)[0], cache.take(3, 1), cache.counters()
    (40, None, {'hits': 1, 'misses': 1, 'refused': 1, 'dropped': 0, 'bytes': 0})
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held: dict[tuple[int, int], tuple[int, FrameBlock]] = {}
        self._oldest: list[tuple[int, int]] = []
        """A heap of games and uses, the last use of the oldest game first; some were taken meanwhile."""
        self._lock = threading.Lock()
        self._bytes = self._hits = self._misses = self._refused = self._dropped = 0

    def put(self, chunk: int, use: int, length: int, frames: FrameBlock) -> bool:
        """Keep what a use will ask for; False if there is no room. `length` is that of the whole game."""
        with self._lock:
            if (chunk, use) in self._held or not self._has_room(_bytes_of(frames), chunk):
                self._refused += 1
                return False
            self._held[chunk, use] = length, frames
            self._bytes += _bytes_of(frames)
            heappush(self._oldest, (chunk, -use))
            if len(self._oldest) > 2 * len(self._held) + 1024:
                self._oldest = [(chunk, -use) for chunk, use in self._held]
                heapify(self._oldest)
            return True

    def take(self, chunk: int, use: int) -> tuple[int, FrameBlock] | None:
        """Give what was kept for a use, once: the length of the game, and the frames."""
        with self._lock:
            found = self._pop(chunk, use)
            self._hits += found is not None
            self._misses += found is None
            return found

    def counters(self) -> dict[str, int]:
        """How often it helped, and what it holds."""
        with self._lock:
            names = ("hits", "misses", "refused", "dropped", "bytes")
            return {name: getattr(self, f"_{name}") for name in names}

    def _has_room(self, wanted: int, chunk: int) -> bool:
        """Whether there is room, after positions of older games were let go of."""
        if wanted > self.most_bytes:
            return False
        while self._bytes + wanted > self.most_bytes:
            if not self._oldest or self._oldest[0][0] >= chunk:
                return False
            oldest, last_use = heappop(self._oldest)
            self._dropped += self._pop(oldest, -last_use) is not None
        return True

    def _pop(self, chunk: int, use: int) -> tuple[int, FrameBlock] | None:
        found = self._held.pop((chunk, use), None)
        if found is not None:
            self._bytes -= _bytes_of(found[1])
        return found


def _bytes_of(frames: FrameBlock) -> int:
    return frames.nbytes + AROUND
