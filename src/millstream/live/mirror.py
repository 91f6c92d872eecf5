"""Mirror: where a run stands for its trainer, while the stages are ahead of it.

It does to another window and to the origins of the slots, without any frame, what the stages did, but only as far as
batches were delivered. That is the state of the run: from it the stages can begin again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import StateError
from millstream.games import ORIGIN
from millstream.live.events import CHANGES, Event, advance
from millstream.live.frame_shuffler import Moves
from millstream.live.place import Place
from millstream.live.window import Arrays, Entry, Window


class Mirror:
    """Follows the stages batch by batch.

    Args:
        window: A window like that of the chunk set, at the same place.
        frames: Slots of the reservoir.
    """

    def __init__(self, window: Window, frames: int) -> None:
        self.window = window
        self._slots, self._count = np.zeros(frames, ORIGIN), 0
        self.counter = 0
        """That of the reservoir."""
        self.place: Place | None = None
        self._events: deque[Event] = deque()
        self._left: list[Entry] = []
        """Sources that have left the window while frames of theirs were in the reservoir, or about to be."""
        self._guard = threading.Lock()

    def note(self, events: Sequence[Event]) -> None:
        """Hear what happens to the window of the chunk set, ahead of what was delivered."""
        changes = [event for event in events if event.kind in CHANGES]
        with self._guard:
            self._events.extend(changes)  # in one go: a child that is forked meanwhile has all or none

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def copy(self) -> Mirror:
        """Another one that stands here, and has heard nothing of what happens ahead."""
        other = Mirror(self.window.copy(), len(self._slots))
        other._slots[: self._count] = self.origins
        other._count, other.counter, other.place = self._count, self.counter, self.place
        other._left = list(self._left)
        return other

    def hear(self, behind: Mirror) -> None:
        """Learn from another one, which stands where this one stood or behind it, what has happened since."""
        with behind._guard:
            draws, events = self.window.draws, list(behind._events)
        self._events = deque([event for event in events if event.draw >= draws])

    def go_back(self) -> list[Event]:
        """Stages begin where batches were delivered: give what had happened ahead of that, which will happen again."""
        self.catch_up()
        with self._guard:
            ahead, self._events = list(self._events), deque()
        return ahead

    def follow(self, moves: Sequence[Moves]) -> None:
        """A batch was delivered: do what making it did."""
        for move in moves:
            count = self._count + len(move.filled)
            self._slots[self._count : count] = move.filled
            if len(move.arrivals):
                self._slots[move.slots] = move.arrivals
            else:
                for slot in move.slots.tolist():
                    count -= 1
                    self._slots[slot] = self._slots[count]
            self._count = count
            self.counter += len(move.filled) + len(move.slots)
            self.place = move.place or self.place

    @property
    def origins(self) -> npt.NDArray[np.void]:
        """Where the frames in the slots are from."""
        return self._slots[: self._count]

    @property
    def entry(self) -> Entry | None:
        """The source of the game that the last positions came from."""
        if self.place is None:
            return None
        return next(entry for entry in self.entries if entry.first <= self.place.chunk < entry.stop)

    def catch_up(self) -> list[Entry]:
        """Make the draws whose games were delivered; gives the sources that nobody needs any more."""
        if self.place is not None:
            due = []
            with self._guard:
                while self._events and self._events[0].draw < self.place.draw:
                    due.append(self._events.popleft())
            self._left += advance(self.window, self.place.draw, due)
        chunks = np.unique(
            np.append(self.origins["chunk"], np.array([] if self.place is None else [self.place.chunk], np.uint64))
        )
        needed = [
            entry for entry in self._left if np.searchsorted(chunks, entry.first) < np.searchsorted(chunks, entry.stop)
        ]
        done = sorted(set(self._left) - set(needed), key=lambda entry: entry.first)
        self._left = needed
        return done

    @property
    def entries(self) -> list[Entry]:
        """The sources of all that is in the window or in the slots, by the numbers of their games."""
        return sorted(self._left + self.window.entries, key=lambda entry: entry.first)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """All that is needed to begin again: facts as JSON, and arrays of the size of the window."""
        self.catch_up()
        facts, arrays = self.window.state()
        place = None if self.place is None else asdict(self.place)
        left = [list(astuple(entry)) for entry in self._left]
        whole = {"window": facts, "place": place, "counter": self.counter, "left": left}
        return whole, {**arrays, "slots": self.origins.copy()}

    def load(self, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Stand where another one stood."""
        try:
            slots = arrays["slots"]
            self.window.load(facts["window"], arrays)
            self.place = None if facts["place"] is None else Place(**facts["place"])
            self.counter = int(facts["counter"])
            self._left = [Entry.of(told) for told in facts["left"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the sidecar of the state cannot be read: {error}", hint="take another state") from None
        if slots.dtype != ORIGIN or len(slots) > len(self._slots):
            raise StateError(
                f"the state has {len(slots)} frames in its reservoir, and this one holds {len(self._slots)}",
                hint="pass the shuffle_frames= that it was saved with",
            )
        self._slots[: len(slots)] = slots
        self._count = len(slots)
        self._events.clear()
