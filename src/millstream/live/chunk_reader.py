"""ChunkReader: which game is used next -> its frames, by as many threads as one likes, in the same order."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from millstream.errors import RecordError
from millstream.games import FrameBlock, Game
from millstream.live.chunk_set import Draw
from millstream.live.chunk_unpacker import Positions
from millstream.live.position_cache import PositionCache
from millstream.live.positions import PositionSampling
from millstream.stages import MapStage, Queue, Stage

MOST_LISTED = 1000
"""Bad games that are remembered for whoever asks; all are counted."""

MOST_KNOWN = 1 << 16
"""Bad games that are known, so that each is counted once however often it is used."""


class ChunkReader(MapStage[Draw, Game]):
    """Reads games: positions that are in the cache from there, the rest from their files.

    Args:
        input: Says which games.
        sampling: Choose positions at once, where nobody behind needs whole games: no others are unpacked then.
        seed: Of that choice.
        cache: Where positions of games lie that were read before.
    """

    takes, gives = Draw, Game
    together = 8

    def __init__(
        self,
        input: Queue[Draw] | Stage[Draw],
        *,
        sampling: PositionSampling | None = None,
        seed: int = 0,
        cache: PositionCache | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._choose = None if sampling is None else Positions(sampling, seed)
        self._cache, self._guard = cache, threading.Lock()
        self._bad: OrderedDict[int, None] = OrderedDict()
        self.bad: deque[RecordError] = deque(maxlen=MOST_LISTED)
        """The last games that could not be read, and why."""

    def process(self, item: Draw) -> Iterator[Game]:
        """Read a game; one that is bad is counted, listed and left out."""
        found = None if self._cache is None else self._cache.take(item.chunk, item.use)
        try:
            length, frames, chosen = (*found, True) if found is not None else self._read(item)
        except RecordError as error:
            self._note(item.chunk, error)
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
        )

    def _read(self, item: Draw) -> tuple[int, FrameBlock, bool]:
        length = int(item.source.frames[item.index])
        plies = None
        if self._choose is not None and not self._choose.takes_all and length:
            plies = self._choose.of(item.chunk, item.use, length).astype(np.uint32)
        frames = item.source.read(item.index, plies)
        frames.origins["chunk"], frames.origins["use"] = item.chunk, item.use  # nobody else has seen them
        return length, frames, plies is not None or (self._choose is not None and self._choose.takes_all)

    def _note(self, chunk: int, error: RecordError) -> None:
        with self._guard:
            if chunk in self._bad:
                return
            self._bad[chunk] = None
            if len(self._bad) > MOST_KNOWN:
                self._bad.popitem(last=False)
            self.bad.append(error)
        self.count(error.reason)

    def gauges(self) -> dict[str, float]:
        """What the cache holds."""
        return {} if self._cache is None else {f"cache_{name}": n for name, n in self._cache.counters().items()}
