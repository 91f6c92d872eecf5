"""Windows of rows: how many bins each has.

Bin b of window w is sample w * rows + b, whatever comes before; or, where `rows` is 0, samples are numbered through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Windows:
    """The bins of each window of a source, packed to rows of `capacity` tokens.

    >>> Windows((3, 2), rows=4, capacity=128).samples
    5

    Of windows that were skipped, only how many bins they have together need be known: the first has all of them and is
    named in `gaps`, the others have 0, so that the windows behind keep their numbers.

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
