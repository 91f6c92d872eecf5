"""Games that a stage did not pass on: the last ones, so that somebody can look at them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

KEPT = 100


@dataclass(frozen=True, slots=True)
class Rejection:
    """A game that was not passed on, and why."""

    source: str
    index: int
    chunk: int
    reason: str
    found: str = ""


class Rejections:
    """The last rejections; several threads may add some."""

    def __init__(self, most: int = KEPT) -> None:
        self._last: deque[Rejection] = deque(maxlen=most)
        self._lock = threading.Lock()

    def add(self, rejection: Rejection) -> None:
        """One more; the oldest is forgotten if they are too many."""
        with self._lock:
            self._last.append(rejection)

    def last(self) -> list[Rejection]:
        """The last ones, oldest first."""
        with self._lock:
            return list(self._last)
