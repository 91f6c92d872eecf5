"""Turn: the lock of whoever moves a loader's run; in a child that is forked meanwhile, no thread holds it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from millstream.errors import LoaderError

FORK_S = 10.0
"""How long a fork waits for a step that is being made."""


class Turn:
    """One thread at a time, which may take it again. In a forked child it is free.

    >>> turn = Turn()
    >>> with turn, turn:
    ...     print("mine")
    mine

    Args:
        whole: What it guards must not be seen half done: a fork waits for whoever has it, and if that takes too long,
            the child is told so.
        in_child: Called in a forked child.
    """

    def __init__(self, *, whole: bool = False, in_child: Callable[[], None] | None = None) -> None:
        self._lock, self._whole, self._in_child = threading.RLock(), whole, in_child
        self._torn = False
        _TURNS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._torn:
            self._lock.release()
            raise LoaderError(
                "this process was forked while another thread made a step, which is not done here",
                hint="make another loader in this process, and load a state",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _hold(self) -> bool:
        return self._whole and self._lock.acquire(timeout=FORK_S)

    def _release(self) -> None:
        self._lock.release()

    def _forget(self) -> None:
        self._torn = self._torn or (self._whole and not self._lock.acquire(blocking=False))
        self._lock = threading.RLock()
        if self._in_child is not None:
            self._in_child()


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()
_forking = threading.local()


def _hold_all() -> None:
    _forking.held = [turn for turn in list(_TURNS) if turn._hold()]


def _release_all() -> None:
    for turn in _forking.held:
        turn._release()


def _forget_all() -> None:
    for turn in list(_TURNS):
        turn._forget()


os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_forget_all)
