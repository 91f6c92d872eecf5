"""Masked arithmetic: sums, counts, spread values and whitening over the tokens of rollouts, which lie end to end.

Each function takes a `mask` of tokens that count, and `ends`: where the tokens of each rollout end. Values at other
tokens, NaN or anything else, change nothing.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream import _core

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Precision: TypeAlias = type[np.float32] | type[np.float64]
Whitening = Literal["unbiased", "biased", "off"]
"""Variance over n - 1 with epsilon added (verl, TRL), over n and at least epsilon (OpenRLHF), or no whitening."""
_EPSILON = 1e-8


def masked_counts(mask: Array, ends: Array) -> Numbers:
    """How many tokens of each rollout count.

    >>> masked_counts(np.array([True, False, True]), np.array([2, 3])).tolist()
    [1, 1]
    """
    counts = np.empty(len(ends), np.int64)
    _core.masked_counts(as_mask(mask), as_ends(ends), counts)
    return counts


def masked_sums(values: Array, mask: Array, ends: Array) -> Doubles:
    """The sum of each rollout's values, added up in float64.

    >>> masked_sums(np.array([1.0, np.nan, 3.0]), np.array([True, False, True]), np.array([2, 3])).tolist()
    [1.0, 3.0]
    """
    sums = np.empty(len(ends), np.float64)
    _core.masked_sums(as_reals(values), as_mask(mask), as_ends(ends), sums)
    return sums


def spread_rows(rows: Array, mask: Array, ends: Array, dtype: Precision = np.float64) -> Array:
    """A value per rollout -> a value per token; 0 where the mask is not set.

    >>> spread_rows(np.array([5, 7]), np.array([True, False, True]), np.array([2, 3])).tolist()
    [5.0, 0.0, 7.0]
    """
    out: Array = np.empty(len(mask), dtype)
    _core.spread_rows(np.ascontiguousarray(rows, np.float64), as_mask(mask), as_ends(ends), out)
    return out


def only_rows(mask: Array, ends: Array, kept: Array) -> Mask:
    """The mask without the rollouts that are not kept.

    >>> only_rows(np.array([True, True, True]), np.array([2, 3]), np.array([False, True])).tolist()
    [False, False, True]
    """
    kept = np.asarray(kept, bool)
    return as_mask(mask) if kept.all() else as_mask(mask) & np.repeat(kept, np.diff(ends, prepend=0))


def as_mask(mask: Array) -> Mask:
    """A mask as the core takes it."""
    return np.ascontiguousarray(mask, np.bool_)


def as_ends(ends: Array) -> Numbers:
    """Ends as the core takes them."""
    return np.ascontiguousarray(ends, np.int64)


def as_reals(values: Array, dtype: Precision | None = None) -> Array:
    """Values as the core takes them: float32 as it is, everything else as float64, unless `dtype` is given."""
    kept = np.asarray(values)
    return np.ascontiguousarray(kept, dtype or (np.float32 if kept.dtype == np.float32 else np.float64))


def whiten(
    values: Array, mask: Array, *, whitening: Whitening = "unbiased", shift_mean: bool = True, epsilon: float = _EPSILON
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
    _core.rescale(
        given, chosen, mean, _whitening_scale(squares, count, whitening, epsilon), 0.0 if shift_mean else mean, out
    )
    return out


def whiten_rows(
    values: Array, tokens: Array, *, whitening: Whitening = "unbiased", epsilon: float = _EPSILON
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
    return (given - mean) * _whitening_scale(squares, count, whitening, epsilon)


def _whitening_scale(squares: float, count: float, whitening: Whitening, epsilon: float) -> float:
    if whitening == "biased":
        return float(1 / np.sqrt(max(squares / max(count, 1), epsilon)))
    return float(1 / np.sqrt(squares / max(count - 1, 1) + epsilon))
