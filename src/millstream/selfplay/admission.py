"""Which sources enter the window, and at which draw.

`LivePolicy` admits files as they come; `ReplayPolicy` and `ResumedPolicy` admit them as an earlier run did. With
several ranks, or a journal, changes happen only at some draws. The leader looks for files every `LOOK_EVERY` draws and
promises in the journal that nothing happens in between. So a resumed run and the followers know how far they may draw.
Names are paths in the folder that is watched, sorted by their last part, as engines number their files.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence

from millstream.errors import StateError, Stopped
from millstream.selfplay.events import Event, EventSource, packed
from millstream.selfplay.folder import SortKey, sort_key
from millstream.selfplay.window import Window

Came = Sequence[EventSource]
"""What has come since, in this order."""
LOOK_EVERY = 64
"""Draws between two looks for news."""
EVER = (1 << 63) - 1
"""No run makes so many draws."""
PAUSE_S = 0.005
"""Between two looks at what the leader says."""


class AdmissionPolicy(ABC):
    """Says what happens to a window."""

    outlives_input = False
    """Whether sources may enter when no more are found."""

    @abstractmethod
    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
        """What the sources of the first scan do."""

    @abstractmethod
    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happens before the next draw, when these sources have come and gone since the last one.

        `starved` says that there is no game to draw.
        """

    def is_over(self, window: Window) -> bool:
        """Whether it is unknown what happens before the next draw."""
        return False

    def may_need(self, name: str) -> bool:
        """Whether a source that is not in the window may still enter."""
        return False

    def needs(self, event: Event) -> bool:
        """Whether a source that enters must be there: else its games are lost."""
        return False

    def promise(self, until: int) -> None:
        """It was said that nothing new happens before this draw."""
        return

    def stop_with(self, stopping: threading.Event) -> None:
        """Waiting in here ends when this is set."""
        return


class LivePolicy(AdmissionPolicy):
    """The newest of those that are there at first, then all others when they come.

    Args:
        seen: When a run resumes: the marks of the files that entered before and of those that were left out at
            first. They do not enter again; whatever else is there came meanwhile, by whichever name, and enters.
        leave: Whether files that went away before a run resumed leave the window. If nothing else can take
            their place they stay, and each of their games is lost when it is drawn.
    """

    def __init__(self, seen: Collection[int] | None = None, *, leave: bool = True) -> None:
        self._seen, self._leave = seen, leave

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
        """Let the newest in, oldest first; when a run resumes, those that came meanwhile."""
        draws, there = window.draws, {(source.name, source.stamp) for source in found}
        known = {entry.name: entry.stamp for entry in window.entries}
        lost = {name for name, stamp in known.items() if self._leave and (name, stamp) not in there}
        came = sorted((each for each in found if each.name in lost or self._is_new(each, known)), key=_source_key)
        events = [Event(draws, "gone", name) for name in known if name in lost]
        if self._seen is None:
            older, came = _split(came, window.num_chunks)
            if older:
                events.append(Event(draws, "floor", came[0].name, len(older), packed(each.mark for each in older)))
        self._seen = ()
        return events + [Event(draws, "enter", *source) for source in came]

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """Let in what has come, in that order."""
        left = [Event(window.draws, "gone", name) for name in gone]
        return left + [Event(window.draws, "enter", *source) for source in came]

    def _is_new(self, source: EventSource, known: Collection[str]) -> bool:
        return source.name not in known and source.mark not in (self._seen or ())


def _source_key(source: EventSource) -> SortKey:
    return sort_key(source.name)


def _split(sources: list[EventSource], num_chunks: int | None) -> tuple[list[EventSource], list[EventSource]]:
    """Those before, and the last ones that have so many chunks together; the oldest of these may have more than are
    needed."""
    if num_chunks is None:
        return [], sources
    first, chunks = len(sources), 0
    while first and chunks < num_chunks:
        first -= 1
        chunks += sources[first].chunks
    return sources[:first], sources[first:]


