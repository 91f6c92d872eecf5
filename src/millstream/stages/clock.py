"""What a thread does with its time: it works, waits for input, or waits for room in the output."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

BUSY, INPUT, OUTPUT = range(3)


class Clock:
    """The seconds of one thread, by what it did in them; at any time they sum up to its life so far."""

    def __init__(self) -> None:
        self._seconds = [0.0, 0.0, 0.0]
        self._state: int | None = BUSY
        self._since = time.perf_counter()

    def turn(self, state: int | None) -> int | None:
        """From now on the thread does this (None: it has ended). Gives what it did before."""
        now, before = time.perf_counter(), self._state
        if before is not None:
            self._seconds[before] += now - self._since
        self._state, self._since = state, now
        return before

    def read(self) -> list[float]:
        """Seconds of work, of waiting for input and of waiting for room; what goes on now is in them."""
        seconds, state, since = list(self._seconds), self._state, self._since
        if state is not None:
            seconds[state] += max(0.0, time.perf_counter() - since)
        return seconds


class Clocks:
    """The clocks of all threads of a stage; each thread turns its own."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[Clock] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """The calling thread lives for as long as this block."""
        clock = self._own.clock = Clock()
        self._all.append(clock)
        try:
            yield
        finally:
            clock.turn(None)

    @contextmanager
    def waiting(self, state: int) -> Iterator[None]:
        """The calling thread waits in this block; a thread of somebody else is not counted."""
        clock: Clock | None = getattr(self._own, "clock", None)
        before = None if clock is None else clock.turn(state)
        try:
            yield
        finally:
            if clock is not None:
                clock.turn(before)

    def read(self) -> list[float]:
        """The sum over all threads."""
        return [sum(column) for column in zip((0.0, 0.0, 0.0), *(clock.read() for clock in self._all), strict=True)]
