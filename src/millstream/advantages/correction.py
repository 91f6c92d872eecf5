"""Behaviour correction: tokens were sampled by an engine or by an older policy, and are trained under another.

Ratios of both probabilities weight the loss: per token, or one per rollout, bounded so that a few tokens do not decide.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from millstream.advantages.masked import Array, Doubles, as_mask, masked_counts, masked_sums, spread_rows
from millstream.errors import LoaderError

_Level = Literal["token", "sequence", "geometric"]
"""A ratio per token; their product over a rollout; or the geometric mean over its tokens."""
BOUND = 20.0
"""No ratio leaves e^±20: far outside of any cap, and never infinite."""


def ratios(train: Array, sampling: Array, mask: Array) -> Doubles:
    """Probability under the trained policy over that under which it was sampled; 0 where the mask is not set.

    >>> ratios(np.array([-1, -0.2, -3]), np.array([-1.1, -0.9, -1.5]), np.ones(3)).round(4).tolist()
    [1.1052, 2.0138, 0.2231]
    """
    return np.where(as_mask(mask), np.exp(np.clip(_apart(train, sampling, mask), -BOUND, BOUND)), 0.0)


def sequence_ratios(train: Array, sampling: Array, mask: Array, ends: Array, level: _Level = "sequence") -> Doubles:
    """One ratio per rollout: the product over its tokens, or their geometric mean; 1 for rollouts without any.

    >>> train, sampling = np.array([-1, -0.2, -3]), np.array([-1.1, -0.9, -1.5])
    >>> [sequence_ratios(train, sampling, np.ones(3), np.array([3]), level).round(4).item() for level in
    ...  ("sequence", "geometric")]
    [0.4966, 0.7919]
    """
    logs = masked_sums(_apart(train, sampling, mask), mask, ends)
    if level == "geometric":
        logs /= np.maximum(masked_counts(mask, ends), 1)
    elif level != "sequence":
        raise LoaderError(f"a ratio per rollout is not {level!r}", hint='it is "sequence" or "geometric"')
    return np.exp(np.clip(logs, -BOUND, BOUND))


def truncate(found: Array, cap: float) -> Doubles:
    """Ratios of at most `cap` (truncated importance sampling).

    >>> truncate(np.array([1.1, 2.5]), 2).tolist()
    [1.1, 2.0]
    """
    return np.minimum(np.asarray(found, np.float64), cap)


def reject(found: Array, low: float, high: float) -> Doubles:
    """Ratios between two bounds; those outside become 0, and train nothing.

    >>> reject(np.array([0.1, 1.1, 2.5]), 0.5, 2).tolist()
    [0.0, 1.1, 0.0]
    """
    given = np.asarray(found, np.float64)
    return np.where((given >= low) & (given <= high), given, 0.0)


def correction_weights(
    train: Array,
    sampling: Array,
    mask: Array,
    ends: Array,
    *,
    level: _Level = "token",
    cap: float = 2.0,
    floor: float | None = None,
) -> Doubles:
    """A weight per token for its loss: ratios of a level, at most `cap`; or, with a `floor`, 0 outside of both.

    >>> correction_weights(np.array([-1, -0.2, -3]), np.array([-1.1, -0.9, -1.5]), np.ones(3), np.array([3])).round(
    ...     4
    ... ).tolist()
    [1.1052, 2.0, 0.2231]
    """
    per_token = level == "token"
    found = ratios(train, sampling, mask) if per_token else sequence_ratios(train, sampling, mask, ends, level)
    bounded = truncate(found, cap) if floor is None else reject(found, floor, cap)
    return bounded if per_token else spread_rows(bounded, mask, ends)


def _apart(train: Array, sampling: Array, mask: Array) -> Doubles:
    chosen = as_mask(mask)
    apart = np.zeros(len(chosen))
    np.subtract(train, sampling, out=apart, where=chosen, dtype=np.float64)
    return apart
