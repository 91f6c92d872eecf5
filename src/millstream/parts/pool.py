"""Calls made by many workers, results taken in the order of the calls, with a bound on what is under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")


def cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(Protocol):
    """Whoever can make a call elsewhere: threads here, or the workers of a cluster."""

    count: int

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Make a call, some time."""
        ...


class Threads:
    """Workers that are threads of this process: what they call releases the GIL, or waits for it.

    >>> with Threads(2) as workers:
    ...     list(in_order(workers, abs, [(-1,), (-2,), (3,)], ahead=2))
    [1, 2, 3]
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="millstream-part")

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Let a thread make a call."""
        return self._pool.submit(call, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def in_order(
    workers: Workers, call: Callable[..., T], arguments: Iterable[tuple[Any, ...]], *, ahead: int
) -> Iterator[T]:
    """Make a call for each of `arguments`; results come in their order. At most `ahead` are under way or waiting."""
    flying: deque[Future[T]] = deque()
    try:
        for each in arguments:
            flying.append(workers.submit(call, *each))
            while len(flying) >= ahead:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        for left in flying:
            left.cancel()
