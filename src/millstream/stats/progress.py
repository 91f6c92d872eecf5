"""How far a long job is. Library code calls back with it and never prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: `done` of `total` units of a task; what has come out of it so far is in `detail`, and in `tokens`.

    >>> Progress("prepare", done=50, total=200, unit="bytes").fraction
    0.25
    """

    task: str
    done: int
    total: int | None
    unit: str
    detail: str = ""
    tokens: int | None = None

    @property
    def fraction(self) -> float | None:
        """How much is done, from 0 to 1, if the total is known."""
        return None if self.total is None else self.done / max(self.total, 1)


OnProgress = Callable[[Progress], None]
