"""Windows of packed rows: how many bins each has. Bin b of window w is sample w * rows + b, whatever comes before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Windows:
    """The bins of each window of a source, packed to rows of `capacity` tokens.

    >>> Windows((3, 2), rows=4, capacity=128).samples
    5
    """

    bins: tuple[int, ...] = field(repr=False)
    rows: int
    capacity: int
    first_in_order: bool = False
    """Whether the first epoch takes the windows as they come: they may still be coming."""
    block: int = 0
    """Neighbouring bins that change places in every epoch, where bins stand by length; 0: all of a window do."""
    foremost: int | None = None
    """The sample that comes first in the first epoch, in exchange for the one that would."""

    @property
    def samples(self) -> int:
        """Bins of all windows."""
        return sum(self.bins)


NO_WINDOWS: Mapping[str, Windows] = {}
