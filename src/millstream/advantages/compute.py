"""A block of rollouts -> its advantages: rewards put together, groups compared, tokens weighed.

Computed on whole groups, before anything is cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.advantages.estimators import Estimate, Scored, baseline_rows, find_estimator
from millstream.advantages.groups import GroupedRewards, Parts, group_codes
from millstream.advantages.masked import Doubles, Mask, Numbers, as_mask, masked_counts, only_rows, spread_rows
from millstream.advantages.rewards import Rewards, rewards_of
from millstream.advantages.settings import AdvantageSettings
from millstream.errors import LoaderError, RecordError
from millstream.rollouts import FINISHES, RolloutBlock

Floats = npt.NDArray[np.float32]
Facts = dict[str, float | int]


@dataclass(frozen=True, eq=False)
class Advantages:
    """Advantages of a block, in its order."""

    ends: Numbers
    trained: Mask
    """Tokens that are trained: the block's mask, without baselines and what was filtered."""
    per_rollout: Doubles | None
    """One number per rollout, if the estimator gives one."""
    per_token: Floats | None
    """One number per token, if the estimator gives those instead."""
    returns: Floats | None
    """What a critic learns, or what was whitened: one number per token, if the estimator has them."""
    rewards: Doubles
    """The reward that each advantage comes from: parts of a rollout have one; NaN: not scored."""
    groups: Numbers
    """The group of each rollout, numbered in the order in which they appear."""
    zero_variance: Mask
    """For each group, whether its task rewards are all equal (or not scored): it teaches a group estimator nothing."""
    loss_mask: Mask | None
    """The mask to train with, where it is not the block's."""
    alone: Numbers
    """Rollouts that are alone in their group, without one to be compared with."""
    facts: Facts
    """Numbers to report."""

    def token_advantages(self) -> Floats:
        """One advantage per token, 0 where nothing is trained."""
        if self.per_token is not None:
            return self.per_token
        assert self.per_rollout is not None
        return spread_rows(self.per_rollout, self.trained, self.ends, np.float32)


def compute_advantages(block: RolloutBlock, settings: AdvantageSettings | None = None) -> Advantages:
    """Compute the advantages of whole groups.

    A rollout of kind "baseline" is compared with, and gets nothing itself. One whose reward is NaN was not scored: it
    is in no mean, and its advantage is 0. Rows of a group that share a rollout id are parts of one rollout, which
    counts once, and whose advantage they all get; estimators that go through tokens take each for itself. Rewards at
    tokens that the policy did not sample are ignored, and counted.

    >>> block = RolloutBlock(
    ...     np.array([2, 3]),
    ...     {"rollout_id": np.array(["a", "b"], object), "group_id": np.array(["g", "g"], object),
    ...      "reward": np.array([1.0, 0.0]), "finish": np.zeros(2, np.uint8)},
    ...     {"loss_mask": np.array([False, True, True])},
    ... )
    >>> compute_advantages(block, AdvantageSettings("rloo")).token_advantages().tolist()
    [0.0, 1.0, -1.0]
    """
    chosen = settings or AdvantageSettings()
    estimator = find_estimator(chosen)
    policy = as_mask(block.tokens["loss_mask"])
    lengths = masked_counts(policy, block.ends)
    detail = rewards_of(block, policy, lengths, chosen)
    groups, samples = group_codes(block.rows["group_id"]), ~baseline_rows(block)
    parts = Parts.of(groups, block.rows["rollout_id"]) if estimator.groups else Parts.whole(len(block))
    task_rewards, rewards = detail.of_rollouts(parts)
    counted = samples & parts.heads
    task = GroupedRewards.of(np.where(counted, task_rewards, np.nan), groups, chosen.zero_variance_tol)
    alone = _alone(task, counted) if estimator.groups else np.empty(0, np.int64)
    if len(alone) and not chosen.allow_singleton:
        raise _singletons(block, alone, chosen.estimator)
    # Where the task sees no difference, what length and KL took off must not make one.
    compared = np.where(counted, np.where(task.flat[groups], task_rewards, rewards), np.nan)
    trained = only_rows(policy, block.ends, samples)
    if chosen.filter_truncated:
        trained = _without_truncated(trained, block.ends, block.rows["finish"])
    estimate = estimator.function(Scored(block, trained, lengths, groups, compared, detail, parts), chosen)
    return Advantages(
        block.ends,
        trained,
        _per_rollout(estimate, compared, parts, chosen.estimator),
        None if estimate.per_token is None else np.asarray(estimate.per_token, np.float32),
        None if estimate.returns is None else np.asarray(estimate.returns, np.float32),
        rewards,
        groups,
        task.flat,
        None if trained is policy else trained,
        alone,
        {
            **_facts(task, counted, ~samples & parts.heads),
            "groups_of_one": len(alone),
            **_losses(block, policy, trained, detail, lengths, chosen),
            **estimate.facts,
        },
    )


