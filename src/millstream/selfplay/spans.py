"""Some numbers of a range: which ones are left when others are removed, and a counter for each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Spans = Sequence[tuple[int, int]]
"""Numbers from one to before another, lowest first."""
WASTE = 1024
"""Numbers that are no longer asked for, before their counters are let go of, at least."""


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few spans as there can be.

    >>> joined([(5, 7), (0, 2), (2, 3)])
    [(0, 3), (5, 7)]
    """
    found = list[tuple[int, int]]()
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def without(start: int, stop: int, holes: Spans) -> list[tuple[int, int]]:
    """What is left of a range, when these are cut out.

    >>> without(1, 9, [(0, 3), (5, 7)])
    [(3, 5), (7, 9)]
    """
    starts, stops = [start, *(stop for _, stop in holes)], [*(start for start, _ in holes), stop]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


class SpanCounts:
    """A counter for each number of some spans, in memory that grows and is let go of many at a time.

    >>> counts = SpanCounts()
    >>> counts.extend(4), counts.add(3), counts.add(3)
    (None, 0, 1)
    >>> counts.values([(0, 1), (3, 4)])
    array([0, 2], dtype=uint32)
    """

    def __init__(self, spans: Spans = ((0, 0),), values: npt.NDArray[np.uint32] | None = None) -> None:
        self._values = np.zeros(0, np.uint32) if values is None else values
        self._hold(spans)

    def copy(self) -> SpanCounts:
        """Another one with the same counters."""
        other = copy(self)
        other._values = self._values[: self._count].copy()
        return other

    def _hold(self, spans: Spans) -> None:
        """The numbers of these spans are those of the values, one after the other."""
        lengths = [stop - start for start, stop in spans]
        self._starts = [start for start, _ in spans]
        self._places = [0, *accumulate(lengths)]
        self._stop, self._count = spans[-1][1], sum(lengths)

    def _place(self, number: int) -> int:
        span = bisect_right(self._starts, number) - 1
        return self._places[span] + number - self._starts[span]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self._values.nbytes

    def __getitem__(self, number: int) -> int:
        return int(self._values[self._place(number)])

    def add(self, number: int) -> int:
        """Count one more; gives how many it were before."""
        place = self._place(number)
        before = int(self._values[place])
        self._values[place] = before + 1
        return before

    def extend(self, stop: int) -> None:
        """Numbers up to `stop` - 1 are counted from now on."""
        count = self._count + stop - self._stop
        if count > len(self._values):
            grown = np.zeros(max(count, len(self._values) * 3 // 2), np.uint32)
            grown[: self._count] = self._values[: self._count]
            self._values = grown
        self._stop, self._count = stop, count

    def keep(self, spans: Spans) -> None:
        """Only the numbers of these spans are asked for again."""
        if self._count - sum(stop - start for start, stop in spans) > max(WASTE, self._count // 4):
            self._values, stop = self.values(spans), self._stop
            self._hold([*spans, (stop, stop)])

    def values(self, spans: Spans) -> npt.NDArray[np.uint32]:
        """The counters of these spans."""
        places = ((self._place(start), stop - start) for start, stop in spans)
        return np.concatenate([self._values[:0], *(self._values[place : place + n] for place, n in places)])
