"""The journal of a self-play run: what happens to the window of its stages, and what is lost, ahead of the trainer.

Its first line says whose it is: an id that no other run has, and the settings that decide which rows come. One rank
writes; the others hear it, or come to the same lines by themselves, so that their states are the same.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from millstream.errors import BusyError, StateError
from millstream.selfplay.chunk_feed import GamePlace
from millstream.selfplay.events import CHANGES, EVENTS_FORMAT, Event, Loss, entered, is_loss, read_loss
from millstream.selfplay.window import WindowEntry
from millstream.stages import retry
from millstream.storage import OTHER_RUN, ChainedLog, FollowedLog, LogReader, Position, announce, forget, log_of

JOURNAL = "admissions.jsonl"
START = Position.start(EVENTS_FORMAT)
PATIENCE_S = 1.0
"""How long the first rank waits for others who look whether it is at work."""
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class RankRole:
    """The part that a rank has in a run; 0 writes."""

    rank: int = 0
    ranks: int = 1
    led: bool = False
    """Whether the other ranks do what the first one does."""
    batch_size: int = 0

    @property
    def writes(self) -> bool:
        """Whether it writes the journal."""
        return self.rank == 0

    @property
    def hears(self) -> bool:
        """Whether it does what the journal says."""
        return self.led and self.rank > 0


class RunJournal:
    """The journal, at the place where the trainer stands.

    Args:
        path: Where it lies; None: nothing is written.
        facts: The settings that decide which rows come.
        part: Of this rank.
        beside: Names of what belongs to the same run beside the journal.
    """

    def __init__(self, path: Path | None, facts: Facts, part: RankRole, beside: Sequence[str] = ()) -> None:
        self._path, self._facts, self._part, self._beside = path, facts, part, beside
        self._shared = {**facts, "batch_size": part.batch_size, "world_size": part.ranks}
        self._log: ChainedLog | None = None
        self._guard = threading.Lock()
        self._followed: FollowedLog | None = None
        self.move_to(START)

    def move_to(self, position: Position) -> None:
        """Stand somewhere, with the file closed. The very beginning is that of a run that has written nothing: the
        journal of another one is put aside."""
        self.close()
        self.position = self._written = self._heard = position
        self._entered: tuple[int, LogReader, list[WindowEntry]] | None = None
        """What entered in the epoch that was asked for last, as far as that was read."""
        self._unheard: dict[str, Any] | None = None
        """A line of the first rank that was not asked for yet."""
        self._ahead = deque[tuple[int, Position]]()
        self._there = deque[tuple[dict[str, Any], Position]]()
        """Lines behind the present place, which are not written once more."""
        self._announced = not (self._part.led and self._part.writes)
        if position == START and not self._part.writes and not self._part.led:
            self._written = START.after(self._head())[1]
        self._first = self._written
        """Where a trainer stands who was given nothing."""
        if self._part.led and self._path is not None:
            forget(self._path)
        if self._part.hears and self._path is not None:
            self._heard = _followed_from(position)
            self._followed = (
                FollowedLog(self._path, self._heard, facts=self._shared)
                if self._followed is None
                else self._followed.anew(self._heard)
            )

    @property
    def folder(self) -> Path | None:
        """Where the journal lies."""
        return None if self._path is None else self._path.parent

    def _head(self) -> dict[str, Any]:
        """Ranks that do not hear each other cannot agree on an id."""
        alone = self._part.led or self._part.ranks == 1
        return {"run": uuid4().hex if alone else "", "facts": dict(self._facts)}

    def open(self) -> None:
        """Open the file, if it is not."""
        if self._path is None or self._log is not None or not self._part.writes:
            return
        log = self._opened(self._path)
        try:
            if self.position == START and self._first == START:
                self._first = self._written = log.write(self._head())
            self._read_behind(log)
        except BaseException:
            log.close()
            raise
        self._log = log

    def _read_behind(self, log: ChainedLog) -> None:
        """What lies behind the present place is not written once more."""
        behind = LogReader(log.path, self._written)
        self._there.extend((said, behind.position) for said in behind if _is_event(said))
        log.go_back(behind.position)

    def _opened(self, path: Path) -> ChainedLog:
        anew = self._first == START

        def opened() -> ChainedLog:
            return ChainedLog(path, EVENTS_FORMAT, None if anew else self._first, anew=anew, beside=self._beside)

        return retry(opened, BusyError, PATIENCE_S if self._part.led else 0, pauses_s=(0.01, 0.01))

    def leave_behind(self) -> None:
        """In a forked child: it is the other process that writes, and a thread that is not here may hold the lock."""
        self._guard, self._log = threading.Lock(), None

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def is_told(self) -> bool:
        """Whether the file says all that happens here: this rank writes it, or does what it says."""
        return self._path is not None and (self._part.writes or self._part.hears)

    def rewind(self, place: GamePlace | None) -> None:
        """Stages begin once more where the trainer stands: what lies behind that will be said again."""
        if place is not None:
            self.catch_up(place.draw)
        with self._guard:
            self._written = self._first if self.position == START else self.position
            self._ahead.clear()
            self._there.clear()
            if self._followed is not None:
                self._heard = self._followed.position = _followed_from(self._written)
                self._unheard = None
            if self._log is not None:
                self._read_behind(self._log)

    # What is written

    def write(self, events: Sequence[Event], epoch: int) -> None:
        """Write down what happens to the window of the stages, ahead of what was delivered."""
        lines = [{**event.to_json(), "epoch": epoch} for event in events]
        with self._guard:
            fresh = lines[self._said_before(lines) :]
            if fresh:
                self._written = self._written.after(*fresh)[1]
            if self._log is not None and fresh:
                self._written = self._log.write(*fresh, sync=any(event.kind in CHANGES for event in events))
            if not self._announced and self._path is not None:
                announce(self._path, _followed_from(self.position), self._shared)
                self._announced = True
            if lines:
                self._ahead.append((events[-1].draw, self._written))

    def _said_before(self, lines: Sequence[dict[str, Any]]) -> int:
        """How many of these lines the journal has; from one on that differs, what it says will not happen."""
        for count, line in enumerate(lines):
            if not self._there:
                return count
            said, position = self._there.popleft()
            if said != line:
                self._there.clear()
                self._entered = None
                if self._log is not None:
                    self._log.go_back(self._written)
                    self._log.cut()
                return count
            self._written = position
        return len(lines)

    def note(self, loss: Loss, epoch: int) -> None:
        """Write down that something was lost, before anything is delivered that came behind it."""
        with self._guard:
            if self._log is not None:
                self._log.write({**loss.to_json(), "epoch": epoch})

    def catch_up(self, draw: int) -> None:
        """Batches were delivered up to a draw."""
        with self._guard:
            while self._ahead and self._ahead[0][0] < draw:
                self.position = self._ahead.popleft()[1]

    def saved(self, position: Position | None = None) -> Position:
        """Where the trainer stands, or stood, on the disk."""
        if self._log is not None:
            self._log.sync()
        position = position or self.position
        return self._first if position == START else position

    # What the first rank says

    def heard(self, epoch: int) -> Event | None:
        """What the first rank has written next of an epoch, if it has."""
        while (said := self._next_line()) is not None:
            if _is_event(said) and said.get("epoch") != epoch:  # the next one has begun there
                return None
            self._unheard, self._heard = None, self._heard.after(said)[1]
            if _is_event(said):
                self._there.append((said, self._heard))
                return Event.from_json(said)
            if self._first == START:
                self._first = self._heard
        return None

    def _next_line(self) -> dict[str, Any] | None:
        if self._unheard is None and self._followed is not None:
            self._unheard = self._followed.read()
        return self._unheard

    def has_begun(self) -> bool:
        """Whether the first rank has begun a run where this one stands."""
        return self._followed is not None and self._followed.has_begun()

    # What was written

    def losses(self, epoch: int) -> list[Loss]:
        """All that was lost in an epoch, as far as this run has a journal."""
        if self._path is None or self._first == START:  # it may find that of another one
            return []
        return read_losses(log_of(self._first, self._path), epoch)

    def entries(self, epoch: int) -> list[WindowEntry]:
        """Every source that entered in an epoch."""
        if self._path is None:
            return []
        with self._guard:
            known, reader, before = self._entered or (epoch, LogReader(self._path, START), [])
            if known != epoch:
                reader, before = LogReader(self._path, START), []
            self._entered = epoch, reader, entered(reader.having("enter"), epoch, before)
            return self._entered[2]

    def past(self, place: GamePlace | None, epoch: int) -> tuple[list[Event], list[Event], list[WindowEntry]]:
        """What had happened in an epoch where a trainer stands, what happened then, and every source that entered."""
        if place is not None:
            self.catch_up(place.draw)
        position = self.saved()
        entries = [] if position == START else self.entries(epoch)  # it may find that of another run
        return *self.split_at(position, epoch), entries

    def split_at(self, position: Position, epoch: int) -> tuple[list[Event], list[Event]]:
        """What had happened in an epoch when a state was saved there, and what happened then. Of all promises before,
        which are most of what a journal says, only the last one is given."""
        assert self._path is not None
        if position == START:
            return [], []
        reader, promise, met = LogReader(log_of(position, self._path), START), b"", False

        def is_wanted(line: bytes) -> bool:
            nonlocal promise, met
            met = met or reader.position == position
            if met or b'"until":' not in line:
                return True
            promise = line
            return False

        before, behind = list[Event](), list[Event]()
        for said in reader.lines(is_wanted):
            if said.get("epoch") == epoch and _is_event(said):
                (behind if met else before).append(Event.from_json(said))
        if not met and reader.position != position:
            raise StateError(f"{self._path}: this is not the journal of the state", hint=OTHER_RUN)
        if promise and (said := json.loads(promise)).get("epoch") == epoch:
            before.append(Event.from_json(said))
        return before, behind


def _followed_from(position: Position) -> Position:
    """Where those stand who follow: before the first event they may not have read whose journal it is."""
    return START if position.entries <= 1 else position


def _is_event(said: Facts) -> bool:
    return not is_loss(said) and "facts" not in said


def read_losses(journal: Path, epoch: int) -> list[Loss]:
    """All that was lost in an epoch, by a journal."""
    return [read_loss(said) for said in LogReader(journal, START).having("lost") if said.get("epoch") == epoch]


def said_of(journal: Path, epoch: int) -> Iterator[dict[str, Any]]:
    """What a journal says of an epoch."""
    return (said for said in LogReader(journal, START) if said.get("epoch") == epoch)
