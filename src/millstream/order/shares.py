"""What a phase needs of each source: its share of the mixture, its place in the data, its windows.

Quotas are the places of a mix block that belong to each source. They are the same in every block, so the mixture is
exact over any whole number of blocks. Inside a block the places are shuffled: there a source may be ahead of or after
its share by up to its quota of one block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real

from millstream.errors import OrderError
from millstream.order.shuffle import Shuffle

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


UNKNOWN = 2**40
"""Samples of a source that is still being made: more than any is found to have when it is whole."""


@dataclass(frozen=True)
class Share:
    """What the settings of a phase say of one source: samples per epoch, their shuffle, and places of a mix block."""

    samples: int
    shuffle: Shuffle = "global"
    quota: int = 1
    packed: bool = False
    """Whether samples are bins of documents: rows of another length are other bins."""
    unit: int = 1
    """Neighbouring samples that stay together in every order, as the two answers of a pair do."""

    def begin(self) -> Standing:
        """Stand at the very beginning."""
        return Standing(self.samples, self.shuffle, self.quota, epoch=0, offset=0, begun=self.samples, unit=self.unit)


@dataclass(frozen=True)
class Standing:
    """Where a source stands when a phase begins."""

    samples: int
    """Samples of its later epochs, in rows of the phase's length."""
    shuffle: Shuffle
    quota: int
    epoch: int
    offset: int
    """Samples of the present epoch that are used up, in rows of the phase's length."""
    begun: int
    """Samples of the present epoch, in rows of the length with which it began."""
    split: int = 1
    """By how much rows have become shorter since the present epoch began."""
    unit: int = 1
    """Neighbouring samples that stay together."""

    @property
    def left(self) -> int:
        """Samples left of the present epoch."""
        return self.begun * self.split - self.offset

    def after(self, used: int) -> Standing:
        """Move on by some samples.

        >>> Standing(samples=10, shuffle="none", quota=1, epoch=0, offset=8, begun=10).after(5)
        Standing(samples=10, shuffle='none', quota=1, epoch=1, offset=3, begun=10, split=1, unit=1)
        """
        if used < self.left:
            return replace(self, offset=self.offset + used)
        epochs, offset = divmod(used - self.left, self.samples)
        return replace(self, epoch=self.epoch + 1 + epochs, offset=offset, begun=self.samples, split=1)

    def recut(self, samples: int, factor: int) -> Standing:
        """Make rows shorter by `factor`."""
        return replace(self, samples=samples, offset=self.offset * factor, split=self.split * factor)


@dataclass(frozen=True)
class Windows:
    """The bins of each window of a source, packed to rows of `capacity` tokens.

    >>> Windows((3, 2), rows=4, capacity=128).samples
    5

    Of windows that were skipped, only how many bins they have together need be known: the first has all of them and is
    named in `gaps`, the others have 0, so that the windows after them keep their numbers.

    >>> Windows((700, 0, 0, 40), rows=0, capacity=128, always_in_order=True, gaps=(0,)).samples
    740
    """

    bins: tuple[int, ...] = field(repr=False)
    rows: int
    """At least as many as any window has bins; 0: a sample is the number of bins before it, in windows as they come."""
    capacity: int
    first_in_order: bool = False
    """Whether the first epoch takes the windows as they come: they may still be coming."""
    block: int = 0
    """Neighbouring bins that change places in every epoch, where bins stand by length; 0: all of a window do."""
    foremost: int | None = None
    """The sample that comes first in the first epoch, in exchange for the one that would."""
    always_in_order: bool = False
    """Whether every epoch takes the windows as they come, so that only those before a row need be known."""
    gaps: tuple[int, ...] = ()
    """Windows that stand for several: an IndexError says that where a shuffle puts their bins is unknown."""

    @property
    def samples(self) -> int:
        """Bins of all windows."""
        return sum(self.bins)


NO_WINDOWS: Mapping[str, Windows] = {}
