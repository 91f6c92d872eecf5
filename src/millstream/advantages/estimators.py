"""Estimators by name: what each reads, and the function that makes advantages of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from millstream.advantages import baselines, returns
from millstream.advantages.groups import GroupedRewards, Parts
from millstream.advantages.masked import Array, Doubles, Mask, Numbers, masked_counts, only_rows, whiten
from millstream.advantages.rewards import Rewards
from millstream.advantages.settings import AdvantageSettings
from millstream.errors import LoaderError, RecordError
from millstream.rollouts import FINISHES, KINDS, RolloutBlock


@dataclass(frozen=True, eq=False)
class Scored:
    """Rollouts with their rewards and groups: what an estimator reads."""

    block: RolloutBlock
    mask: Mask
    """Tokens that are trained."""
    lengths: Numbers
    """Tokens of the policy of each row, trained or not."""
    groups: Numbers
    rewards: Doubles
    """One reward per rollout, for comparison in its group; NaN: not scored, a baseline, or a further part."""
    detail: Rewards
    """The same in detail, for estimators that go through tokens; baselines are in it."""
    parts: Parts
    """Which rows are one rollout. The first has its reward, and the others get the advantage of the first."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an estimator gives: a number per rollout, or one per token, perhaps with returns; and facts to report."""

    per_rollout: Doubles | None = None
    per_token: Array | None = None
    returns: Array | None = None
    facts: Mapping[str, float | int] = field(default_factory=dict)


_EstimatorFunction = Callable[[Scored, AdvantageSettings], Estimate]


@dataclass(frozen=True)
class Estimator:
    """A function with what is known about it."""

    function: _EstimatorFunction
    groups: bool = False
    """Whether it compares rollouts of a group, so that a group of one says nothing."""
    reads: frozenset[str] | None = None
    """Which of `_OPTIONS` it reads; None: not known."""


_OPTIONS = ("epsilon", "scale", "gamma", "lam", "whitening")
"""Settings that some estimators read, and others do not."""
_known: dict[str, Estimator] = {}


def register_estimator(name: str, function: _EstimatorFunction, *, groups: bool = False) -> None:
    """Make an estimator known; `groups`: it compares rollouts of a group.

    >>> register_estimator("raw", lambda scored, settings: Estimate(np.nan_to_num(scored.rewards)))
    >>> "raw" in known_estimators()
    True
    """
    _known[name] = Estimator(function, groups)


def known_estimators() -> list[str]:
    """The names of all estimators, sorted."""
    return sorted(_known)


