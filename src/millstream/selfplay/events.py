"""What happened to a window, and what was lost: the lines of a journal, each with its draw.

The same events make the same window again. A journal says which positions were lost, not that a file was removed at
some time: two runs over the same journal leave out the same positions, whichever files each of them finds.
"""

from __future__ import annotations

from base64 import b85decode, b85encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from millstream.errors import StoreError
from millstream.selfplay.window import Window, WindowEntry
from millstream.storage import xxh64

EVENTS_FORMAT = "millstream live admissions 4"
Kind = Literal["enter", "gone", "floor", "until"]
CHANGES = ("enter", "gone")
"""What changes a window."""


class EventSource(NamedTuple):
    """A file of games: its path in the folder that is watched, how many it has, and what tells it from other files."""

    name: str
    chunks: int
    stamp: str = ""

    @property
    def mark(self) -> int:
        """What tells it from all others, in 64 bits."""
        return xxh64(np.frombuffer(f"{self.name}\0{self.stamp}".encode(errors="surrogateescape"), np.uint8))


def packed(marks: Iterable[int]) -> str:
    """Marks as text: a folder may hold a million files that are left out.

    >>> unpacked(packed([3, 2**63])) == {3, 2**63}
    True
    """
    return b85encode(np.fromiter(marks, "<u8").tobytes()).decode()


def unpacked(marks: str) -> set[int]:
    """Read them back."""
    try:
        return set(np.frombuffer(b85decode(marks), "<u8").tolist())
    except ValueError as error:
        raise StoreError(
            f"these are no marks of files: {error}", hint="the journal belongs to something else"
        ) from None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened before a draw was made.

    enter   a source entered the window
    gone    its file is gone
    floor   so many files were left out at first, which are older than this source, and stay so
    until   nothing else happens before another draw, unless the window has no game
    """

    draw: int
    kind: Kind
    name: str
    """The source: its path in the folder that is watched."""
    chunks: int = 0
    """Games of a source that enters; of "floor", how many files; of "until", the draw."""
    stamp: str = ""
    """Of a source that enters: what tells it from another one of the same name; of "floor", the marks of the files."""

    @property
    def source(self) -> EventSource:
        """What enters."""
        return EventSource(self.name, self.chunks, self.stamp)

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal."""
        said = {"draw": self.draw, self.kind: self.name, "chunks": self.chunks}
        return {**said, "stamp": self.stamp} if self.kind in ("enter", "floor") else said

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Event:
        """Read it back."""
        kind: Kind
        for kind in get_args(Kind):
            draw, name, chunks, stamp = (said.get(key) for key in ("draw", kind, "chunks", "stamp"))
            if type(draw) is int and isinstance(name, str) and type(chunks) is int and chunks >= 0:
                return cls(draw, kind, name, chunks, str(stamp or ""))
        raise StoreError(f"this is no admission: {said}", hint="the journal belongs to something else")


def entered(lines: Iterable[Mapping[str, Any]], epoch: int, before: Iterable[WindowEntry] = ()) -> list[WindowEntry]:
    """Every source that entered in an epoch, by the lines of the journal, and those that did so before.

    >>> entered([{"draw": 0, "enter": "a.tar", "chunks": 3, "epoch": 0}], epoch=0)
    [WindowEntry(name='a.tar', first=0, count=3, stamp='')]
    """
    entries = list(before)
    for said in lines:
        if "enter" in said and said.get("epoch") == epoch:
            first = entries[-1].stop if entries else 0
            entries.append(WindowEntry(said["enter"], first, said["chunks"], said.get("stamp", "")))
    return entries


