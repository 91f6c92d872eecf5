"""ChunkReader: the next game -> its frames, read by any number of threads, in the same order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from millstream.errors import BudgetError, LoaderError, RecordError
from millstream.games import OUT_OF_REACH, FrameBlock, Game
from millstream.selfplay import Losses, LostUse, PositionSampling
from millstream.selfplay.chunk_feed.chunk_unpacker import PositionCache, PositionChoice
from millstream.selfplay.chunk_feed.game_stage import Draw, DropReportingStage
from millstream.stages import Queue, Stage

MOST_LISTED = 1000
"""Bad games that are remembered and can be asked for; every use of one is counted."""

FILE_GONE = "file gone"
"""Why a use of a game is lost that was there when it entered."""


class ChunkReader(DropReportingStage[Draw, Game]):
    """Reads games: positions that are in the cache from there, the rest from their files.

    Stages that take games also read them by themselves; this one has threads of its own for that, and need not unpack
    positions that are not used.

    >>> from millstream import ChunkSet, ChunkSourceFeed, Discovery
    >>> from millstream.games import example_folder
    >>> found = Discovery(example_folder(3), watch=False)
    >>> sources = ChunkSourceFeed(found)
    >>> chosen = ChunkSet(sources, seed=1)
    >>> games = ChunkReader(chosen, threads=2, sampling=PositionSampling.of(2))
    >>> for stage in (found, sources, chosen, games):
    ...     stage.start()
    >>> [(game.length, len(game.frames)) for game in games.output()]
    [(12, 2), (12, 2), (12, 2)]

    Args:
        input: Says which games.
        sampling: Choose positions at once, where no later stage needs whole games: no others are unpacked then.
        seed: Of that choice.
        cache: Where positions of games lie that were read before.
        losses: What was lost before: it is not read, whether or not it is there now.
        lost: Called with a use of a game that cannot be read since its file is gone, before anything behind it leaves.
        shared: Whether other ranks read the same games: then a file that goes away meanwhile is an error.
        most_bytes: Of a game in memory; a larger one is an error.
    """

    takes, gives = Draw, Game
    together = 16

    def __init__(
        self,
        input: Queue[Draw] | Stage[Draw],
        *,
        sampling: PositionSampling | None = None,
        seed: int = 0,
        cache: PositionCache | None = None,
        losses: Losses | None = None,
        lost: Callable[[LostUse], None] = lambda _: None,
        shared: bool = False,
        most_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._choose = None if sampling is None else PositionChoice(sampling, seed)
        self.cache, self._guard = cache, threading.Lock()
        self._losses, self._lost, self._shared = losses or Losses(), lost, shared
        self._most_bytes = most_bytes
        self._bad: OrderedDict[int, RecordError] = OrderedDict()

    @property
    def bad(self) -> list[RecordError]:
        """The last games that could not be read, each once, and why."""
        with self._guard:
            return list(self._bad.values())

    @property
    def chooses(self) -> bool:
        """Whether it gives chosen positions, and not whole games."""
        return self._choose is not None

    def process(self, item: Draw) -> Iterator[Game]:
        """Read a game; one that is bad is counted, listed and left out, and so is one whose file is gone."""
        limit = self._losses.came(item.number)
        if limit is not None and limit <= item.skip:
            self.drop(item.number, FILE_GONE)
            return
        found = None if self.cache is None or item.source is None else self.cache.take(item.chunk, item.use)
        try:
            length, frames, chosen = (*found, True) if found is not None else self._read(item)
        except RecordError as error:
            self._note(item, error)
            return
        yield Game(
            item.chunk,
            item.use,
            item.name,
            item.index,
            length,
            frames,
            unpacked=chosen,
            draw=item.number,
            skip=item.skip,
            limit=limit,
        )

    def _read(self, item: Draw) -> tuple[int, FrameBlock, bool]:
        length = 0 if item.source is None else int(item.source.frames[item.index])
        plies = None
        if self._choose is not None and not self._choose.takes_all and length:
            plies = self._choose.of(item.chunk, item.use, length).astype(np.uint32)
        frames = item.frames(plies)
        self._check_size(frames.nbytes, item)
        return length, frames, plies is not None or (self._choose is not None and self._choose.takes_all)

    def _check_size(self, size: int, item: Draw) -> None:
        """A game that the budget has no room for is no bad one: what is trained on does not depend on a budget."""
        if self._most_bytes is not None and size > self._most_bytes:
            raise BudgetError(
                f"{item.name}, chunk {item.index}: {size:,} bytes in memory, where {self._most_bytes:,} are for a game",
                hint="pass a larger memory_budget",
            )

    def _note(self, item: Draw, error: RecordError) -> None:
        """Count a use that gives nothing, and list its game."""
        with self._guard:
            self._bad[item.chunk] = error
            if len(self._bad) > MOST_LISTED:
                self._bad.popitem(last=False)
        if error.reason in OUT_OF_REACH:
            self._lose(item, error)
        self.drop(item.number, FILE_GONE if error.reason in OUT_OF_REACH else error.reason)

    def _lose(self, item: Draw, error: RecordError) -> None:
        if self._shared and item.source is not None:
            raise LoaderError(
                f"{item.name} went away, and other ranks may have read it: {error}",
                hint="keep files as long as they are in the window; go on from the last state",
            )
        unseen = item.source is None and not item.weighed
        self._lost(LostUse(item.number, item.name, item.chunk, item.use, item.skip, unseen))

    def gauges(self) -> dict[str, float]:
        """What the cache holds."""
        return {} if self.cache is None else {f"cache_{name}": n for name, n in self.cache.counters().items()}
