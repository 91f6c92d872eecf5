"""The rewards of a block -> one reward per rollout, and the part of it that stands on single tokens.

A KL penalty takes off how far the policy is from a reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millstream.advantages.groups import Parts
from millstream.advantages.masked import Array, Doubles, Mask, as_mask, masked_sums
from millstream.advantages.settings import AdvantageSettings, KlKind, RewardOf
from millstream.errors import LoaderError, RecordError
from millstream.rollouts import NAMED_REWARD, RolloutBlock

_MOST_EXPONENT, _MOST_VALUE = 20.0, 10.0
"""verl's bounds of the exponent and of the value of k3."""


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


def kl_divergence(
    logprobs: Array, reference: Array, mask: Array, kind: KlKind = "k1", *, clamp: bool = False
) -> Doubles:
    """Estimates per token, 0 where the mask is not set; `clamp` bounds k3 as verl does.

    With d = log p - log q, k1 is d (no bias, may be negative), k2 is d²/2, k3 is e^-d + d - 1 (no bias, at least 0).

    >>> kl_divergence(np.array([-1, -0.5, -2]), np.array([-1.2, -0.5, -1]), np.ones(3), "k3").round(4).tolist()
    [0.0187, 0.0, 0.7183]
    """
    chosen = as_mask(mask)
    apart = np.zeros(len(chosen))
    # Infinite log-probabilities give NaN; `rewards_of` finds it in the sum and names the rollout.
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(logprobs, reference, out=apart, where=chosen, dtype=np.float64)
        return _kl_estimate(apart, kind, clamp=clamp)


def _kl_estimate(apart: Doubles, kind: KlKind, *, clamp: bool) -> Doubles:
    if kind == "k1":
        return apart
    if kind == "k2":
        return 0.5 * apart**2
    if kind != "k3":
        raise LoaderError(f"a KL estimate {kind!r} is not known", hint='it is "k1", "k2" or "k3"')
    exponent = np.clip(-apart, -_MOST_EXPONENT, _MOST_EXPONENT) if clamp else -apart
    found = np.expm1(exponent) - exponent
    return np.minimum(found, _MOST_VALUE) if clamp else found


def adapt_beta(beta: float, kl: float, *, target: float, steps: int, horizon: int) -> float:
    """The next weight of the KL penalty: larger if the policy is further away than `target`, else smaller.

    >>> round(adapt_beta(0.2, 8, target=6, steps=256, horizon=10_000), 6)
    0.201024
    """
    return beta * (1 + min(max(kl / target - 1, -0.2), 0.2) * steps / horizon)
