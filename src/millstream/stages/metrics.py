"""Where time goes: the clocks of threads, and the rates of a pipeline from its counters at two moments.

A thread works, waits for input, or waits for room in the output.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
        """Seconds of work, of waiting for input and of waiting for room; the present state is included."""
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
        """The calling thread waits in this block; a thread of another owner is not counted."""
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


WINDOW_S = 1.0
_EVERY_S = 0.2
Counters = Mapping[str, Any]
_NOTHING: dict[str, Any] = {}


class History:
    """Remembers the counters of about the last second, at every look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: deque[tuple[float, dict[str, Any]]] = deque()

    def look_if_due(self, counters: Callable[[], dict[str, Any]]) -> None:
        """Remember the counters, unless that was done just now."""
        with self._lock:
            if self._is_due():
                self._remember(counters())

    def statistics(self, now: dict[str, Any]) -> dict[str, Any]:
        """The counters, with what they were a second ago, or at the last look before, taken into account."""
        with self._lock:
            before = self._looks[0][1] if self._looks else {"seconds": 0.0}
            if self._is_due():
                self._remember(now)
            return between(before, now)

    def _is_due(self) -> bool:
        return not self._looks or time.monotonic() - self._looks[-1][0] >= _EVERY_S

    def _remember(self, counters: dict[str, Any]) -> None:
        now = time.monotonic()
        self._looks.append((now, counters))
        while len(self._looks) > 2 and now - self._looks[1][0] >= WINDOW_S:
            self._looks.popleft()


def between(before: Counters, now: Counters) -> dict[str, Any]:
    """Shares and rates between two moments of a pipeline, and since its start.

    >>> stage = {"in": 40, "out": 20, "busy_s": 5.0, "input_wait_s": 5.0, "output_wait_s": 0.0, "drops": {"short": 20}}
    >>> then = {**stage, "in": 30, "out": 15, "busy_s": 4.5}
    >>> now = {"seconds": 10.0, "stages": {"filter": stage}, "queues": {}}
    >>> between({"seconds": 9.0, "stages": {"filter": then}}, now)["stages"]["filter"]["last"]
    {'busy': 1.0, 'in_per_s': 10.0, 'out_per_s': 5.0}
    >>> between({"seconds": 9.0, "stages": {"filter": then}}, now)["stages"]["filter"]["since_start"]
    {'busy': 0.5, 'in_per_s': 4.0, 'out_per_s': 2.0}
    """
    seconds = now["seconds"] - before["seconds"]
    kinds = {"stages": _stage_rates, "queues": _queue_rates}
    return {
        "seconds": now["seconds"],
        "window_s": seconds,
        **{
            kind: {
                name: {
                    "counters": each,
                    "last": rates(before.get(kind, _NOTHING).get(name, _NOTHING), each, seconds),
                    "since_start": rates(_NOTHING, each, now["seconds"]),
                }
                for name, each in now[kind].items()
            }
            for kind, rates in kinds.items()
        },
    }


def filling(gauges: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Say which stages give nothing yet since they are filled first: those with a `capacity` that is not reached.

    >>> filling({"reader": {"open": 2}, "shuffled": {"frames": 531, "capacity": 8192, "bytes": 9e6}})
    ['shuffled holds 531 of 8,192 frames, and gives none before it is full']
    """
    said = []
    for name, each in gauges.items():
        (what, held), most = next(iter(each.items()), ("", 0.0)), each.get("capacity", 0)
        if held < most:
            said.append(f"{name} holds {held:,.0f} of {most:,.0f} {what}, and gives none before it is full")
    return said


def _stage_rates(before: Counters, now: Counters, seconds: float) -> dict[str, float]:
    busy_s, *waits = (_grown(before, now, name) for name in ("busy_s", "input_wait_s", "output_wait_s"))
    return {
        "busy": _share(busy_s, busy_s + sum(waits)),
        "in_per_s": _share(_grown(before, now, "in"), seconds),
        "out_per_s": _share(_grown(before, now, "out"), seconds),
    }


def _queue_rates(before: Counters, now: Counters, seconds: float) -> dict[str, float]:
    return {
        "fill": min(1.0, _share(_grown(before, now, "fill_s"), seconds)),
        "put_per_s": _share(_grown(before, now, "put"), seconds),
        "got_per_s": _share(_grown(before, now, "got"), seconds),
        "dropped_per_s": _share(_grown(before, now, "dropped"), seconds),
    }


def _grown(before: Counters, now: Counters, name: str) -> float:
    grown: float = now[name] - before.get(name, 0)
    return grown


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