def grouped(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Files that are gone together, and everything else by itself: each alone would look through the whole window."""
    for kind, same in groupby(events, key=attrgetter("kind")):
        some = list(same)
        yield from [some] if kind == "gone" else ([event] for event in some)


def apply(window: Window, events: Iterable[Event]) -> list[WindowEntry]:
    """Do to a window what happened; gives the sources that have left it."""
    left: list[WindowEntry] = []
    for some in grouped(events):
        if some[0].kind == "gone":
            left += window.remove({event.name for event in some})
        elif some[0].kind == "enter":
            left += window.enter(*some[0].source)
    return left


def advance(window: Window, draws: int, events: Iterable[Event]) -> list[WindowEntry]:
    """Make draws until so many were made, with everything that happened meanwhile; gives what has left by then.

    >>> first, second = Window(5, seed=1), Window(5, seed=1)
    >>> events = [Event(0, "enter", "a.tar", 3), Event(2, "enter", "b.tar", 3)]
    >>> for event in events:
    ...     while first.draws < event.draw:
    ...         _ = first.draw()
    ...     _ = apply(first, [event])
    >>> number = first.draw().number
    >>> advance(second, number, events)
    []
    >>> first.state()[0] == second.state()[0]
    True
    """
    left: list[WindowEntry] = []
    for draw, together in groupby(events, key=attrgetter("draw")):
        _draw_until(window, draw)
        left += apply(window, together)
    _draw_until(window, draws)
    return left


def _draw_until(window: Window, draws: int) -> None:
    while (before := window.draws) < draws:
        if window.draw() is None and window.draws == before:  # one that finds no game may pass over old ones
            raise StoreError(f"draw {draws} was never made", hint="the journal belongs to another run")


@dataclass(frozen=True, slots=True)
class LostUse:
    """A use of a game that could not be read, or not to its end."""

    draw: int
    """The number of the draw."""
    name: str
    """The source."""
    game: int
    use: int
    came: int = 0
    """Chosen positions of it that came before."""
    unseen: bool = False
    """It could not be looked at when it was drawn: what depends on it, as its weight, was not known either."""

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal."""
        said = {"lost": self.name, "draw": self.draw, "game": self.game, "use": self.use, "came": self.came}
        return {**said, "unseen": self.unseen}


@dataclass(frozen=True, slots=True)
class LostSlots:
    """Positions of a source that waited in the reservoir when a run resumed, and could not be read again."""

    counter: int
    """That of the reservoir: what had left before came."""
    name: str
    first: int
    stop: int

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal."""
        return {"lost": self.name, "counter": self.counter, "games": [self.first, self.stop]}


Loss = LostUse | LostSlots


def is_loss(said: Mapping[str, Any]) -> bool:
    """Whether a line of a journal says that something was lost."""
    return "lost" in said


def read_loss(said: Mapping[str, Any]) -> Loss:
    """Read a line back.

    >>> read_loss(LostUse(7, "a.tar", 3, use=1).to_json())
    LostUse(draw=7, name='a.tar', game=3, use=1, came=0, unseen=False)
    """
    try:
        if "draw" in said:
            draw, game, use, came = (int(said[key]) for key in ("draw", "game", "use", "came"))
            return LostUse(draw, str(said["lost"]), game, use, came, bool(said["unseen"]))
        first, stop = said["games"]
        return LostSlots(int(said["counter"]), str(said["lost"]), int(first), int(stop))
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"this is no loss: {said}", hint="the journal belongs to something else") from None


class Losses:
    """All that was lost.

    >>> losses = Losses([LostUse(7, "a.tar", 3, use=1), LostSlots(100, "a.tar", 0, 8)])
    >>> losses.came(7), losses.came(8)
    (0, None)
    >>> losses.in_slots(np.array([3, 3, 8]), counter=99)
    array([False,  True, False])
    """

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        self._uses: dict[int, int] = {}
        self.unseen: set[int] = set()
        """Draws of games that could not be looked at."""
        self._slots: list[LostSlots] = []
        for loss in losses:
            self.add(loss)

    def add(self, loss: Loss) -> None:
        """Remember one more; of two that speak of one use, the later one holds."""
        if isinstance(loss, LostUse):
            self._uses[loss.draw] = loss.came
            (self.unseen.add if loss.unseen else self.unseen.discard)(loss.draw)
        else:
            self._slots.append(loss)

    def came(self, draw: int) -> int | None:
        """How many positions of a use came, if the others were lost."""
        return self._uses.get(draw)

    def in_slots(self, chunks: npt.NDArray[Any], counter: int) -> npt.NDArray[np.bool_]:
        """Which of the positions were lost that leave the reservoir one after the other, from a counter on."""
        lost, counters = np.zeros(len(chunks), bool), counter + np.arange(len(chunks))
        for loss in self._slots:
            lost |= (loss.first <= chunks) & (chunks < loss.stop) & (counters >= loss.counter)
        return lost

    @property
    def any_in_slots(self) -> bool:
        """Whether anything was lost in a reservoir."""
        return bool(self._slots)
