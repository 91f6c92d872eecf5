"""Waiting with a limit, and a count of it: queue and pool wait in the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millstream.errors import WaitTimeout


@dataclass
class Waits:
    """How often and how long somebody waited; a wait that still goes on is in `count` only."""

    count: int = 0
    seconds: float = 0.0

    def until(
        self, ready: Callable[[], bool], changed: threading.Condition, timeout_s: float | None, wanted: str
    ) -> None:
        """Return when `ready` holds. The caller holds the lock of `changed`, which is notified when that may be."""
        if ready():
            return
        self.count += 1
        began = time.perf_counter()
        try:
            if not changed.wait_for(ready, timeout_s):
                raise WaitTimeout(f"waited {timeout_s} s for {wanted}", hint="pass a longer timeout_s, or None")
        finally:
            self.seconds += time.perf_counter() - began
