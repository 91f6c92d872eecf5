"""Weights -> quotas: how many places of a block belong to each source.

The quotas are the same in every block, so the mixture is exact over any whole number of blocks. Inside a block the
places are shuffled: there a source may be ahead or behind by up to its quota of one block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

from millstream.errors import OrderError

BLOCK_PLACES = 1000
"""Places of a mix block: weights in tenths of a percent are exact."""
MOST_PLACES = 2**20
"""A table of a block is made again and again; weights that need a larger one are as good as rounded."""


def quotas(weights: Mapping[str, float], places: int = BLOCK_PLACES) -> dict[str, int]:
    """Share out the places of a block by largest remainder.

    >>> quotas({"web": 0.7, "code": 0.3})
    {'web': 700, 'code': 300}
    >>> quotas({"a": 1, "b": 1, "c": 1})
    {'a': 334, 'b': 333, 'c': 333}
    """
    if not 1 <= places <= MOST_PLACES:
        raise OrderError(f"a mix block has 1 to {MOST_PLACES} places, not {places}", hint="leave mix_block= out")
    total = _total(weights)
    if not math.isfinite(total) or total <= 0 or min(weights.values()) < 0:
        raise OrderError(
            f"weights must be finite numbers, not negative and not all zero: {dict(weights)}",
            hint="give each source its share, as in {'web': (loader, 0.7), 'code': (loader, 0.3)}",
        )
    exact = {name: weight / total * places for name, weight in weights.items()}
    shares = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(weights, key=lambda name: shares[name] - exact[name])
    for name in by_remainder[: places - sum(shares.values())]:
        shares[name] += 1
    for name, share in shares.items():
        if share == 0:
            raise OrderError(
                f"the weight of {name!r} ({weights[name]}) rounds to none of {places} places",
                hint=f"give it at least {total / places:g}, leave the source out, or pass a larger mix_block=",
            )
    return shares


def _total(weights: Mapping[str, float]) -> float:
    """Add weights up; what are no numbers, or too large to be added, have no sum."""
    if not all(isinstance(weight, Real) for weight in weights.values()):
        return math.nan
    try:
        return math.fsum(weights.values())
    except OverflowError:
        return math.inf
