"""Which sources enter the window, and when: as they come, or as a journal says they did.

Names are paths in the folder that is watched; they are sorted by their last part, as those who write games name files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath

from millstream.errors import StateError
from millstream.live.events import Event
from millstream.live.window import Window


def sort_key(name: str) -> tuple[str, str]:
    """What sources are sorted by.

    >>> sorted(["b/1.tar", "a/2.tar", "a/1.tar"], key=sort_key)
    ['a/1.tar', 'b/1.tar', 'a/2.tar']
    """
    return PurePath(name).name, name


class Entrance(ABC):
    """Says what happens to a window."""

    @abstractmethod
    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """What the sources of the first scan do, given by name with their games."""

    @abstractmethod
    def later(self, window: Window, came: Sequence[tuple[str, int]], gone: Collection[str]) -> list[Event]:
        """What happens before the next draw, when these sources have come and gone since the last one."""

    def may_need(self, name: str) -> bool:
        """Whether a source that is not in the window may still enter."""
        return False


class AsTheyCome(Entrance):
    """The newest of those that are there at first, then all others when they come.

    Args:
        seen: Sources that entered before a run was gone on with: they do not enter again.
        floor: The oldest that entered then; what is older was left out, and stays so.
    """

    def __init__(self, seen: Collection[str] = (), floor: str = "") -> None:
        self._seen, self.floor = frozenset(seen), floor

    def first(self, window: Window, sizes: Mapping[str, int]) -> list[Event]:
        """Let the newest in, oldest first; when a run is gone on with, those that came meanwhile."""
        draws, known = window.draws, {entry.name: entry.count for entry in window.entries}
        lost = [Event(draws, "gone", name) for name, count in known.items() if sizes.get(name) != count]
        names = sorted((name for name in sizes if self._is_new(name)), key=sort_key)
        if not known and not self._seen:
            kept = _newest(names, sizes, window.num_chunks)
            self.floor = kept[0] if len(kept) < len(names) else ""
            names = kept
        return lost + [Event(draws, "enter", name, sizes[name]) for name in names]

    def later(self, window: Window, came: Sequence[tuple[str, int]], gone: Collection[str]) -> list[Event]:
        """Let in what has come, in that order."""
        left = [Event(window.draws, "gone", name) for name in gone]
        return left + [Event(window.draws, "enter", name, count) for name, count in came]

    def _is_new(self, name: str) -> bool:
        return name not in self._seen and (not self.floor or sort_key(name) > sort_key(self.floor))


def _newest(names: list[str], sizes: Mapping[str, int], num_chunks: int | None) -> list[str]:
    """The last names that have so many chunks together; the oldest of them may have more than are needed."""
    if num_chunks is None:
        return names
    first, chunks = len(names), 0
    while first and chunks < num_chunks:
        first -= 1
        chunks += sizes[names[first]]
    return names[first:]


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

    def later(self, window: Window, came: Sequence[tuple[str, int]], gone: Collection[str]) -> list[Event]:
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