def find_estimator(settings: AdvantageSettings) -> Estimator:
    """The estimator that settings name; an unknown one, or a setting that it does not read, is an error.

    >>> find_estimator(AdvantageSettings("grop"))
    Traceback (most recent call last):
    millstream.errors.LoaderError: there is no estimator 'grop'
      hint: did you mean 'grpo'? ...
    >>> find_estimator(AdvantageSettings("rloo", gamma=0.9))
    Traceback (most recent call last):
    millstream.errors.LoaderError: the estimator 'rloo' does not read gamma
    ...
    """
    name = settings.estimator
    if name not in _known:
        near = difflib.get_close_matches(name.lower().replace("_plus_plus", "++"), _known, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise LoaderError(f"there is no estimator {name!r}", hint=f"{meant}there are {', '.join(known_estimators())}")
    found, usual = _known[name], AdvantageSettings()
    changed = [option for option in _OPTIONS if getattr(settings, option) != getattr(usual, option)]
    idle = [] if found.reads is None else [option for option in changed if option not in found.reads]
    if idle:
        reads = ", ".join(sorted(found.reads or ())) or "none of these settings"
        raise LoaderError(f"the estimator {name!r} does not read {', '.join(idle)}", hint=f"it reads {reads}")
    return found


def _grpo(scored: Scored, settings: AdvantageSettings) -> Estimate:
    scale = settings.scale or "group"
    tol = settings.zero_variance_tol
    return Estimate(baselines.grpo(scored.rewards, scored.groups, epsilon=settings.epsilon, scale=scale, tol=tol))


def _dr_grpo(scored: Scored, settings: AdvantageSettings) -> Estimate:
    return Estimate(baselines.dr_grpo(scored.rewards, scored.groups, tol=settings.zero_variance_tol))


def _rloo(scored: Scored, settings: AdvantageSettings) -> Estimate:
    return Estimate(baselines.rloo(scored.rewards, scored.groups, tol=settings.zero_variance_tol))


def _leave_one_out(scored: Scored, settings: AdvantageSettings) -> Estimate:
    tol = settings.zero_variance_tol
    return Estimate(baselines.leave_one_out(scored.rewards, scored.groups, epsilon=settings.epsilon, tol=tol))


def _opo(scored: Scored, settings: AdvantageSettings) -> Estimate:
    lengths = scored.parts.sum(scored.lengths)
    return Estimate(baselines.opo(scored.rewards, scored.groups, lengths, tol=settings.zero_variance_tol))


def _passk(scored: Scored, settings: AdvantageSettings) -> Estimate:
    scale = settings.scale or "none"
    tol = settings.zero_variance_tol
    return Estimate(baselines.passk(scored.rewards, scored.groups, epsilon=settings.epsilon, scale=scale, tol=tol))


def _reinforce_baseline(scored: Scored, settings: AdvantageSettings) -> Estimate:
    trained = scored.parts.sum(masked_counts(scored.mask, scored.block.ends))
    tol = settings.zero_variance_tol
    return Estimate(
        baselines.reinforce_baseline(scored.rewards, scored.groups, trained, whitening=settings.whitening, tol=tol)
    )


def _reinforce(scored: Scored, settings: AdvantageSettings) -> Estimate:
    found = returns.discounted_returns(
        scored.detail.at_end,
        scored.mask,
        scored.block.ends,
        token_rewards=scored.detail.per_token,
        done=scored.block.tokens.get("done"),
        gamma=settings.gamma,
        dtype=np.float32,
    )
    return Estimate(per_token=whiten(found, _judged(scored), whitening=settings.whitening), returns=found)


def _remax(scored: Scored, settings: AdvantageSettings) -> Estimate:
    advantages, found = returns.remax(
        scored.detail.at_end,
        _greedy_rewards(scored),
        scored.mask,
        scored.block.ends,
        token_rewards=scored.detail.per_token,
        dtype=np.float32,
    )
    return Estimate(per_token=advantages, returns=found)


def _gae(scored: Scored, settings: AdvantageSettings) -> Estimate:
    block = scored.block
    if "values" not in block:
        raise LoaderError(
            "gae needs `values`, which these rollouts do not have",
            hint="a critic's value of each token goes into the records; grpo and reinforce++ need none",
        )
    following, unknown = _values_after(block)
    advantages, found = returns.gae(
        scored.detail.at_end,
        block.tokens["values"],
        scored.mask,
        block.ends,
        token_rewards=scored.detail.per_token,
        done=block.tokens.get("done"),
        bootstrap=following,
        gamma=settings.gamma,
        lam=settings.lam,
        dtype=np.float32,
    )
    whitened = whiten(advantages, _judged(scored), whitening=settings.whitening)
    return Estimate(per_token=whitened, returns=found, facts={"truncated_without_value": unknown})


def _values_after(block: RolloutBlock) -> tuple[Doubles, int]:
    """The value after each rollout's last token: 0 if it ended by itself, or if none was given; how many had none."""
    given = np.asarray(block.rows.get("bootstrap_value", np.full(len(block), np.nan)), np.float64)
    cut = block.rows["finish"] != FINISHES.index("stop")
    known = cut & ~np.isnan(given)
    return np.where(known, given, 0.0), int(np.sum(cut & ~known))


def baseline_rows(block: RolloutBlock) -> Mask:
    """Which rollouts are there only to be compared with."""
    kinds = block.rows.get("kind", np.zeros(len(block), np.uint8))
    return np.asarray(kinds == KINDS.index("baseline"))


def _judged(scored: Scored) -> Mask:
    """Trained tokens of rollouts that were scored: what was not scored is in no mean."""
    return only_rows(scored.mask, scored.block.ends, ~np.isnan(scored.rewards))


def _greedy_rewards(scored: Scored) -> Doubles:
    """For each rollout the reward of its prompt's baseline; the mean, if there are several. KL takes nothing off it."""
    block = scored.block
    greedy = np.where(baseline_rows(block), scored.detail.shaped, np.nan)
    found = GroupedRewards.of(greedy, scored.groups)
    lacking = np.flatnonzero(~np.isnan(scored.rewards) & (found.counts[scored.groups] == 0))
    if len(lacking):
        raise RecordError(
            "no baseline",
            f"group {block.rows['group_id'][lacking[0]]!r} has no scored rollout of kind 'baseline'",
            hint="remax compares with the greedy rollout of each prompt; rloo needs none",
        )
    return found.means[scored.groups]


def _builtin(name: str, function: _EstimatorFunction, *reads: str, groups: bool) -> None:
    _known[name] = Estimator(function, groups, frozenset(reads))


_builtin("grpo", _grpo, "epsilon", "scale", groups=True)
_builtin("dr_grpo", _dr_grpo, groups=True)
_builtin("rloo", _rloo, groups=True)
_builtin("leave_one_out", _leave_one_out, "epsilon", groups=True)
_builtin("opo", _opo, groups=True)
_builtin("passk", _passk, "epsilon", "scale", groups=True)
_builtin("reinforce++-baseline", _reinforce_baseline, "whitening", groups=True)
_builtin("reinforce++", _reinforce, "gamma", "whitening", groups=False)
_builtin("remax", _remax, groups=False)
_builtin("gae", _gae, "gamma", "lam", "whitening", groups=False)
