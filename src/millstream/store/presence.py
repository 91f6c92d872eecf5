"""Whether somebody still writes a log that others follow: who does holds its lock, and a dead process holds nothing."""

from __future__ import annotations

import time
from pathlib import Path

from millstream.store.journal import is_held

GONE_S = 30.0
"""How long a writer may be away: it may be about to begin anew, and what it said last is still made use of."""
LOOK_S = 0.2
"""Between two looks."""


class Presence:
    """Notices that a writer has gone. Who was never seen is not missed: not every file system shows locks to others.

    Args:
        lock: The file that a writer locks.
    """

    def __init__(self, lock: Path) -> None:
        self._lock, self._seen = lock, is_held(lock)
        self._look_at_s = self._away_s = 0.0

    def is_missed(self, *, silent: bool) -> bool:
        """Whether the writer has been away for long; asked after each try to read, `silent` if nothing was there."""
        now_s = time.monotonic()
        if not silent:
            self._away_s = 0.0
        if now_s < self._look_at_s or (self._seen and not silent):
            return False
        self._look_at_s = now_s + LOOK_S
        if is_held(self._lock):
            self._seen, self._away_s = True, 0.0
        elif self._seen:
            self._away_s += LOOK_S
        return self._away_s > GONE_S
