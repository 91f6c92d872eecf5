"""News only at some draws: so a run that is killed knows how far nothing had happened, and other ranks know it, too.

Who leads looks for news every so many draws, and before it draws it promises that nothing happens until then. What it
says goes through the journal: a run that is gone on with keeps the promise, and the other ranks draw as far as it says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from millstream.errors import Stopped
from millstream.live.entrance import Came, Entrance
from millstream.live.events import Event, Source
from millstream.live.window import Window

LOOK_EVERY = 64
"""Draws between two looks for news."""
EVER = (1 << 63) - 1
"""No run makes so many draws."""
PAUSE_S = 0.005
"""Between two looks at what the leader says."""


class Leads(Entrance):
    """Lets sources in at a few draws only, and says until which draw nothing happens.

    >>> from millstream.live.entrance import AsTheyCome
    >>> Leads(AsTheyCome()).first(Window(None, 0), [Source("a.tar", 3)])[-1].to_json()
    {'draw': 0, 'until': '', 'chunks': 64}

    Args:
        then: Decides what enters.
    """

    def __init__(self, then: Entrance) -> None:
        self._then, self._until = then, 0
        self._came: dict[str, Source] = {}
        """What has come and waits for the next look, by name."""
        self._gone: dict[str, None] = {}

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
        """What enters at first; where a promise holds, nothing does before that draw."""
        events = self._then.first(window, found)
        if window.draws >= self._until:
            return self._promised(window, events)
        self._came = {event.name: event.source for event in events if event.kind == "enter"}
        self._gone = dict.fromkeys(event.name for event in events if event.kind == "gone")
        return []

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What has come by now, when it is time to look."""
        for name in gone:
            self._came.pop(name, None)  # what came and is gone by then never enters
        self._gone |= dict.fromkeys(gone)
        self._came |= {source.name: source for source in came}
        if window.draws < self._until and not starved:
            return []
        waited, left, self._came, self._gone = self._came, self._gone, {}, {}
        events = self._then.later(window, list(waited.values()), list(left))
        if starved and events:
            self._until = window.draws  # who follows must know that this is all
        return self._promised(window, events)

    def may_need(self, name: str) -> bool:
        """Whether it waits for the next look."""
        return name in self._came or self._then.may_need(name)

    def promise(self, until: int) -> None:
        """Look for news at this draw, and not before."""
        self._until = until

    def _promised(self, window: Window, events: list[Event]) -> list[Event]:
        if window.draws < self._until:
            return events
        self._until = window.draws + LOOK_EVERY
        return [*events, Event(window.draws, "until", "", self._until)]


class AtOnce(Entrance):
    """What enters at first, and nothing later: a pass is one over the files that were there when it began.

    Args:
        then: Decides what enters.
    """

    def __init__(self, then: Entrance) -> None:
        self._then = then

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
        """What enters, and that this is all."""
        return [*self._then.first(window, found), Event(window.draws, "until", "", EVER)]

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """Nothing."""
        return []


class AsLed(Entrance):
    """What the leader says, as soon as it has said enough to make the next draw. All that it says at one time ends with
    a promise; what it says where there is no game to draw does, too.

    Args:
        read: Gives the next thing that the leader has said, or None as long as there is none.
        begun: Says whether the leader has done what it does at first.
        promised: Before this draw nothing happens.
        before: What the leader had said before the run was gone on with: of that, files may be gone by now.
    """

    outlives_input = True

    def __init__(
        self,
        read: Callable[[], Event | None],
        begun: Callable[[], bool],
        promised: int = 0,
        before: Collection[Event] = (),
    ) -> None:
        self._read, self._begun, self._until, self._before = read, begun, promised, frozenset(before)
        self._next: Event | None = None
        self._stopping = threading.Event()
        self.waits = False
        """Whether the leader has to say something first."""

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
        """What entered at first for the leader, whatever is here."""
        while not self._begun():
            self._pause()
        events: list[Event] = []
        while (event := self._peeked()) is not None and event.draw <= window.draws:
            events.append(self._taken(event))
        is_cut = bool(events) and events[-1].kind != "until"
        return events + self._heard(window, starved=is_cut)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happened for the leader."""
        return self._heard(window, starved=starved)

    def needs(self, event: Event) -> bool:
        """Whether the leader has just let it in, so that it has it."""
        return event not in self._before

    def stop_with(self, stopping: threading.Event) -> None:
        """Wait for the leader no longer than until this is set."""
        self._stopping = stopping

    def _heard(self, window: Window, *, starved: bool) -> list[Event]:
        """All that is said for this draw. Without a game to draw, it is the leader's turn to say something."""
        events: list[Event] = []
        while window.draws >= self._until or starved:
            while (event := self._peeked()) is None:
                self._pause()
            if event.draw > window.draws:
                break
            events.append(self._taken(event))
            starved = starved and event.kind != "until"
        return events

    def _peeked(self) -> Event | None:
        if self._next is None:
            self._next = self._read()
            self.waits = self.waits and self._next is None
        return self._next

    def _taken(self, event: Event) -> Event:
        self._next = None
        if event.kind == "until":
            self._until = event.chunks
        return event

    def _pause(self) -> None:
        self.waits = True
        if self._stopping.wait(PAUSE_S):
            raise Stopped("nobody waits for the leader any more", hint="begin again")
