"""What a block says about rewards -> one reward per rollout, and the part of it that stands on single tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millstream.advantages.kl import kl_divergence
from millstream.advantages.parts import Parts
from millstream.advantages.ragged import Array, Doubles, Mask, masked_sums
from millstream.advantages.settings import AdvantageSettings, RewardOf
from millstream.errors import LoaderError, RecordError
from millstream.rollouts import NAMED_REWARD, RolloutBlock


@dataclass(frozen=True, eq=False)
class Rewards:
    """Rewards of a block. A rollout's reward is `at_end` plus the sum of `per_token` over its policy tokens."""

    task: Doubles
    """What the task gave, before anything was added or taken off. NaN: not scored."""
    at_end: Doubles
    """What stands on the last policy token. NaN: not scored."""
    per_token: Array | None
    """What stands on each token, if anything does."""
    shaped: Doubles
    """The task's reward with what length takes off."""
    total: Doubles
    """The same with what the KL penalty takes off: the reward that advantages come from."""

    def of_rollouts(self, parts: Parts) -> tuple[Doubles, Doubles]:
        """The task's reward and the total of each row's whole rollout.

        Parts usually all have the reward of their rollout, and where they differ it is their mean; what stands on
        tokens adds up.
        """
        if parts.are_whole:
            return self.task, self.total
        on_tokens, with_kl = self.shaped - self.at_end, self.total - self.at_end
        task = parts.mean(self.task - on_tokens) + parts.sum(on_tokens)
        return task, parts.mean(self.at_end) + parts.sum(with_kl)


def rewards_of(block: RolloutBlock, mask: Mask, lengths: Array, settings: AdvantageSettings) -> Rewards:
    """Put together the task's reward, what length takes off, and what the KL penalty takes off.

    `mask` and `lengths` are the policy's tokens; what stands at others is ignored.
    """
    scalar, per_token = _task(block, settings)
    on_tokens = 0.0 if per_token is None else masked_sums(per_token, mask, block.ends)
    task = scalar + on_tokens
    at_end = np.where(np.isnan(task), np.nan, scalar)
    if settings.overlong is not None:
        at_end = at_end + settings.overlong.penalty(lengths)
    shaped = total = at_end + on_tokens
    if settings.kl_beta > 0:
        penalty = settings.kl_beta * _divergence(block, mask, settings)
        per_token = -penalty if per_token is None else per_token - penalty
        total = at_end + masked_sums(per_token, mask, block.ends)
    _refuse_infinite(block, task, total)
    return Rewards(task, at_end, per_token, shaped, total)


def _task(block: RolloutBlock, settings: AdvantageSettings) -> tuple[Doubles, Array | None]:
    source: RewardOf = settings.reward_of
    if source == "auto":
        source = "tokens" if "token_rewards" in block and not settings.reward_weights else "scalar"
    scalar = np.zeros(len(block)) if source == "tokens" else _scalar(block, settings)
    if source == "scalar":
        return scalar, None
    if "token_rewards" not in block:
        raise LoaderError(
            "these rollouts have no token_rewards", hint='with reward_of="scalar" their `reward` is what counts'
        )
    return scalar, block.tokens["token_rewards"]


def _scalar(block: RolloutBlock, settings: AdvantageSettings) -> Doubles:
    if not settings.reward_weights:
        return np.asarray(block.rows["reward"], np.float64)
    total, scored = np.zeros(len(block)), np.zeros(len(block), bool)
    for name, weight in settings.reward_weights.items():
        if NAMED_REWARD + name not in block:
            known = sorted(each.removeprefix(NAMED_REWARD) for each in block.rows if each.startswith(NAMED_REWARD))
            raise LoaderError(
                f"reward_weights: there is no reward {name!r}",
                hint=f"these rollouts have {', '.join(known)}" if known else "these rollouts have no named rewards",
            )
        column = np.asarray(block.rows[NAMED_REWARD + name], np.float64)
        scored |= ~np.isnan(column)
        total += weight * np.nan_to_num(column, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.where(scored, total, np.nan)


def _divergence(block: RolloutBlock, mask: Mask, settings: AdvantageSettings) -> Doubles:
    missing = [name for name in ("sampling_logprobs", "ref_logprobs") if name not in block]
    if missing:
        raise LoaderError(
            f"a KL penalty needs {' and '.join(missing)}, which these rollouts do not have",
            hint="put them into the records, or set kl_beta=0",
        )
    logprobs, reference = block.tokens["sampling_logprobs"], block.tokens["ref_logprobs"]
    return kl_divergence(logprobs, reference, mask, settings.kl_kind, clamp=settings.kl_clamp)


def _refuse_infinite(block: RolloutBlock, task: Doubles, total: Doubles) -> None:
    """Only the task may say NaN, not scored: what a penalty makes of a rollout must not look like that."""
    broken = np.flatnonzero(~np.isnan(task) & ~np.isfinite(total))
    if len(broken):
        row = int(broken[0])
        what = "log-probabilities that are no numbers" if np.isfinite(task[row]) else f"a reward of {task[row]}"
        raise RecordError(
            "not a finite number",
            f"rollout {block.rows['rollout_id'][row]!r} has {what}",
            hint="a `reward` of NaN means that it was not scored; everything else must be numbers",
        )
