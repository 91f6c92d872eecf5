"""Per token <-> per rollout: sums, counts and values spread, over tokens that lie end to end.

Each function takes a `mask` of tokens that count, and `ends`: where the tokens of each rollout end. Whatever stands
where the mask is not set, NaN or nonsense, changes nothing.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream import _core

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Precision: TypeAlias = type[np.float32] | type[np.float64]


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
