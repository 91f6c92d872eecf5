"""Which sources enter the window, and when: as they come, or as they did when a run was here before.

Names are paths in the folder that is watched; they are sorted by their last part, as those who write games name files.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath

from millstream.errors import StateError
from millstream.live.events import Event
from millstream.live.window import Window

Came = Sequence[tuple[str, int]]
"""Sources by name, and the games that each has."""


def sort_key(name: str) -> tuple[str, str]:
    """What sources are sorted by.

    >>> sorted(["b/1.tar", "a/2.tar", "a/1.tar"], key=sort_key)
    ['a/1.tar', 'b/1.tar', 'a/2.tar']
    """
    return PurePath(name).name, name


class Entrance(ABC):
    """Says what happens to a window."""

    outlives_input = False
    """Whether sources may enter when no more are found."""

    @abstractmethod
    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """What the sources of the first scan do, given by name with their games."""

    @abstractmethod
    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happens before the next draw, when these sources have come and gone since the last one.

        `starved` says that there is no game to draw.
        """

    def may_need(self, name: str) -> bool:
        """Whether a source that is not in the window may still enter."""
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
        seen: Sources that entered before a run was gone on with: they do not enter again.
        floor: The oldest that entered then; what is older was left out, and stays so.
    """

    def __init__(self, seen: Collection[str] = (), floor: str = "") -> None:
        self._seen, self._floor = frozenset(seen), floor

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """Let the newest in, oldest first; when a run is gone on with, those that came meanwhile."""
        draws, known = window.draws, {entry.name: entry.count for entry in window.entries}
        lost = {name for name, count in known.items() if sizes.get(name) != count}
        names = sorted((name for name in sizes if name in lost or self._is_new(name, known)), key=sort_key)
        events = [Event(draws, "gone", name) for name in known if name in lost]
        if not known and not self._seen:
            kept = _newest(names, sizes, window.num_chunks)
            if len(kept) < len(names):
                events.append(Event(draws, "floor", kept[0]))
            names = kept
        self._seen = frozenset()
        return events + [Event(draws, "enter", name, sizes[name]) for name in names]

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """Let in what has come, in that order."""
        left = [Event(window.draws, "gone", name) for name in gone]
        return left + [Event(window.draws, "enter", name, count) for name, count in came]

    def _is_new(self, name: str, known: Collection[str]) -> bool:
        if name in known or name in self._seen:
            return False
        return not self._floor or sort_key(name) > sort_key(self._floor)


def hold_back(held: list[tuple[str, int]], held_gone: list[str], came: Came, gone: Collection[str]) -> None:
    """Keep what has come and gone for later; what came and is gone by then never enters."""
    if gone:
        held[:] = [each for each in held if each[0] not in gone]
        held_gone += [name for name in gone if name not in held_gone]
    held += came


def _newest(names: list[str], sizes: Mapping[str, int], num_chunks: int | None) -> list[str]:
    """The last names that have so many chunks together; the oldest of them may have more than are needed."""
    if num_chunks is None:
        return names
    first, chunks = len(names), 0
    while first and chunks < num_chunks:
        first -= 1
        chunks += sizes[names[first]]
    return names[first:]


class AsItWas(Entrance):
    """A run that is gone on with: what had happened behind its state happens again, then sources enter as they come.

    Args:
        events: What the journal says of the time behind the state.
        then: Decides about everything else; it waits until all that is done.
        promised: Before this draw nothing else happened.
        differs: Called when something of it cannot happen again: what follows it does not happen again either.
    """

    def __init__(
        self, events: Iterable[Event], then: Entrance, promised: int = 0, differs: Callable[[], None] = lambda: None
    ) -> None:
        self._events, self._then, self._promised, self._differs = deque(events), then, promised, differs
        self._came: list[tuple[str, int]] = []
        self._gone: list[str] = []
        self._starved_at = -1

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """Hold back what is new until all has happened again that can."""
        again = _possible(self._events, window, sizes)
        if len(again) < len(self._events):
            self._differs()
        self._events = deque(again)
        names = {event.name for event in again}
        self._then.promise(self._promised)
        news = self._then.first(window, {name: size for name, size in sizes.items() if name not in names})
        if not again:
            return news
        self._then.promise(self._promised)
        self._came = [(event.name, event.chunks) for event in news if event.kind == "enter"]
        return [event for event in news if event.kind == "gone"] + self._due(window, starved=False)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What happened at this draw; when nothing more did, whatever has come and gone."""
        hold_back(self._came, self._gone, came, gone)
        return self._due(window, starved=starved)

    def may_need(self, name: str) -> bool:
        """Whether it is held back."""
        held = any(event.name == name for event in self._events) or any(name == each for each, _ in self._came)
        return held or self._then.may_need(name)

    def _due(self, window: Window, *, starved: bool) -> list[Event]:
        due = []
        while self._events and self._events[0].draw <= window.draws:
            due.append(event := self._events.popleft())
            if event.kind == "until":
                self._then.promise(event.chunks)
        if self._events and starved and not due and window.draws == self._starved_at:
            self._differs()  # later draws are never made: the files of the window are gone
            self._came[:0] = [(event.name, event.chunks) for event in self._events if event.kind == "enter"]
            self._events.clear()
        self._starved_at = window.draws if starved else self._starved_at
        if self._events:
            return due
        came, gone, self._came, self._gone = self._came, self._gone, [], []
        return due + self._then.later(window, came, gone, starved=starved)


def _possible(events: Iterable[Event], window: Window, sizes: Mapping[str, int]) -> list[Event]:
    """What can happen again: up to the first file that is gone since, or was gone then and was read until then."""
    return list(
        takewhile(
            lambda event: (
                event.draw >= window.draws
                and event.kind != "gone"
                and (event.kind != "enter" or sizes.get(event.name) == event.chunks)
            ),
            events,
        )
    )


class AsWritten(Entrance):
    """What a journal says, at the draws that it names, over the same files."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = deque(events)
        self._to_come = Counter(event.name for event in self._events if event.kind == "enter")
        self._sizes: dict[str, int] = {}

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """Remember what is there."""
        self._sizes.update(sizes)
        return self._due(window)

    def later(self, window: Window, came: Came, gone: Collection[str], *, starved: bool = False) -> list[Event]:
        """What the journal says for this draw."""
        self._sizes.update(came)
        return self._due(window)

    def may_need(self, name: str) -> bool:
        """Whether the journal lets it in later."""
        return self._to_come[name] > 0

    def _due(self, window: Window) -> list[Event]:
        due = []
        while self._events and self._events[0].draw <= window.draws:
            event = self._events.popleft()
            self._to_come[event.name] -= event.kind == "enter"
            found = self._sizes.get(event.name)
            if event.kind == "enter" and found != event.chunks:
                what = "is not there" if found is None else f"has {found} games"
                raise StateError(
                    f"{event.name} {what}; the journal lets it in with {event.chunks}",
                    hint="a run is replayed over the files that it was made of",
                )
            due.append(event)
        return due
