"""When a count is more, or less, even than chance makes it."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[Any]

RARE = 1e-6
"""A test that fails by chance this often, and whose seeds are fixed, fails for a reason."""
DEVIATIONS = NormalDist().inv_cdf(1 - RARE)
"""Of a normal value, beyond which it is rare."""


def chi_square_bounds(freedom: int) -> tuple[float, float]:
    """Between which values a chi-square statistic lies but for rare chance (Wilson and Hilferty's cube).

    >>> [round(bound) for bound in chi_square_bounds(100)]
    [46, 182]
    """
    scale = 2 / (9 * freedom)
    low, high = (1 - scale + sign * DEVIATIONS * math.sqrt(scale) for sign in (-1, 1))
    return freedom * max(0.0, low) ** 3, freedom * high**3


def as_even_as_chance(observed: Counts, expected: Counts | float, freedom: int, drawn_from: float = math.inf) -> bool:
    """Whether counts differ from what is expected as much as chance makes them, no more and no less.

    What is dealt without putting back, as in a permutation of `drawn_from` things, varies more by n / (n - 1).
    """
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    low, high = chi_square_bounds(freedom)
    return low <= chi_square * (1 - 1 / drawn_from) <= high


def unrelated(ones: Counts, others: Counts) -> bool:
    """Whether the correlation of n pairs is within the 1 / sqrt(n) of chance."""
    return abs(float(np.corrcoef(ones, others)[0, 1])) < DEVIATIONS / math.sqrt(len(ones))
