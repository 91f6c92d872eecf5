"""Rollouts of a step -> batches of this rank: dealt out to ranks, cut into micro-batches, all with one denominator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import TrainingBatch
from millstream.batches.rollouts import RolloutRows, RolloutStep
from millstream.loaders.rollout_settings import StepSettings
from millstream.order.step_plan import StepPlan

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DealtStep:
    """A step: its rollouts on all ranks, and those of this one."""

    rollouts: RolloutStep
    shares: Sequence[Numbers]
    """Rollouts of each rank, as numbers among those of the step."""
    rank: int
    settings: StepSettings

    @property
    def own(self) -> Numbers:
        """The rollouts of this rank."""
        return self.shares[self.rank]

    def batch(self, *, filled_to: int = 0) -> TrainingBatch:
        """All rollouts of this rank in one batch; behind them come rows without loss, up to so many."""
        if len(self.own) == 0:
            return self.rollouts.batch([]).rows_between(0, 1 if filled_to else 0)
        batch = self.rollouts.batch(self.own)
        missing = 0 if self.settings.packing else filled_to - len(self.own)
        if missing <= 0:
            return batch
        filler = self.rollouts.batch([], length=batch.metadata["sequence_length"])
        return TrainingBatch.merge([batch, *[filler] * missing])

    @cached_property
    def plan(self) -> StepPlan:
        """Micro-batches of every rank: as many on each."""
        return StepPlan.cut(
            self.shares, self.rollouts.lengths, rule=self.settings.rule, multiple=self.settings.micro_multiple
        )

    def micro_batches(self) -> MicroBatches:
        """The rollouts of this rank in micro-batches."""
        own = self.plan.micro_batches[self.rank]
        return MicroBatches([self.rollouts.batch(rows) for rows in own], np.concatenate([*own, np.empty(0, np.int64)]))


class MicroBatches(list[TrainingBatch]):
    """The micro-batches of one rank in one step; every rank has as many.

    `order` are the numbers, among the rollouts of the step, of those that the micro-batches hold, one after the other.
    """

    def __init__(self, batches: Sequence[TrainingBatch], order: npt.NDArray[Any]) -> None:
        super().__init__(batches)
        self.order: Numbers = order.astype(np.int64)

    @property
    def inverse(self) -> Numbers:
        """Puts what was computed per rollout, micro-batch by micro-batch, into the order of `get_batch`.

        >>> import numpy as np
        >>> step = MicroBatches([], np.array([2, 0, 1]))
        >>> np.array(["c", "a", "b"])[step.inverse].tolist()
        ['a', 'b', 'c']
        """
        return np.argsort(self.order, kind="stable")


def shares_of(
    lengths: Numbers, counts: Sequence[int], settings: StepSettings, groups: Sequence[Any] | None
) -> Sequence[Numbers]:
    """The rollouts of each rank: so many as they come, or in balance, and then groups stay together if they are named.

    >>> [share.tolist() for share in shares_of(np.array([5, 1, 1, 5]), [2, 2], StepSettings(), None)]
    [[0, 1], [2, 3]]
    """
    if settings.balance is None:
        return np.split(np.arange(len(lengths), dtype=np.int64), np.cumsum(counts)[:-1])
    return StepPlan.share(lengths, ranks=len(counts), cost=settings.cost, groups=groups, equal_sizes=groups is None)


def expanded(groups: Numbers, counts: Sequence[int], members: Sequence[Numbers]) -> tuple[Numbers, list[int]]:
    """Groups of ranks -> their rollouts, and how many of these each rank has.

    >>> numbers, counts = expanded(np.array([1, 0]), [1, 1], [np.array([0, 2]), np.array([1])])
    >>> numbers.tolist(), counts
    ([1, 0, 2], [1, 2])
    """
    found = [members[group] for group in groups]
    sizes = np.cumsum([0, *map(len, found)])
    bounds = sizes[np.cumsum([0, *counts])]
    return np.concatenate([np.empty(0, np.int64), *found]), np.diff(bounds).tolist()


def dealt(
    rows: RolloutRows,
    numbers: Numbers,
    counts: Sequence[int],
    rank: int,
    settings: StepSettings,
    *,
    groups: Sequence[Any] | None,
    facts: Mapping[str, Any],
) -> DealtStep:
    """Deal the rollouts of a step, numbered among those of the first block, out to ranks."""
    places = np.stack([np.zeros_like(numbers), numbers], axis=1)
    step = rows.step(places, mean_of=settings.loss, constant=settings.loss_constant or 1.0, facts=facts)
    return DealtStep(step, shares_of(step.lengths, counts, settings, groups), rank, settings)
