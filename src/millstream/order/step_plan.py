"""StepPlan: the rows of a step -> micro-batches of every rank, as many on each, none over its cap."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.errors import OrderError
from millstream.order.balance import CostModel, Integers, Numbers, members, partition
from millstream.order.micro_batches import MicroBatchRule


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
