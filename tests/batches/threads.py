"""Threads in tests: no test depends on how long anything takes, only on what has happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 20.0
"""Longer than anything here takes on a busy machine; a hang is longer still."""


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)
