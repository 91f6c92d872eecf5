"""Groups: rollouts of one prompt, and statistics of their rewards.

A group is a code, 0..g-1, per rollout; rollouts of a group need not be neighbours. A reward of NaN was not scored and
is in no statistic. An engine may give a rollout in several rows, its parts: it counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from millstream.advantages.masked import Array, Doubles, Mask, Numbers
from millstream.rollouts import EQUAL_WITHIN


def group_codes(ids: Iterable[Any]) -> Numbers:
    """Number groups in the order in which they appear.

    >>> group_codes(["b", "a", "b", 7]).tolist()
    [0, 1, 0, 2]
    """
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(each, len(codes)) for each in ids], np.int64)


@dataclass(frozen=True, eq=False)
class GroupedRewards:
    """Rewards with their groups, and the statistics that estimators share, each computed once."""

    rewards: Doubles
    groups: Numbers
    tol: float = EQUAL_WITHIN
    """A group whose rewards differ by no more than this is flat."""

    @classmethod
    def of(cls, rewards: Array, groups: Array, tol: float = EQUAL_WITHIN) -> GroupedRewards:
        """Take rewards and group codes of any number type."""
        return cls(np.asarray(rewards, np.float64), np.asarray(groups, np.int64), tol)

    @cached_property
    def scored(self) -> Mask:
        """Which rollouts have a reward."""
        return ~np.isnan(self.rewards)

    @cached_property
    def group_count(self) -> int:
        """How many groups there are."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0

    def sums(self, values: Array) -> Doubles:
        """The sum per group of a value per rollout, over rollouts that were scored."""
        kept = self.scored
        return np.bincount(self.groups[kept], values[kept], self.group_count).astype(np.float64)

    @cached_property
    def counts(self) -> Doubles:
        """Scored rollouts of each group."""
        return self.sums(np.ones(len(self.rewards)))

    @cached_property
    def means(self) -> Doubles:
        """The mean reward of each group, 0 where nothing was scored."""
        return self.sums(self.rewards) / np.maximum(self.counts, 1)

    @cached_property
    def spreads(self) -> Doubles:
        """The largest minus the smallest reward of each group."""
        kept = self.scored
        low, high = np.full(self.group_count, np.inf), np.full(self.group_count, -np.inf)
        np.minimum.at(low, self.groups[kept], self.rewards[kept])
        np.maximum.at(high, self.groups[kept], self.rewards[kept])
        return np.where(self.counts > 0, high, 0) - np.where(self.counts > 0, low, 0)

    @cached_property
    def flat(self) -> Mask:
        """Groups without a difference to learn from.

        Never asked of the deviation: rounding of the mean makes that of equal rewards larger than 0, and dividing by it
        makes advantages of pure noise.
        """
        return self.spreads <= self.tol

    @cached_property
    def judged(self) -> Mask:
        """Rollouts that were scored, in a group that is not flat: all others have an advantage of exactly 0."""
        return self.scored & ~self.flat[self.groups]

    @cached_property
    def deviations(self) -> Doubles:
        """Each reward minus the mean of its group; exactly 0 in flat groups and where nothing was scored."""
        return np.where(self.judged, self.rewards - self.means[self.groups], 0.0)

    @cached_property
    def squares(self) -> Doubles:
        """The sum of squared deviations of each group."""
        return self.sums(self.deviations**2)

    @cached_property
    def stds(self) -> Doubles:
        """The standard deviation of each group, with n - 1."""
        return np.sqrt(self.squares / np.maximum(self.counts - 1, 1))


@dataclass(frozen=True, eq=False)
class Parts:
    """For each row, the first row of its rollout: that one speaks for it.

    >>> parts = Parts.of([0, 0, 0], ["a", "a", "b"])
    >>> parts.mean(np.array([1.0, np.nan, 0.0])).tolist(), parts.sum(np.array([2, 3, 4])).tolist()
    ([1.0, 1.0, 0.0], [5.0, 5.0, 4.0])
    """

    first: Numbers

    @classmethod
    def of(cls, groups: Array | Iterable[int], ids: Iterable[Any]) -> Parts:
        """Rows of one group that share an id are one rollout."""
        codes = group_codes(zip(np.asarray(groups).tolist(), ids, strict=True))
        return cls(np.unique(codes, return_index=True)[1].astype(np.int64)[codes])

    @classmethod
    def whole(cls, rows: int) -> Parts:
        """Every row is a rollout of its own."""
        return cls(np.arange(rows, dtype=np.int64))

    @cached_property
    def heads(self) -> Mask:
        """Rows that speak for their rollout."""
        return np.asarray(self.first == np.arange(len(self.first)))

    @cached_property
    def are_whole(self) -> bool:
        """Whether every row is a rollout of its own."""
        return bool(self.heads.all())

    def sum(self, values: Array) -> Doubles:
        """The sum over all rows of a row's rollout, without NaN."""
        return np.bincount(self.first, np.nan_to_num(values), len(self.first)).astype(np.float64)[self.first]

    def mean(self, values: Array) -> Doubles:
        """The mean over all rows of a row's rollout that are not NaN; NaN if there are none."""
        counts = self.sum(~np.isnan(values))
        return np.where(counts > 0, self.sum(values) / np.maximum(counts, 1), np.nan)
