"""Lengths -> micro-batches that never hold more tokens than they may.

What counts is what is allocated: of packed sequences their sum, of padded ones rows times the longest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from millstream import _core
from millstream.errors import OrderError
from millstream.order.balance import CostModel, Integers, Numbers, members, partition

MOST_CAPACITY = 1 << 20
"""Of bins that best fit can fill."""


@dataclass(frozen=True)
class MicroBatchRule:
    """What a micro-batch may hold.

    >>> MicroBatchRule(cap=8).fewest([7] * 8)  # not the 7 that 56 tokens need
    8
    >>> [each.tolist() for each in MicroBatchRule(cap=9, packed=False).cut([3, 8, 2, 3])]
    [[1], [0, 2, 3]]
    """

    cap: int
    """Most tokens of a micro-batch, padding included."""
    packed: bool = True
    """Whether sequences lie one behind the other; else each is a row as long as the longest."""
    unit: int = 1
    """Rows are padded to a multiple of it."""
    cost: CostModel = field(default_factory=CostModel)
    """What decides which micro-batches are light."""

    def __post_init__(self) -> None:
        if not 1 <= self.unit <= self.cap:
            raise OrderError(
                f"micro-batches have at most {self.cap} tokens, and rows a multiple of {self.unit}",
                hint="a row must fit into a micro-batch",
            )

    @property
    def _room(self) -> int:
        """Most tokens of packed sequences, so that they stay within the cap when they are padded."""
        return self.cap // self.unit * self.unit

    def allocated(self, lengths: Integers) -> int:
        """Tokens that a micro-batch of such sequences takes."""
        if len(lengths) == 0:
            return 0
        each = np.asarray(lengths)
        if self.packed:
            return self._padded(int(each.sum()))
        return len(each) * self._padded(int(each.max()))

    def fewest(self, lengths: Integers) -> int:
        """How many micro-batches sequences need, at the least that was found."""
        each = self.check(lengths)
        return len(self._fewest_packed(each)) if self.packed else len(self._runs(_longest_first(each)[1], self.cap))

    def cut(self, lengths: Integers, *, least: int = 1, multiple: int = 1) -> list[Numbers]:
        """Put sequences into micro-batches, light ones at both ends; gives the numbers of the sequences of each.

        Args:
            lengths: Tokens of each sequence.
            least: Fewest micro-batches: what another rank needs. Some are empty where there are too few sequences.
            multiple: Their number is a multiple of it, as stages of a pipeline want.
        """
        return self.cut_into(-(-max(least, self.fewest(lengths)) // multiple) * multiple, lengths)

    def cut_into(self, count: int, lengths: Integers) -> list[Numbers]:
        """Put sequences into so many micro-batches, no fewer than `fewest` says."""
        each = self.check(lengths)
        if self.packed:
            found = self._balanced(each, count) or self._fewest_packed(each)
        else:
            found = self._padded_rows(each, count)
        found += [np.empty(0, np.int64)] * (count - len(found))
        return _light_at_both_ends(found, self.cost.of(each))

    def _balanced(self, lengths: Numbers, count: int) -> list[Numbers] | None:
        """So many micro-batches of about equal cost, or of about equal length; None where one is over the cap."""
        for costs in (self.cost.of(lengths), lengths):
            part_of = partition(costs, count)
            if np.bincount(part_of, lengths).max(initial=0) <= self._room:
                return members(part_of, count)
        return None

    def _fewest_packed(self, lengths: Numbers) -> list[Numbers]:
        best = self._best_fit(lengths)
        fails = max(1, -(-int(lengths.sum()) // self._room), int((2 * lengths > self._room).sum())) - 1
        while len(best) - fails > 1:  # as if what fits into some number fitted into every greater one
            count = (fails + len(best)) // 2
            if found := self._balanced(lengths, count):
                best = found
            else:
                fails = count
        return best

    def _best_fit(self, lengths: Numbers) -> list[Numbers]:
        if self.cap > MOST_CAPACITY:
            return [np.array([row]) for row in range(len(lengths))]
        bins = np.empty(len(lengths), np.uint32)
        count = _core.pack(lengths.astype(np.uint32), self._room, max(1, len(lengths)), bins)
        return members(bins.astype(np.int64), count)

    def _padded_rows(self, lengths: Numbers, count: int) -> list[Numbers]:
        """Neighbours in length, under the lowest cap for which that many suffice."""
        rows, sorted_lengths = _longest_first(lengths)
        low, high = 0, self.cap
        while high - low > 1:
            middle = (low + high) // 2
            enough = self._longest(sorted_lengths) <= middle and len(self._runs(sorted_lengths, middle)) <= count
            low, high = (low, middle) if enough else (middle, high)
        bounds = [*self._runs(sorted_lengths, high), len(rows)]
        return [np.sort(rows[start:stop]) for start, stop in pairwise(bounds)]

    def _runs(self, sorted_lengths: list[int], cap: int) -> list[int]:
        """Where micro-batches begin when each takes as many rows as it can, the longest rows first."""
        starts, start = [], 0
        while start < len(sorted_lengths):
            starts.append(start)
            start += cap // self._padded(sorted_lengths[start])
        return starts

    def _longest(self, sorted_lengths: list[int]) -> int:
        return self._padded(sorted_lengths[0]) if sorted_lengths else 0

    def _padded(self, length: int) -> int:
        return -(-length // self.unit) * self.unit

    def check(self, lengths: Integers) -> Numbers:
        """Give the lengths as an array; an error where a sequence fits into no micro-batch."""
        each = np.asarray(lengths, np.int64)
        if each.min(initial=1) < 1:
            raise OrderError(f"sequence {int(each.argmin())} has no tokens", hint="leave it out")
        if len(each) and self._padded(int(each.max())) > self.cap:
            raise OrderError(
                f"sequence {int(each.argmax())} has {each.max()} tokens, and a micro-batch at most {self.cap}",
                hint="pass a higher cap, or refuse such sequences when they arrive",
            )
        return each


def _longest_first(lengths: Numbers) -> tuple[Numbers, list[int]]:
    rows = np.argsort(-lengths, kind="stable")
    return rows, lengths[rows].tolist()


def _light_at_both_ends(found: list[Numbers], costs: Numbers) -> list[Numbers]:
    """Heavy micro-batches in the middle: the first and last ones leave stages of a pipeline without work."""
    heaviest_first = sorted(found, key=lambda rows: (-int(costs[rows].sum()), rows.tolist()))
    return [*heaviest_first[::2][::-1], *heaviest_first[1::2]]
