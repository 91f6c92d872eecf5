"""Hanse sampling: heavy games are used more often, so that positions, and not games, are alike."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, RecordError
from millstream.games.chunk_source import OUT_OF_REACH, ChunkSource
from millstream.live.positions import ALIKE, PositionWeights
from millstream.live.window import Entry

MOST_LISTED = 1000
"""Bad games that are remembered for whoever asks; all are counted."""


@dataclass(frozen=True)
class HanseSampling:
    """Take a game with the probability (its weight / the largest weight so far) ** gamma.

    A game weighs what its positions weigh together. With one position per game each position is as likely as any other.
    """

    gamma: float = 1.0
    weights: PositionWeights = ALIKE

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < math.inf:
            raise LoaderError(f"gamma={self.gamma!r}: an exponent from 0", hint="1 makes positions alike")


class HanseWeights:
    """What games weigh. Each is read once for it, unless all positions are alike: then their number is enough.

    Args:
        sampling: What positions weigh.
        sources: Where games lie, by the names of their sources.
        count: Told why a game cannot be read, once: it weighs nothing, so nobody else will find out.
    """

    def __init__(
        self, sampling: HanseSampling, sources: Mapping[str, ChunkSource], count: Callable[[str], object]
    ) -> None:
        self._sampling, self._sources, self._count = sampling, sources, count
        self.bad: deque[RecordError] = deque(maxlen=MOST_LISTED)
        """The last games that could not be read, and why."""
        self._known: dict[Entry, npt.NDArray[np.float32]] = {}

    def of(self, entry: Entry, index: int) -> float:
        """The weight of a game; one that cannot be read has none, and if its file is gone, nobody knows it."""
        known, weights = self._weights_of(entry), self._sampling.weights
        if np.isnan(known[index]):
            try:
                known[index] = weights.of(self._sources[entry.name].read(index)).sum()
            except RecordError as error:
                known[index] = np.inf if error.reason in OUT_OF_REACH else 0
                if not known[index]:
                    self.bad.append(error)
                    self._count(error.reason)
        return float(known[index])

    def _weights_of(self, entry: Entry) -> npt.NDArray[np.float32]:
        if entry not in self._known:
            weights, source = self._sampling.weights, self._sources.get(entry.name)
            if source is None:
                found = np.full(entry.count, np.inf)
            else:
                is_known = (source.frames > 0) & (not weights.is_used)
                found = np.where(is_known, source.frames * weights.default, np.nan)
            self._known[entry] = found.astype(np.float32)
        return self._known[entry]

    def forget(self, entry: Entry) -> None:
        """Nobody asks for the games of a source again."""
        self._known.pop(entry, None)
