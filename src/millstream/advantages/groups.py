"""Groups: rollouts of one prompt, and what their rewards look like together.

A group is a code, 0..g-1, per rollout; rollouts of a group need not be neighbours. A reward that is NaN was not scored:
it is in no statistic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from millstream.advantages.ragged import Array, Doubles, Mask, Numbers
from millstream.rollouts import EQUAL_WITHIN


def group_codes(ids: Iterable[Any]) -> Numbers:
    """Number groups in the order in which they appear.

    >>> group_codes(["b", "a", "b", 7]).tolist()
    [0, 1, 0, 2]
    """
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(each, len(codes)) for each in ids], np.int64)


def spread(rewards: Array, groups: Array) -> Doubles:
    """The largest minus the smallest reward of each group; 0 for groups that were not scored.

    >>> spread(np.array([1.0, 3.0, 2.0, np.nan]), np.array([0, 1, 0, 1])).tolist()
    [1.0, 0.0]
    """
    return GroupedRewards.of(rewards, groups).spreads


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
