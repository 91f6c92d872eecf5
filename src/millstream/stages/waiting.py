"""Waiting with a limit, and a count of it: queues and pools wait in the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.errors import LoaderError, WaitTimeout


@dataclass
class Waits:
    """How often and how long somebody waited, with those who wait now."""

    count: int = 0
    _finished_s: float = 0.0
    _began: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._began)

    @property
    def seconds(self) -> float:
        """Seconds of waiting, summed over threads; the caller holds the lock that `until` was called with."""
        now = time.perf_counter()
        return self._finished_s + sum(now - began for began in self._began)

    def until(
        self, ready: Callable[[], bool], changed: threading.Condition, timeout_s: float | None, wanted: str
    ) -> None:
        """Return when `ready` holds. The caller holds the lock of `changed`, which is notified when that may be."""
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s >= 0):
            raise LoaderError(
                f"timeout_s={timeout_s!r} is no number of seconds", hint="pass 0 or more, or None to wait without limit"
            )
        if ready():
            return
        self.count += 1
        began = time.perf_counter()
        self._began.append(began)
        try:
            if not changed.wait_for(ready, None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)):
                raise WaitTimeout(f"waited {timeout_s} s for {wanted}", hint="pass a longer timeout_s, or None")
        except BaseException:
            changed.notify()  # Ctrl-C takes this waiter away, and must not take the only notice with it
            raise
        finally:
            self._began.remove(began)
            self._finished_s += time.perf_counter() - began
