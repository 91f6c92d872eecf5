"""Estimators with one advantage per rollout: its reward, compared with those of its group.

Rewards and group codes in, float64 out. Rollouts that were not scored (NaN) and groups whose rewards are all equal get
exactly 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from millstream.advantages.groups import GroupedRewards
from millstream.advantages.masked import Array, Doubles, Whitening, whiten_rows
from millstream.errors import LoaderError
from millstream.rollouts import EQUAL_WITHIN

Scale = Literal["group", "batch", "none"]
"""What deviations are divided by: the standard deviation of the group, that of all rewards, or nothing."""


def grpo(
    rewards: Array, groups: Array, *, epsilon: float = 1e-6, scale: Scale = "group", tol: float = EQUAL_WITHIN
) -> Doubles:
    """(R - mean of the group) / (standard deviation with n - 1, plus epsilon).

    verl has epsilon 1e-6, TRL 1e-4 (and `scale="batch"`), OpenRLHF 1e-9; Dr.GRPO is `scale="none"`.

    >>> grpo(np.array([1, 0, 0, 1, 0.5, 0.5]), np.array([0, 0, 0, 0, 1, 1])).round(4).tolist()
    [0.866, -0.866, -0.866, 0.866, 0.0, 0.0]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    return found.deviations / _divisor(found, scale, epsilon)


def dr_grpo(rewards: Array, groups: Array, *, tol: float = EQUAL_WITHIN) -> Doubles:
    """R - mean of the group, not divided: easy and hard prompts weigh by how much their rewards differ.

    >>> dr_grpo(np.array([2, 1, 0, -1]), np.zeros(4)).tolist()
    [1.5, 0.5, -0.5, -1.5]
    """
    return grpo(rewards, groups, scale="none", tol=tol)


def rloo(rewards: Array, groups: Array, *, tol: float = EQUAL_WITHIN) -> Doubles:
    """R - mean of the other rollouts of the group.

    >>> rloo(np.array([2, 1, 0, -1]), np.zeros(4)).round(4).tolist()
    [2.0, 0.6667, -0.6667, -2.0]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    return found.deviations * _apart(found)


def leave_one_out(rewards: Array, groups: Array, *, epsilon: float = 1e-6, tol: float = EQUAL_WITHIN) -> Doubles:
    """As `rloo`, divided by the standard deviation of the others, where they differ (NeMo-RL's GRPO).

    >>> leave_one_out(np.array([2, 1, 0, -1]), np.zeros(4)).round(4).tolist()
    [2.0, 0.4364, -0.4364, -2.0]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    counts = found.counts[found.groups]
    squares = found.squares[found.groups] - found.deviations**2 * _apart(found)
    stds = np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 2, 1))
    differ = _spread_of_others(found) > tol
    return found.deviations * _apart(found) / np.where(differ, stds + epsilon, 1.0)


def opo(rewards: Array, groups: Array, lengths: Array, *, tol: float = EQUAL_WITHIN) -> Doubles:
    """R - mean of the group weighted by length; `lengths` are the policy's tokens.

    >>> opo(np.array([1, 0, 0, 1]), np.zeros(4), np.array([3, 2, 4, 1])).round(4).tolist()
    [0.6, -0.4, -0.4, 0.6]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    weights = np.asarray(lengths, np.float64)
    baselines = found.sums(weights * found.rewards) / np.maximum(found.sums(weights), 1)
    return np.where(found.judged, found.rewards - baselines[found.groups], 0.0)


def passk(
    rewards: Array, groups: Array, *, epsilon: float = 1e-6, scale: Scale = "none", tol: float = EQUAL_WITHIN
) -> Doubles:
    """Only the best of a group gets something: what it is better by than the second.

    verl divides by the group's standard deviation, as `scale="group"` does.

    >>> passk(np.array([2, 1, 0, -1]), np.zeros(4)).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    order, first, last = _by_reward(found)
    second = np.where(first, order, np.roll(order, 1))  # the one before in the same group
    gains = np.zeros(len(found.rewards))
    best = order[last]
    gains[best] = found.rewards[best] - found.rewards[second[last]]
    return np.where(found.judged, gains / _divisor(found, scale, epsilon), 0.0)


def reinforce_baseline(
    rewards: Array, groups: Array, tokens: Array, *, whitening: Whitening = "unbiased", tol: float = EQUAL_WITHIN
) -> Doubles:
    """R - mean of the group on each of a rollout's trained tokens, whitened over all of them (REINFORCE++-baseline).

    A flat group gets what 0 is whitened to, which is 0 only if the mean over tokens is.

    >>> reinforce_baseline(np.array([1, 0, 0, 1]), np.zeros(4), np.array([3, 2, 4, 1])).round(4).tolist()
    [1.1619, -0.7746, -0.7746, 1.1619]
    """
    found = GroupedRewards.of(rewards, groups, tol)
    trained = np.where(found.scored, tokens, 0)
    return np.where(found.scored, whiten_rows(found.deviations, trained, whitening=whitening), 0.0)


def _divisor(found: GroupedRewards, scale: Scale, epsilon: float) -> Doubles | float:
    """What each rollout's deviation is divided by; never 0."""
    if scale == "none":
        return 1.0
    if scale == "group":
        return np.where(found.judged, found.stds[found.groups] + epsilon, 1.0)
    if scale == "batch":
        every = found.rewards[found.scored]
        return np.where(found.judged, (np.std(every, ddof=1) if len(every) > 1 else 0.0) + epsilon, 1.0)
    raise LoaderError(f"scale is {scale!r}", hint='it is "group", "batch" or "none"')


def _apart(found: GroupedRewards) -> Doubles:
    """n / (n - 1) of each rollout's group: the step from the mean of all to the mean of the others."""
    counts = found.counts[found.groups]
    return counts / np.maximum(counts - 1, 1)


def _by_reward(found: GroupedRewards) -> tuple[Array, Array, Array]:
    """Scored rollouts by group, then reward; and which of them are the first and the last of their group."""
    rows = np.flatnonzero(found.scored)
    order = rows[np.lexsort((found.rewards[rows], found.groups[rows]))]
    changes = np.diff(found.groups[order]) != 0
    edge = np.ones(min(len(order), 1), bool)
    return order, np.concatenate([edge, changes]), np.concatenate([changes, edge])


def _spread_of_others(found: GroupedRewards) -> Doubles:
    """The largest minus the smallest reward of the others in each rollout's group."""
    order, first, last = _by_reward(found)
    kept, codes = found.rewards[order], found.groups[order]
    low, high = np.zeros(found.group_count), np.zeros(found.group_count)
    low[codes[first]], high[codes[last]] = kept[first], kept[last]
    second_low = np.where(last, kept, np.roll(kept, -1))
    second_high = np.where(first, kept, np.roll(kept, 1))
    spreads = np.zeros(len(found.rewards))
    spreads[order] = np.where(last, second_high, high[codes]) - np.where(first, second_low, low[codes])
    return spreads
