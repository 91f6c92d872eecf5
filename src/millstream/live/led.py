"""Several ranks, one order: the first rank lets sources in and says so, the others do the same at the same draws.

Who leads looks for news only every so many draws, and promises that nothing happens in between: so far the others may
draw. What it says goes through the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from millstream.errors import Stopped
from millstream.live.entrance import Came, Entrance, hold_back
from millstream.live.events import Event
from millstream.live.window import Window

LOOK_EVERY = 64
"""Draws between two looks for news."""
PAUSE_S = 0.005
"""Between two looks at what the leader says."""


class Leads(Entrance):
    """Lets sources in at a few draws only, and says until which draw nothing happens.

    >>> from millstream.live.entrance import AsTheyCome
    >>> Leads(AsTheyCome()).first(Window(None, 0), {"a.tar": 3})[-1]
    Event(draw=0, kind='until', name='', chunks=64)

    Args:
        then: Decides what enters.
    """

    def __init__(self, then: Entrance) -> None:
        self._then, self._until = then, 0
        self._came: list[tuple[str, int]] = []
        self._gone: list[str] = []

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """What enters at first."""
        return self._promised(window, self._then.first(window, sizes))

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What has come by now, when it is time to look."""
        hold_back(self._came, self._gone, came, gone)
        if window.draws < self._until and not starved:
            return []
        came, gone, self._came, self._gone = self._came, self._gone, [], []
        return self._promised(window, self._then.later(window, came, gone))

    def may_need(self, name: str) -> bool:
        """Whether it waits for the next look."""
        return any(name == each for each, _ in self._came) or self._then.may_need(name)

    def promise(self, until: int) -> None:
        """Look for news at this draw, and not before."""
        self._until = until

    def _promised(self, window: Window, events: list[Event]) -> list[Event]:
        if window.draws < self._until:
            return events
        self._until = window.draws + LOOK_EVERY
        return [*events, Event(window.draws, "until", "", self._until)]


class AsLed(Entrance):
    """What the leader says, as soon as it has said enough to make the next draw.

    Args:
        read: Gives the next thing that the leader has said, or None as long as there is none.
    """

    outlives_input = True

    def __init__(self, read: Callable[[], Event | None]) -> None:
        self._read, self._until = read, 0
        self._next: Event | None = None
        self._stopping = threading.Event()

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """What entered at first for the leader, whatever is here."""
        return self._heard(window, starved=False)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happened for the leader."""
        return self._heard(window, starved=starved)

    def stop_with(self, stopping: threading.Event) -> None:
        """Wait for the leader no longer than until this is set."""
        self._stopping = stopping

    def _heard(self, window: Window, *, starved: bool) -> list[Event]:
        """All that is said for this draw. Without a game to draw, it is the leader's turn to say something."""
        events: list[Event] = []
        while window.draws >= self._until or (starved and not events):
            event = self._waited_for()
            if event.draw > window.draws:
                break
            self._next = None
            events.append(event)
            if event.kind == "until":
                self._until = event.chunks
        return events

    def _waited_for(self) -> Event:
        while self._next is None:
            self._next = self._read()
            if self._next is None and self._stopping.wait(PAUSE_S):
                raise Stopped("nobody waits for the leader any more", hint="begin again")
        return self._next
