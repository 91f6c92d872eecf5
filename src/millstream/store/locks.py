"""Locks that belong to one process: a child that it forks does not hold them too, and keep them when it is gone."""

from __future__ import annotations

import os

from millstream.stages.lifetime import after_fork

_HELD: set[int] = set()


def hold(fd: int) -> int:
    """Remember a descriptor that holds a lock."""
    _HELD.add(fd)
    return fd


def let_go(fd: int) -> None:
    """Close it, and give up the lock; in a forked child that was done long ago."""
    if fd in _HELD:
        _HELD.remove(fd)
        os.close(fd)


def _forget() -> None:
    while _HELD:
        os.close(_HELD.pop())


after_fork(_forget)
