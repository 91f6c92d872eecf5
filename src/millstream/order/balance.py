"""Rows of a step -> ranks and micro-batches that cost about the same.

Integers to integers: all ranks that ask get the same answer. A micro-batch is limited by the memory that it takes: of
packed sequences their sum, of padded ones rows times the longest.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import OrderError

Numbers = npt.NDArray[np.int64]
Integers = Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True)
class CostModel:
    """What a sequence costs a model: linear · length + quadratic · length².

    The defaults are those of a model of hidden size 4096.

    >>> CostModel().of([1, 2]).tolist()
    [24577, 49156]
    """

    linear: int = 24576
    quadratic: int = 1

    @classmethod
    def of_config(
        cls, hidden_size: int, *, intermediate_size: int | None = None, key_value_size: int | None = None
    ) -> CostModel:
        """Count the multiplications of a layer: its weights once per token, attention between each two tokens.

        >>> CostModel.of_config(4096)
        CostModel(linear=24576, quadratic=1)

        Args:
            hidden_size: Width of the model.
            intermediate_size: Width of its gated MLP; by default 8/3 of the hidden size.
            key_value_size: Key-value heads times their size; by default the hidden size.
        """
        mlp = 8 * hidden_size if intermediate_size is None else 3 * intermediate_size
        attention = 2 * hidden_size + 2 * (hidden_size if key_value_size is None else key_value_size)
        return cls((attention + mlp) // 2, 1)

    def of(self, lengths: Integers) -> Numbers:
        """What sequences of these lengths cost."""
        each = np.asarray(lengths, np.int64)
        return self.linear * each + self.quadratic * each * each


def partition(costs: Integers, parts: int, *, equal_sizes: bool = False, refine: bool = True) -> Numbers:
    """Give the part of each item, so that parts cost about the same; part 0 costs the most.

    Karmarkar and Karp's largest differencing, then exchanges between the heaviest part and others.

    >>> partition([8, 7, 6, 5, 4], 2).tolist()
    [1, 1, 0, 0, 0]

    Args:
        costs: What each item costs; not negative.
        parts: How many parts there are.
        equal_sizes: No part gets two items more than another.
        refine: Exchange items afterwards; without it the parts are those of the plain method.
    """
    each = np.ascontiguousarray(costs, np.int64)
    if parts < 1:
        raise OrderError(f"items cannot be put into {parts} parts", hint="pass 1 or more")
    if each.min(initial=0) < 0:
        raise OrderError(f"item {int(each.argmin())} costs {each.min()}", hint="costs are 0 or more")
    part_of = np.empty(len(each), np.int64)
    try:
        _core.partition(each, parts, equal_sizes, refine, part_of)
    except OverflowError:
        raise OrderError("the costs add up to more than 2^62", hint="divide them by something") from None
    return part_of


def members(part_of: Numbers, parts: int) -> list[Numbers]:
    """The items of each part, in rising order.

    >>> [each.tolist() for each in members(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    order = np.argsort(part_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part_of, minlength=parts))[:-1])


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
    """Whether sequences are packed end to end; else each is a row as long as the longest."""
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


@dataclass(frozen=True, eq=False)
class StepPlan:
    """Which rows every rank takes, cut into micro-batches.

    >>> plan = StepPlan.of([5, 5, 1, 1, 9, 9, 2, 2], ranks=2, rule=MicroBatchRule(cap=12))
    >>> [[rows.tolist() for rows in rank] for rank in plan.micro_batches]
    [[[4], [1, 3, 7]], [[5], [0, 2, 6]]]
    """

    micro_batches: tuple[tuple[Numbers, ...], ...]
    """Rows of each micro-batch of each rank. All ranks have equally many; some may have no rows."""

    @classmethod
    def of(
        cls,
        lengths: Integers,
        *,
        ranks: int = 1,
        rule: MicroBatchRule | None = None,
        cost: CostModel | None = None,
        groups: Sequence[Hashable] | None = None,
        equal_sizes: bool = False,
        multiple: int = 1,
    ) -> StepPlan:
        """Plan a step.

        Args:
            lengths: Tokens of each row.
            ranks: Data-parallel ranks.
            rule: What a micro-batch may hold; None: each rank has one micro-batch, of any size.
            cost: What is balanced; by default what the rule says.
            groups: The group of each row, to keep groups on one rank; None: rows go where they are needed.
            equal_sizes: No rank gets two rows more than another (two groups more, where groups are kept).
            multiple: Each rank has a multiple of so many micro-batches, as stages of a pipeline want.
        """
        balanced = cost or (rule.cost if rule else CostModel())
        shares = cls.share(lengths, ranks=ranks, cost=balanced, groups=groups, equal_sizes=equal_sizes)
        return cls.cut(shares, lengths, rule=rule, multiple=multiple)

    @staticmethod
    def share(
        lengths: Integers,
        *,
        ranks: int,
        cost: CostModel,
        groups: Sequence[Hashable] | None = None,
        equal_sizes: bool = False,
    ) -> list[Numbers]:
        """Deal rows out to ranks so that each has about as much to do; gives the rows of each, in rising order."""
        each = np.asarray(lengths, np.int64)
        units = np.arange(len(each)) if groups is None else _numbered(groups, len(each))
        unit_costs = np.zeros(int(units.max(initial=-1)) + 1, np.int64)
        np.add.at(unit_costs, units, cost.of(each))
        return members(partition(unit_costs, ranks, equal_sizes=equal_sizes)[units], ranks)

    @classmethod
    def cut(
        cls, shares: Sequence[Numbers], lengths: Integers, *, rule: MicroBatchRule | None, multiple: int = 1
    ) -> StepPlan:
        """Cut the rows of each rank into micro-batches, as many on each."""
        each = np.asarray(lengths, np.int64)
        if rule is None:
            return cls(tuple((share,) for share in shares))
        rule.check(each)
        needed = max(rule.fewest(each[share]) for share in shares)
        count = max(1, -(-needed // multiple)) * multiple
        return cls(tuple(tuple(share[rows] for rows in rule.cut_into(count, each[share])) for share in shares))

    @property
    def delivered(self) -> Numbers:
        """All rows in the order in which they are delivered: rank by rank, micro-batch by micro-batch."""
        return np.concatenate([np.empty(0, np.int64), *(rows for rank in self.micro_batches for rows in rank)])

    @property
    def inverse(self) -> Numbers:
        """Where each row is among those delivered: `delivered[inverse]` are the rows as they were.

        >>> plan = StepPlan.of([5, 7, 6], ranks=2)
        >>> plan.delivered.tolist(), plan.delivered[plan.inverse].tolist()
        ([0, 2, 1], [0, 1, 2])
        """
        return np.argsort(self.delivered)


def _numbered(groups: Sequence[Hashable], rows: int) -> Numbers:
    if len(groups) != rows:
        raise OrderError(f"{len(groups)} groups are named for {rows} rows", hint="name the group of each row")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.int64)
