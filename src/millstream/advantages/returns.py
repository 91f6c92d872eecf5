"""Estimators with one advantage per token: what is still to come, discounted, seen from each token of the policy.

Tokens that the policy did not sample, a tool's say, are stepped over: they neither discount nor carry a value.
"""

from __future__ import annotations

import numpy as np

from millstream import _core
from millstream.advantages.masked import Array, Precision, as_ends, as_mask, as_reals, spread_rows
from millstream.errors import RecordError


def gae(
    rewards: Array,
    values: Array,
    mask: Array,
    ends: Array,
    *,
    token_rewards: Array | None = None,
    done: Array | None = None,
    bootstrap: Array | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
    dtype: Precision = np.float64,
) -> tuple[Array, Array]:
    """Generalised advantages, and returns (advantage + value); neither is whitened.

    `rewards` has one value per rollout, on top of its last policy token; one that is NaN gives advantages of 0 and
    returns that equal the values. `bootstrap` is the value after the last token of rollouts that were cut off. An
    episode ends with each token that is `done`, of the policy or not, and nothing crosses that.

    >>> advantages, returns = gae(
    ...     np.array([1.0]), np.array([0.5, 0.6, 0.7, 0.8]), np.ones(4), np.array([4]), gamma=0.99, lam=0.95
    ... )
    >>> advantages.round(4).tolist(), returns.round(4).tolist()
    ([0.4292, 0.3564, 0.2801, 0.2], [0.9292, 0.9564, 0.9801, 1.0])
    """
    every = (rewards, mask, ends, token_rewards, done, gamma, dtype)
    out, returns = _scan(*every, values=as_reals(values, dtype), bootstrap=bootstrap, lam=lam)
    assert returns is not None
    return out, returns


def discounted_returns(
    rewards: Array,
    mask: Array,
    ends: Array,
    *,
    token_rewards: Array | None = None,
    done: Array | None = None,
    gamma: float = 1.0,
    dtype: Precision = np.float64,
) -> Array:
    """Each policy token's reward and all later ones of its episode, discounted by gamma per policy token.

    >>> discounted_returns(np.array([1.0, 0.0]), np.ones(5), np.array([3, 5]), gamma=0.9).round(4).tolist()
    [0.81, 0.9, 1.0, 0.0, 0.0]
    """
    return _scan(rewards, mask, ends, token_rewards, done, gamma, dtype)[0]


def remax(
    rewards: Array,
    baselines: Array,
    mask: Array,
    ends: Array,
    *,
    token_rewards: Array | None = None,
    dtype: Precision = np.float64,
) -> tuple[Array, Array]:
    """Rewards to come minus the reward of the prompt's greedy rollout, and the rewards to come.

    >>> remax(np.array([1.0, 0.0]), np.array([0.25, 0.25]), np.ones(3), np.array([2, 3]))[0].tolist()
    [0.75, 0.75, -0.25]
    """
    returns = discounted_returns(rewards, mask, ends, token_rewards=token_rewards, dtype=dtype)
    unscored = np.isnan(np.asarray(rewards, np.float64))
    return returns - spread_rows(np.where(unscored, 0.0, baselines), mask, ends, dtype), returns


def _scan(
    rewards: Array,
    mask: Array,
    ends: Array,
    token_rewards: Array | None,
    done: Array | None,
    gamma: float,
    dtype: Precision,
    *,
    values: Array | None = None,
    bootstrap: Array | None = None,
    lam: float = 1.0,
) -> tuple[Array, Array | None]:
    """Advantages, and returns where there are values. Without values advantages are the returns."""
    out: Array = np.empty(len(mask), dtype)
    returns: Array | None = None if values is None else np.empty(len(mask), dtype)
    broken = _core.scan_returns(
        as_ends(ends),
        as_mask(mask),
        np.ascontiguousarray(rewards, np.float64),
        None if token_rewards is None else as_reals(token_rewards, dtype),
        values,
        None if done is None else as_mask(done),
        None if bootstrap is None else np.ascontiguousarray(bootstrap, np.float64),
        gamma,
        lam,
        out,
        returns,
    )
    if broken >= 0:
        raise RecordError(
            "not a finite number",
            f"a reward or value of rollout {broken} of these is infinite or NaN at a token of the policy",
            hint="a `reward` of NaN means that it was not scored; everything else must be numbers",
        )
    return out, returns
