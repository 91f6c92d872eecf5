"""Calls made by threads, results taken in the order of the calls, with a bound on what is under way.

A call that fails does so where its result would be taken. Closing ends every wait; Ctrl-C ends a wait, and loses
nothing. In a forked child threads start anew, and what was under way is said to be its parent's.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

from millstream.errors import ClosedError
from millstream.stages.lifetime import HomeProcess, after_fork, close_on_exit, defer_sigint
from millstream.stages.queue_ends import left_behind
from millstream.stages.wait import Waits

T = TypeVar("T")


def cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Call(NamedTuple):
    made: Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Threads:
    """Threads that make calls: what they call releases the GIL, or waits for something.

    They end when they are closed, when this is forgotten, and when the interpreter exits, which first closes what calls
    may wait for, and then waits for those that are being made.

    >>> with Threads(2) as threads:
    ...     threads.submit(pow, 6, 2).result()
    36

    Args:
        count: How many there are at most; each is started when it is needed.
        name: For debuggers.
        finish_on_exit: Whether the interpreter waits at its exit for all calls, also for those that were not begun.
    """

    def __init__(
        self,
        count: int,
        name: str = "millstream-work",
        *,
        finish_on_exit: bool = False,
    ) -> None:
        self.count = count
        self._name, self._finish = name, finish_on_exit
        self._begin()
        after_fork(self._begin)

    def _begin(self) -> None:
        self._work = work = _Work(self.count, self._name)
        close_on_exit(self, partial(work.stop, finish=self._finish), join=lambda _: work.join())

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a call made."""
        with defer_sigint():  # a thread that is known and was not started would be waited for
            return self._work.submit(call, *arguments)

    def close(self, longest_s: float | None = None) -> None:
        """Make no more calls, and wait for those that are being made, at most so long; the others are cancelled."""
        self._work.stop()
        self._work.join(longest_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Work:
    """What threads have to do. It does not refer to its owner, which may be collected meanwhile."""

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._changed = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        made: Future[T] = Future()
        with self._changed:
            if self._stopped:
                raise ClosedError("these threads were closed, and make no more calls", hint="make new ones")
            self._calls.append(_Call(made, call, arguments))
            if len(self._calls) > self._idle and len(self._threads) < self._count:
                self._threads.append(threading.Thread(target=self._run, name=self._name, daemon=True))
                self._threads[-1].start()
            self._changed.notify()
        return made

    def stop(self, *, finish: bool = False) -> None:
        """End the threads; `finish`: when all calls were made."""
        with self._changed:
            self._stopped = True
            cancelled = [] if finish else list(self._calls)
            if not finish:
                self._calls.clear()
            self._changed.notify_all()
        for call in cancelled:
            call.made.cancel()
            call.made.set_running_or_notify_cancel()  # else those who wait for several do not hear of it

    def join(self, longest_s: float | None = None) -> None:
        deadline = None if longest_s is None else time.monotonic() + longest_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _next(self) -> _Call | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._calls or self._stopped)
            self._idle -= 1
            return self._calls.popleft() if self._calls else None

    def _run(self) -> None:
        while (call := self._next()) is not None:
            if call.made.set_running_or_notify_cancel():
                try:
                    result = call.function(*call.arguments)
                except BaseException as error:
                    call.made.set_exception(error)
                else:
                    call.made.set_result(result)
                    del result
            del call  # what it holds is not kept until the next one comes


class Ordered(Generic[T]):
    """Results of calls, in the order in which they were submitted. One thread at a time takes; any may close.

    >>> with Threads(2) as threads:
    ...     squares = Ordered[int](threads, ahead=3)
    ...     for number in range(3):
    ...         squares.submit(pow, number, 2)
    ...     squares.has_room, [squares.take() for _ in range(3)]
    (False, [0, 1, 4])

    Args:
        threads: The threads that make the calls; others may use them, too.
        name: For messages.
        ahead: How many calls may be under way, or made and not taken; None: any number.
    """

    def __init__(
        self,
        threads: Threads,
        name: str = "the work",
        *,
        ahead: int | None = None,
    ) -> None:
        self._threads, self._name, self._ahead = threads, name, ahead
        self._changed = threading.Condition(threading.RLock())
        self._calls: deque[Future[T]] = deque()
        self._waits = Waits()
        self._closed, self._home = False, HomeProcess()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def has_room(self) -> bool:
        """Whether another call is within the bounds."""
        return self._ahead is None or len(self._calls) < self._ahead

    @property
    def is_ready(self) -> bool:
        """Whether the first result is there."""
        calls = list(self._calls)
        return bool(calls) and calls[0].done()

    def submit(self, call: Callable[..., T], *arguments: Any) -> None:
        """Have a call made; its result comes after those before. The bounds are for the caller to keep."""
        self._refuse()
        with defer_sigint(), self._changed:  # a call that is made and not known here would be lost
            self._refuse()
            self._calls.append(self._threads.submit(call, *arguments))
            self._calls[-1].add_done_callback(self._wake)

    def result(self, place: int = 0, timeout_s: float | None = None) -> T:
        """The first result, or one after it, waiting for it; it stays until it is dropped.

        Raises what the call did: that one is dropped, and the next has its place.
        """
        self._refuse()
        with self._changed:
            self._refuse()
            call = self._calls[place]
            self._waits.until(lambda: call.done() or self._closed, self._changed, timeout_s, f"a result of {self}")
            self._refuse()
            if _failed(call):
                self._calls.remove(call)
        try:
            return call.result()
        except CancelledError:
            raise self._closed_error() from None

    def drop(self) -> None:
        """Let go of the first result."""
        with self._changed:
            if self._calls:
                self._calls.popleft()

    def take(self, timeout_s: float | None = None) -> T:
        """The first result, waiting for it; the next one takes its place."""
        result = self.result(0, timeout_s)
        self.drop()
        return result

    def clear(self) -> None:
        """Let go of all results, and cancel the calls that were not begun."""
        with self._changed:
            calls = list(self._calls)
            self._calls.clear()
        for call in calls:
            call.cancel()

    def close(self) -> None:
        """Take no more: a thread that waits is told. Calls that are being made end, and their results are dropped."""
        if not self._home.left:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self.clear()

    def _wake(self, _: Future[T]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _refuse(self) -> None:
        if self._home.left:  # a thread that is not here may hold the lock
            raise left_behind(self)
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{self} was closed", hint="make a new one")

    def __repr__(self) -> str:
        return self._name


def _failed(call: Future[Any]) -> bool:
    return call.done() and (call.cancelled() or call.exception() is not None)


def in_order(
    threads: Threads,
    call: Callable[..., T],
    arguments: Iterable[tuple[Any, ...]],
    *,
    ahead: int,
) -> Iterator[T]:
    """Make a call for each of `arguments`; results come in their order. At most `ahead` are under way or waiting.

    >>> with Threads(2) as threads:
    ...     list(in_order(threads, abs, [(-1,), (-2,), (3,)], ahead=2))
    [1, 2, 3]
    """
    made = Ordered[T](threads, ahead=ahead)
    try:
        for each in arguments:
            made.submit(call, *each)
            while not made.has_room:
                yield made.take()
        while len(made):
            yield made.take()
    finally:
        made.close()