def _without_truncated(mask: Mask, ends: Numbers, finish: npt.NDArray[np.uint8]) -> Mask:
    """The mask without rollouts that were cut off by their length (`finish` holds numbers of `FINISHES`).

    >>> _without_truncated(np.ones(3), np.array([2, 3]), np.array([1, 0])).tolist()
    [False, False, True]
    """
    return only_rows(mask, ends, np.asarray(finish) != FINISHES.index("length"))


def _per_rollout(estimate: Estimate, compared: Doubles, parts: Parts, estimator: str) -> Doubles | None:
    """What an estimator gave, for all parts, and 0 where there was nothing to compare, whatever it made of that."""
    if estimate.per_rollout is None and estimate.per_token is None:
        raise LoaderError(f"the estimator {estimator!r} gave nothing", hint="fill per_rollout or per_token of Estimate")
    if estimate.per_rollout is None:
        return None
    return np.where(np.isnan(compared), 0.0, estimate.per_rollout)[parts.first]


def _alone(task: GroupedRewards, counted: Mask) -> Numbers:
    """Rollouts that were scored and are alone in their group."""
    sizes = np.bincount(task.groups[counted], minlength=task.group_count)
    return np.flatnonzero(counted & task.scored & (sizes[task.groups] == 1)).astype(np.int64)


def _singletons(block: RolloutBlock, alone: Numbers, estimator: str) -> RecordError:
    return RecordError(
        "group of one",
        f"group {block.rows['group_id'][alone[0]]!r} has one rollout, {block.rows['rollout_id'][alone[0]]!r}"
        + (f", and {len(alone) - 1} more groups have one" if len(alone) > 1 else ""),
        hint=f"{estimator} compares rollouts of a group: sample prompts more than once, or use reinforce++, gae or "
        "remax, which need no group; allow_singleton=True gives such rollouts an advantage of 0",
    )


def _facts(task: GroupedRewards, counted: Mask, baselines: Mask) -> Facts:
    """What rewards look like; a group counts if any of it was scored."""
    known = task.counts > 0
    flat = int(np.sum(task.flat & known))
    rewards = task.rewards[task.scored]
    return {
        "rollouts": int(np.sum(counted)),
        "baselines": int(np.sum(baselines)),
        "groups": task.group_count,
        "unscored": int(np.sum(counted & ~task.scored)),
        "mean_reward": float(rewards.mean()) if len(rewards) else float("nan"),
        "std_reward": float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0,
        "zero_variance_groups": flat,
        "zero_variance_share": flat / max(int(np.sum(known)), 1),
    }


def _losses(
    block: RolloutBlock, policy: Mask, trained: Mask, detail: Rewards, lengths: Numbers, settings: AdvantageSettings
) -> Facts:
    """What was cut off, left out, ignored or taken off."""
    cut = block.rows["finish"] == FINISHES.index("length")
    facts: Facts = {"truncated": int(np.sum(cut))}
    if trained is not policy:
        facts["tokens_not_trained"] = int(np.count_nonzero(policy)) - int(np.count_nonzero(trained))
    if settings.kl_beta > 0:
        per_rollout = (detail.shaped - detail.total) / settings.kl_beta / np.maximum(lengths, 1)
        scored = ~np.isnan(per_rollout)
        facts["kl"] = float(per_rollout[scored].mean()) if scored.any() else 0.0
    if "token_rewards" in block and detail.per_token is not None:
        elsewhere = block.tokens["token_rewards"][~policy]
        facts["rewards_ignored"] = int(np.count_nonzero(np.nan_to_num(elsewhere)))
    return facts
