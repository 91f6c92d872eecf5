"""StreamShuffler: every number of a range once, in random order, while the range moves on; FileOrder: in order."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np
import numpy.typing as npt

from millstream.errors import OrderError
from millstream.order import draw_below, source_key
from millstream.selfplay import Spans

STALE = 1024
"""How many numbers may have left the range before those that were not drawn are looked for, at least."""


class StreamShuffler:
    """Draws each number of [lower, upper) once. Both bounds may grow meanwhile; which number comes depends on the
    seed, the draws before and the bounds at each of them, and on nothing else.

    >>> shuffler = StreamShuffler(seed=7)
    >>> shuffler.extend(5)
    >>> [shuffler.draw() for _ in range(3)]
    [2, 1, 0]
    >>> shuffler.extend(8), shuffler.advance(4), sorted(iter(shuffler.draw, None))
    (None, None, [4, 5, 6, 7])

    Args:
        seed: Another one gives another order.
        name: Shufflers of one seed with different names have nothing in common.
    """

    def __init__(self, seed: int = 0, name: str = "stream shuffler") -> None:
        self._key = source_key(seed, name)
        self.lower = self.upper = self.draws = 0
        self._unseen = np.empty(0, np.uint64)
        self._count = self._advanced = 0

    def __len__(self) -> int:
        """How many numbers are left, at most: some may have left the range."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self._unseen.nbytes

    def extend(self, upper: int) -> None:
        """Numbers up to `upper` - 1 may be drawn from now on."""
        if upper < self.upper:
            raise OrderError(f"the range goes back from {self.upper} to {upper}", hint="bounds only grow; see reset()")
        self._add(max(self.upper, self.lower), upper)
        self.upper = upper

    def advance(self, lower: int) -> None:
        """Numbers below `lower` are not drawn any more."""
        if lower < self.lower:
            raise OrderError(f"the range goes back from {self.lower} to {lower}", hint="bounds only grow; see reset()")
        self._advanced += lower - self.lower
        self.lower = lower
        if self._advanced > max(STALE, self._count // 4):
            self.discard([(0, lower)])
            self._advanced = 0

    def skip_to(self, lower: int) -> None:
        """The same where none of the numbers below `lower` is left: there is nothing to look for later."""
        self.lower = max(self.lower, lower)

    def discard(self, spans: Spans) -> None:
        """Do not draw the numbers of these spans, which do not overlap."""
        if not spans:
            return
        unseen = self._unseen[: self._count]
        starts, stops = np.array(spans, np.uint64).T
        span = np.searchsorted(starts, unseen, side="right") - 1
        kept = unseen[(span < 0) | (unseen >= stops[span])]
        self._unseen[: len(kept)] = kept
        self._count = len(kept)

    def draw(self) -> int | None:
        """The next number, or None if all of the range were drawn."""
        while self._count:
            place = self._place()
            number = int(self._unseen[place])
            self._count -= 1
            self._unseen[place] = self._unseen[self._count]
            self.draws += 1
            if number >= self.lower:
                return number
        return None

    def reset(self, spans: Spans | None = None) -> None:
        """Begin again: all numbers of the range may be drawn once more, or only those of some spans."""
        self._count = self._advanced = 0
        for start, stop in [(self.lower, self.upper)] if spans is None else spans:
            self._add(start, stop)

    def unseen(self) -> npt.NDArray[np.uint64]:
        """What is left, in the order that decides what comes; with the bounds and `draws` it is all of the state."""
        return self._unseen[: self._count].copy()

    def restore(self, unseen: npt.NDArray[np.uint64], lower: int, upper: int, draws: int, advanced: int = 0) -> None:
        """Stand where another one stood."""
        self._unseen, self._count = unseen.astype(np.uint64), len(unseen)
        self.lower, self.upper, self.draws, self._advanced = lower, upper, draws, advanced

    @property
    def advanced(self) -> int:
        """How far the lower bound went since what had left the range was last looked for."""
        return self._advanced

    def copy(self) -> Self:
        """Another one that stands here."""
        other = copy(self)
        other._unseen = self.unseen()
        return other

    def _place(self) -> int:
        """Which of the numbers that are left comes next."""
        return draw_below(self._key, self.draws, self._count)

    def _add(self, start: int, stop: int) -> None:
        fresh = np.arange(start, stop, dtype=np.uint64)
        self._make_room(self._count + len(fresh))
        self._unseen[self._count : self._count + len(fresh)] = fresh
        self._count += len(fresh)

    def _make_room(self, count: int) -> None:
        if count > len(self._unseen):
            grown = np.empty(max(count, len(self._unseen) * 3 // 2), np.uint64)
            grown[: self._count] = self._unseen[: self._count]
            self._unseen = grown


class FileOrder(StreamShuffler):
    """Draws the lowest number first: sources come in the order of their names, and games as they lie there.

    >>> numbers = FileOrder()
    >>> numbers.extend(3), numbers.draw(), numbers.extend(5), [numbers.draw() for _ in range(4)]
    (None, 0, None, [1, 2, 3, 4])
    """

    def _add(self, start: int, stop: int) -> None:
        """They lie highest first, to be taken from the end."""
        super()._add(start, stop)
        self._unseen[: self._count][::-1].sort()

    def _place(self) -> int:
        return self._count - 1
