"""Which sources enter the window, and when: as they come, or as they did when a run was here before.

Names are paths in the folder that is watched; they are sorted by their last part, as those who write games name files.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

from millstream.errors import StateError
from millstream.live.arrivals import SortKey, sort_key
from millstream.live.events import Event, Source, packed
from millstream.live.window import Window

Came = Sequence[Source]
"""What has come since, in this order."""


class Entrance(ABC):
    """Says what happens to a window."""

    outlives_input = False
    """Whether sources may enter when no more are found."""

    @abstractmethod
    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
        """What the sources of the first scan do."""

    @abstractmethod
    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happens before the next draw, when these sources have come and gone since the last one.

        `starved` says that there is no game to draw.
        """

    def is_over(self, window: Window) -> bool:
        """Whether nobody knows what happens before the next draw."""
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
        """Whoever waits in here waits no longer than until this is set."""
        return


class AsTheyCome(Entrance):
    """The newest of those that are there at first, then all others when they come.

    Args:
        seen: When a run is gone on with: the marks of the files that entered before and of those that were left out at
            first. They do not enter again; whatever else is there came meanwhile, by whichever name, and enters.
        leave: Whether files that went away before a run was gone on with leave the window. If nothing else can take
            their place they stay, and each of their games is lost when it is drawn.
    """

    def __init__(self, seen: Collection[int] | None = None, *, leave: bool = True) -> None:
        self._seen, self._leave = seen, leave

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
        """Let the newest in, oldest first; when a run is gone on with, those that came meanwhile."""
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

    def _is_new(self, source: Source, known: Collection[str]) -> bool:
        return source.name not in known and source.mark not in (self._seen or ())


def _source_key(source: Source) -> SortKey:
    return sort_key(source.name)


def _split(sources: list[Source], num_chunks: int | None) -> tuple[list[Source], list[Source]]:
    """Those before, and the last ones that have so many chunks together; the oldest of these may have more than are
    needed."""
    if num_chunks is None:
        return [], sources
    first, chunks = len(sources), 0
    while first and chunks < num_chunks:
        first -= 1
        chunks += sources[first].chunks
    return sources[:first], sources[first:]


class AsItWas(Entrance):
    """A run that is gone on with: what had happened behind its state happens again, whichever files are still there.
    Then sources enter as they come, those that came meanwhile first.

    Args:
        events: What the journal says of the time behind the state.
        then: Decides about everything else; it waits until all that is done.
        promised: Before this draw nothing else happened.
    """

    def __init__(self, events: Iterable[Event], then: Entrance, promised: int = 0) -> None:
        self._events, self._then, self._promised = deque(events), then, promised
        self._to_come = Counter(event.name for event in self._events if event.kind == "enter")
        self._found: dict[str, Source] | None = {}

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
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


class AsWritten(Entrance):
    """What a journal says, at the draws that it names, over the same files.

    Args:
        events: What it says.
        until: Nothing else happens before this draw, unless the window has no game; None: ever.
    """

    def __init__(self, events: Iterable[Event], until: int | None = None) -> None:
        self._events, self._until = deque(events), until
        self._to_come = Counter(event.name for event in self._events if event.kind == "enter")
        self._found: dict[str, Source] = {}

    def first(self, window: Window, found: Collection[Source]) -> list[Event]:
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
