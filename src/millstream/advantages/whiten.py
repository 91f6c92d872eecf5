"""Whitening: values minus their mean, over their standard deviation; only masked ones count, the others become 0."""

from __future__ import annotations

from typing import Literal

import numpy as np

from millstream import _core
from millstream.advantages.ragged import Array, Doubles, as_mask, as_reals

Whitening = Literal["unbiased", "biased", "off"]
"""Variance over n - 1 with epsilon added (verl, TRL), over n and at least epsilon (OpenRLHF), or no whitening."""
EPSILON = 1e-8


def whiten(
    values: Array, mask: Array, *, whitening: Whitening = "unbiased", shift_mean: bool = True, epsilon: float = EPSILON
) -> Array:
    """Whiten the masked values; `shift_mean=False` puts their mean back. The precision stays that of the values.

    >>> whiten(np.array([1.0, 2, 3, 4, 100]), np.array([1, 1, 1, 1, 0])).round(4).tolist()
    [-1.1619, -0.3873, 0.3873, 1.1619, 0.0]
    """
    given, chosen = as_reals(values), as_mask(mask)
    out = np.empty_like(given)
    if whitening == "off":
        _core.rescale(given, chosen, 0.0, 1.0, 0.0, out)
        return out
    count, mean, squares = _core.masked_moments(given, chosen)
    _core.rescale(given, chosen, mean, _scale(squares, count, whitening, epsilon), 0.0 if shift_mean else mean, out)
    return out


def whiten_rows(
    values: Array, tokens: Array, *, whitening: Whitening = "unbiased", epsilon: float = EPSILON
) -> Doubles:
    """Whiten a value per rollout as if it stood on each of its `tokens`.

    >>> whiten_rows(np.array([1.0, -1.0]), np.array([1, 3])).round(4).tolist()
    [1.5, -0.5]
    """
    given, weights = np.asarray(values, np.float64), np.asarray(tokens, np.float64)
    count = float(weights.sum())
    if whitening == "off" or count == 0:
        return given.copy()
    mean = float(weights @ given) / count
    squares = float(weights @ (given - mean) ** 2)
    return (given - mean) * _scale(squares, count, whitening, epsilon)


def _scale(squares: float, count: float, whitening: Whitening, epsilon: float) -> float:
    if whitening == "biased":
        return float(1 / np.sqrt(max(squares / max(count, 1), epsilon)))
    return float(1 / np.sqrt(squares / max(count - 1, 1) + epsilon))