class ResumedPolicy(AdmissionPolicy):
    """A resumed run: what had happened after its state happens again, whichever files are still there.
    Then sources enter as they come, those that came meanwhile first.

    Args:
        events: What the journal says of the time behind the state.
        then: Decides about everything else; it waits until all that is done.
        promised: Before this draw nothing else happened.
    """

    def __init__(self, events: Iterable[Event], then: AdmissionPolicy, promised: int = 0) -> None:
        self._events, self._then, self._promised = deque(events), then, promised
        self._to_come = Counter(event.name for event in self._events if event.kind == "enter")
        self._found: dict[str, EventSource] | None = {}

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
        """What happened at this draw."""
        self._found = {source.name: source for source in found}
        return self._next(window)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happened at this draw; when nothing more did, whatever has come and gone."""
        if self._found is None:
            return self._then.later(window, came, gone, starved=starved)
        for name in gone:
            self._found.pop(name, None)
        self._found |= {source.name: source for source in came}
        return self._next(window)

    def may_need(self, name: str) -> bool:
        """Whether it enters once more."""
        return self._to_come[name] > 0 or self._then.may_need(name)

    def _next(self, window: Window) -> list[Event]:
        due = []
        while self._events and self._events[0].draw <= window.draws:
            due.append(event := self._events.popleft())
            self._to_come[event.name] -= event.kind == "enter"
            self._promised = event.chunks if event.kind == "until" else self._promised
        if due or self._events or self._found is None:
            return due
        found, self._found = self._found, None
        self._then.promise(self._promised)
        return self._then.first(window, found.values())


class ReplayPolicy(AdmissionPolicy):
    """What a journal says, at the draws that it names, over the same files.

    Args:
        events: What it says.
        until: Nothing else happens before this draw, unless the window has no game; None: ever.
    """

    def __init__(self, events: Iterable[Event], until: int | None = None) -> None:
        self._events, self._until = deque(events), until
        self._to_come = Counter(event.name for event in self._events if event.kind == "enter")
        self._found: dict[str, EventSource] = {}

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
        """Remember what is there."""
        self._found |= {source.name: source for source in found}
        return self._due(window)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What the journal says for this draw."""
        self._found |= {source.name: source for source in came}
        return self._due(window)

    def is_over(self, window: Window) -> bool:
        """Whether the journal says nothing of the next draw."""
        return self._until is not None and not self._events and (window.draws >= self._until or not len(window))

    def may_need(self, name: str) -> bool:
        """Whether the journal lets it in later."""
        return self._to_come[name] > 0

    def _due(self, window: Window) -> list[Event]:
        due = []
        while self._events and self._events[0].draw <= window.draws:
            event = self._events.popleft()
            self._to_come[event.name] -= event.kind == "enter"
            found = self._found.get(event.name)
            if event.kind == "enter" and found != event.source:
                what = "is not there" if found is None else f"is another file, with {found.chunks} games"
                raise StateError(
                    f"{event.name} {what}; the journal lets one in with {event.chunks}",
                    hint="a run is replayed over the files that it was made of",
                )
            due.append(event)
        return due


class LeaderPolicy(AdmissionPolicy):
    """Lets sources in at a few draws only, and says until which draw nothing happens.

    >>> from millstream.selfplay.admission import LivePolicy
    >>> LeaderPolicy(LivePolicy()).first(Window(None, 0), [EventSource("a.tar", 3)])[-1].to_json()
    {'draw': 0, 'until': '', 'chunks': 64}

    Args:
        then: Decides what enters.
    """

    def __init__(self, then: AdmissionPolicy) -> None:
        self._then, self._until = then, 0
        self._came: dict[str, EventSource] = {}
        """What has come and waits for the next look, by name."""
        self._gone: dict[str, None] = {}

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
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


class SnapshotPolicy(AdmissionPolicy):
    """What enters at first, and nothing later: a pass is one over the files that were there when it began.

    Args:
        then: Decides what enters.
    """

    def __init__(self, then: AdmissionPolicy) -> None:
        self._then = then

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
        """What enters, and that this is all."""
        return [*self._then.first(window, found), Event(window.draws, "until", "", EVER)]

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """Nothing."""
        return []


class FollowerPolicy(AdmissionPolicy):
    """What the leader says, as soon as it has said enough to make the next draw. All that it says at one time ends with
    a promise; what it says where there is no game to draw does, too.

    Args:
        read: Gives the next thing that the leader has said, or None as long as there is none.
        begun: Says whether the leader has done what it does at first.
        promised: Before this draw nothing happens.
        before: What the leader had said before the run resumed: of that, files may be gone by now.
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

    def first(self, window: Window, found: Collection[EventSource]) -> list[Event]:
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
            raise Stopped("waiting for the leader was stopped", hint="begin again")
