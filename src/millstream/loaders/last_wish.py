"""A loader that nobody closes is closed when it is forgotten, and when the interpreter goes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def close_at_last(owner: object, close: Callable[[], None]) -> None:
    """Have `close` called, which must not know the owner, when that is no more; not in a process that was forked."""
    weakref.finalize(owner, _close_in, os.getpid(), close)


def _close_in(process: int, close: Callable[[], None]) -> None:
    if os.getpid() == process:
        close()
