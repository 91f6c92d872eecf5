"""Lifetime: what closes when its owner is collected or the interpreter exits, what a forked child does, and Ctrl-C.

One hook at exit, one at fork. Everything is held weakly: being registered keeps nothing alive.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import itertools
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import MethodType
from typing import Any

from millstream.errors import LoaderError

AT_EXIT_S = 5.0
"""How long the interpreter waits for threads that are in the middle of something."""
FORK_S = 10.0
"""How long a fork waits for a lock that delays it."""
_numbers = itertools.count()


# The end: of an owner, and of the interpreter


class CloseOnExit:
    """A call that is due once: when its owner is collected, or when the interpreter exits. `cancel()` calls it off."""

    def __init__(
        self, owner: object, close: Callable[[], object], join: Callable[[float], object] | None, *, in_children: bool
    ) -> None:
        self.of_the_owner = getattr(close, "__self__", None) is owner
        self._close, self._join = _held(close, owner), None if join is None else _held(join, owner)
        self._process = None if in_children else HomeProcess()
        self._number = next(_numbers)
        _DUE[self._number] = self
        self._collected = weakref.finalize(owner, self._owner_is_gone)
        self._collected.atexit = False  # the hook below calls it, in an order that is known

    def _owner_is_gone(self) -> None:
        """Make the call; in a thread of its own where the garbage collector has found the owner in another thread than
        the main one. It runs at any allocation, and a thread of the owner may hold the lock that the call needs."""
        if getattr(_collector, "at_work", False) and threading.get_ident() != threading.main_thread().ident:
            with suppress(RuntimeError):  # the interpreter exits, and makes the calls that are due
                _thread.start_new_thread(self.close, ())
        else:
            self.close()

    def close(self) -> None:
        """Make the call, unless it was made, or its owner belongs to a parent of this process."""
        due = _DUE.pop(self._number, None) is not None
        if due and self._is_here and (close := self._close()) is not None:
            close()

    def join(self, timeout_s: float) -> None:
        """Wait for what was told to end."""
        if self._is_here and self._join is not None and (join := self._join()) is not None:
            join(timeout_s)

    @property
    def _is_here(self) -> bool:
        return self._process is None or not self._process.left

    def cancel(self) -> None:
        """Make no call."""
        _DUE.pop(self._number, None)
        self._collected.detach()


_DUE: dict[int, CloseOnExit] = {}
_collector = threading.local()
"""Whether the garbage collector is at work in a thread."""


def _note_collector(phase: str, _: dict[str, int]) -> None:
    _collector.at_work = phase == "start"


gc.callbacks.append(_note_collector)


def close_on_exit(
    owner: object,
    close: Callable[[], object],
    *,
    join: Callable[[float], object] | None = None,
    in_children: bool = False,
) -> CloseOnExit:
    """Have `close` called once: when `owner` is collected, or when the interpreter exits.

    Args:
        owner: Is held weakly.
        close: Must not hold the owner, or is a method of it: that is called at exit only, where threads at work would
            be ended in native code, and the process aborted.
        join: Waits for the end of what was told to end, a number of seconds; called at exit, after all were told.
        in_children: Whether a forked child makes the call, too: it then ends what it has begun itself.

    >>> class Owner: pass
    >>> owner = Owner()
    >>> due = close_on_exit(owner, lambda: print("closed"))
    >>> del owner
    closed
    """
    return CloseOnExit(owner, close, join, in_children=in_children)


@atexit.register
def _close_all() -> None:
    """Close what has an owner, the newest first; then what works by itself. Wait for all of them together."""
    due = sorted(_DUE.values(), key=lambda each: (each.of_the_owner, -each._number))
    deadline = time.monotonic() + AT_EXIT_S
    for each in due:
        _called(each.close)
    for each in due:
        _called(partial(each.join, max(0.0, deadline - time.monotonic())))


def _called(call: Callable[[], object]) -> None:
    """Make one of many calls; if it fails, that is reported, and the others are still made."""
    try:
        call()
    except Exception:
        sys.excepthook(*sys.exc_info())


def _held(call: Callable[..., object], owner: object) -> Callable[[], Callable[..., Any] | None]:
    """How to come by a call: a method of the owner is gone with it."""
    if getattr(call, "__self__", None) is owner:
        return weakref.WeakMethod(call)

    def strongly() -> Callable[..., object]:
        return call

    return strongly


# A forked child


class HomeProcess:
    """The process that something belongs to: that in which this was made.

    >>> HomeProcess().left
    False
    """

    def __init__(self) -> None:
        self._id = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is a child that was forked since."""
        return self._id != os.getpid()


def after_fork(call: Callable[[], object]) -> None:
    """Have something called in each forked child: a method as long as its object lives, a function always.

    It is for what a child cannot use: threads are not there, and one of them may have held a lock. Calls are made in
    the order in which they were registered, before the child does anything else; none of them may wait.
    """
    number = next(_numbers)
    if isinstance(call, MethodType):
        # The callback of a WeakMethod fails while an interpreter ends: it looks for the method that is collected.
        owner, method = weakref.ref(call.__self__, lambda _: _IN_CHILD.pop(number, None)), call.__func__
        _IN_CHILD[number] = lambda: None if (found := owner()) is None else partial(method, found)
    else:
        _IN_CHILD[number] = lambda: call


_IN_CHILD: dict[int, Callable[[], Callable[[], object] | None]] = {}


class ForkLock:
    """A lock of one thread at a time, which may take it again; a forked child finds it free.

    >>> lock = ForkLock()
    >>> with lock, lock:
    ...     print("mine")
    mine

    Args:
        delays_fork: What it guards must not be seen half done: a fork waits until it is free, and if that takes too
            long, the child is told so.
        in_child: Called in a forked child, after everything that `after_fork` knows of.
    """

    def __init__(self, *, delays_fork: bool = False, in_child: Callable[[], None] | None = None) -> None:
        self._lock, self._delays_fork, self._in_child = threading.RLock(), delays_fork, in_child
        self._torn = False
        _LOCKS.add(self)

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
        return self._delays_fork and self._lock.acquire(timeout=FORK_S)

    def _release(self) -> None:
        self._lock.release()

    def _replace(self) -> None:
        self._torn = self._torn or (self._delays_fork and not self._lock.acquire(blocking=False))
        self._lock = threading.RLock()
        if self._in_child is not None:
            self._in_child()


_LOCKS: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.held = [lock for lock in list(_LOCKS) if lock._hold()]


def _in_parent() -> None:
    for lock in _forking.held:
        lock._release()


def _in_child() -> None:
    """Nothing is collected before all locks are new: what is collected may want one of them."""
    registered = [call for get in list(_IN_CHILD.values()) if (call := get()) is not None]
    for call in [*registered, *(lock._replace for lock in list(_LOCKS))]:
        _called(call)


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


# Ctrl-C


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Let Ctrl-C wait until this is left: what is half done gets done. Only the main thread ever hears of it.

    >>> try:
    ...     with defer_sigint():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("all of it is done")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    all of it is done
    interrupted
    """
    answer = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(answer):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
        if came:
            answer(signal.SIGINT, None)
