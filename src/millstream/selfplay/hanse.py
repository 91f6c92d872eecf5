"""Hanse sampling: long games are used more often, so that positions, and not games, are equally likely."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, RecordError
from millstream.games import OUT_OF_REACH, ChunkSource
from millstream.selfplay.sampling import ALIKE, PositionWeights
from millstream.selfplay.window import WindowEntry

MOST_LISTED = 1000
"""Bad games that are remembered and can be asked for; all are counted."""


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
    """What games weigh. Each is read once for it, unless all positions are alike: then their number is enough, and only
    one that would be the heaviest so far is read, to see whether it has as many as it says.

    Args:
        sampling: What positions weigh.
        source_of: Where the games of a source lie; None if its file is gone.
        count: Told why a game cannot be read, once: it weighs nothing, so it is never read.
    """

    def __init__(
        self,
        sampling: HanseSampling,
        source_of: Callable[[WindowEntry], ChunkSource | None],
        count: Callable[[str], object],
    ) -> None:
        self._sampling, self._source_of, self._count = sampling, source_of, count
        self.bad: deque[RecordError] = deque(maxlen=MOST_LISTED)
        """The last games that could not be read, and why."""
        self._known: dict[WindowEntry, npt.NDArray[np.float32]] = {}
        self._proofs: dict[WindowEntry, dict[int, float]] = {}
        """What was found when a game was looked at: followers ask again, when the file may be gone."""

    def of(self, entry: WindowEntry, index: int) -> float:
        """The weight of a game; one that cannot be read has none, and if its file is gone, it is unknown."""
        known = self._weights_of(entry)
        if np.isnan(known[index]):
            known[index] = self._read(entry, index)
        return float(known[index])

    def proved(self, entry: WindowEntry, index: int) -> float:
        """The same of a game that was looked at. What `of` says of it stays as it is: a resumed run knows
        nothing of what was looked at before, and draws the same."""
        known, proofs = self._weights_of(entry), self._proofs.setdefault(entry, {})
        if index not in proofs:
            looked_at = self._sampling.weights.is_used or known[index] == np.inf
            proofs[index] = float(known[index]) if looked_at else self._read(entry, index)
            if proofs[index] == np.inf:
                known[index] = np.inf
        return proofs[index]

    def forget(self, entry: WindowEntry) -> None:
        """The games of a source will not be asked for again."""
        self._known.pop(entry, None)
        self._proofs.pop(entry, None)

    def _weights_of(self, entry: WindowEntry) -> npt.NDArray[np.float32]:
        if entry not in self._known:
            weights, source = self._sampling.weights, self._source_of(entry)
            if source is None:
                found = np.full(entry.count, np.inf)
            else:
                is_known = (source.frames > 0) & (not weights.is_used)
                found = np.where(is_known, source.frames * weights.default, np.nan)
            self._known[entry] = found.astype(np.float32)
        return self._known[entry]

    def _read(self, entry: WindowEntry, index: int) -> float:
        source = self._source_of(entry)
        if source is None:
            return math.inf
        try:
            return float(np.float32(self._sampling.weights.of(source.read(index)).sum()))
        except RecordError as error:
            if error.reason in OUT_OF_REACH:
                return math.inf
            self.bad.append(error)
            self._count(error.reason)
            return 0.0
