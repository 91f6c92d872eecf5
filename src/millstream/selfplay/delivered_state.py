"""Where a run stands for its trainer, while the stages are ahead of it.

`DeliveredState` repeats on another window, and on the origins of the slots, what the stages did: without any frame, and
only as far as batches were delivered. The stages can begin again from it. `RecentSteps` keeps what each of the last
steps did to the reservoir, so that a state of any of them can be made, and the losses until there. A row takes 20 bytes
here and 1,372 in a reservoir.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, StateError
from millstream.games import ORIGIN
from millstream.selfplay.admission import EVER
from millstream.selfplay.chunk_feed import GONE_FROM_RESERVOIR, GamePlace, ReservoirMoves
from millstream.selfplay.events import CHANGES, Event, advance
from millstream.selfplay.window import Arrays, Window, WindowEntry
from millstream.stats import Ledger
from millstream.storage import Position

_NOTHING: Mapping[str, int] = MappingProxyType({})
KEPT = 64
"""Steps."""


class DeliveredState:
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
        self.place: GamePlace | None = None
        self._events: deque[Event] = deque()
        self._left: list[WindowEntry] = []
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

    def copy(self) -> DeliveredState:
        """Another one that stands here, and has heard nothing of what happens ahead."""
        other = DeliveredState(self.window.copy(), len(self._slots))
        other._slots[: self._count] = self.origins
        other._count, other.counter, other.place = self._count, self.counter, self.place
        other._left = list(self._left)
        return other

    def hear(self, behind: DeliveredState) -> None:
        """Learn from another one, which stands where this one stood or behind it, what has happened since."""
        with behind._guard:
            draws, events = self.window.draws, list(behind._events)
        self._events = deque([event for event in events if event.draw >= draws])

    def rewind(self) -> list[Event]:
        """Stages begin where batches were delivered: give what had happened ahead of that, which will happen again."""
        self.catch_up()
        with self._guard:
            ahead, self._events = list(self._events), deque()
        return ahead

    def follow(self, moves: Sequence[ReservoirMoves]) -> None:
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
    def entry(self) -> WindowEntry | None:
        """The source of the game that the last positions came from."""
        if self.place is None:
            return None
        return next(entry for entry in self.entries if entry.first <= self.place.chunk < entry.stop)

    def catch_up(self) -> list[WindowEntry]:
        """Make the draws whose games were delivered; gives the sources that are no longer needed."""
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
    def entries(self) -> list[WindowEntry]:
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
            self.place = None if facts["place"] is None else GamePlace(**facts["place"])
            self.counter = int(facts["counter"])
            self._left = [WindowEntry.of(told) for told in facts["left"]]
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


@dataclass(slots=True)
class StepSnapshot:
    """Where a run stood before a step, and what making that step did."""

    step: int
    epoch: int
    epoch_rows: int
    at_first: Mapping[str, int]
    """What was left out when the epoch began."""
    files: str | None
    """A hash of the files of the epoch, where nothing is written down."""
    journal: Position
    mirror: DeliveredState
    """Stands here, or behind."""
    draw: int
    """Of the game that the last positions came from."""
    moves: Sequence[ReservoirMoves] = ()
    gone: int = 0
    """Positions that would have been in the step, if their files were there."""
    losses: Counter[str] | None = None
    """What was left out until then, once the stages have ended that it was counted for."""


class RecentSteps:
    """The last steps, the mirror behind them, and the ledger of what the run leaves out, ahead of the trainer too."""

    def __init__(self) -> None:
        self._losses = Ledger()
        self._kept: deque[StepSnapshot] = deque()
        self._gone = 0
        """Positions that would have been in steps before the last ones, of the stages that are at work."""
        self._near: tuple[DeliveredState, int, DeliveredState] | None = None
        """The last copy that was made: of which mirror, at which step, itself. What is asked for next is often near."""

    def begin(self, mirror: DeliveredState) -> None:
        """From here on steps follow this mirror, which stands where the trainer stands."""
        self.mirror, self._near = mirror, None
        self.draw = 0 if mirror.place is None else mirror.place.draw
        """Of the game that the trainer's last positions came from."""

    def forget(self, losses: Mapping[str, int] = _NOTHING) -> None:
        """The run goes elsewhere, where this was left out."""
        self._kept.clear()
        self._losses.restart(losses)

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the locks."""
        self._losses.unlock()
        for mirror in (self.mirror, *(stood.mirror for stood in self._kept)):
            mirror.unlock()

    def deliver(self, stood: StepSnapshot) -> None:
        """A step is the trainer's. This runs for every batch: keep it lean."""
        self._kept.append(stood)
        for move in stood.moves:
            self.draw = self.draw if move.place is None else move.place.draw
        if len(self._kept) > KEPT:
            oldest = self._kept.popleft()
            oldest.mirror.follow(oldest.moves)
            if oldest.losses is None:
                self._gone += oldest.gone
            if self._near is not None and self._near[1] <= oldest.step:
                self._near = None

    def __getitem__(self, step: int) -> StepSnapshot:
        first = self._kept[0].step if self._kept else step + 1
        if not first <= step < first + len(self._kept):
            raise LoaderError(
                f"this run does not know any more where it stood before step {step}: it keeps the last {KEPT} steps",
                hint="save the state of a later batch; reset() and load_state_dict() forget all steps",
            )
        return self._kept[step - first]

    def at(self, stood: StepSnapshot) -> DeliveredState:
        """A mirror that stands there: the one that steps follow, where it does, or a copy."""
        base = stood.mirror
        between = [each for each in self._kept if each.mirror is base and each.step < stood.step]
        if not between:
            return base
        if self._near is None or self._near[0] is not base or not between[0].step <= self._near[1] <= stood.step:
            self._near = base, between[0].step, base.copy()
        _, step, near = self._near
        near.follow([move for each in between[step - between[0].step :] for move in each.moves])
        near.hear(base)
        near.catch_up()
        self._near = base, stood.step, near
        return near

    def losses_at(self, stood: StepSnapshot) -> Counter[str]:
        """What had been left out there."""
        if stood.losses is not None:
            return stood.losses
        gone = sum([each.gone for each in list(self._kept) if each.losses is None and each.step < stood.step])
        return self._losses.at(stood.draw) + Counter({GONE_FROM_RESERVOIR: self._gone + gone})

    # What was left out

    def count(self, reason: str, number: int, draw: int | None = None) -> None:
        """Count what was left out, at its draw; what has none, as files have not, at the end of the epoch."""
        self._losses.add("", reason, number, at=EVER if draw is None else draw)

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason; by stages that are at work, also ahead of the trainer."""
        return dict(+self._losses.at(math.inf))

    @property
    def settled_losses(self) -> dict[str, int]:
        """What was left out by stages that have ended."""
        return self._losses.counts

    def catch_up(self) -> list[WindowEntry]:
        """Let go of what only lies before the steps that are kept; gives the sources that no later step uses."""
        gone = self.mirror.catch_up()
        if self.mirror.place is not None:
            self._losses.settle(self.mirror.place.draw)
        return gone

    def end_stages(self) -> None:
        """The stages have ended, and with them an epoch: all that they left out counts."""
        self._settle()
        self._losses.settle()

    def forget_ahead(self, *, keep_files: bool = False) -> None:
        """Count only what lies behind the trainer: what was left out ahead, and which files, other stages will leave
        out again. With `keep_files`, none will."""
        without_draw = self._losses.at(math.inf) - self._losses.at(EVER)
        gone = {GONE_FROM_RESERVOIR: self._settle()}  # the stages have counted those that lie ahead, too
        self._losses.settle(self.draw)
        self._losses.forget()
        for reason, number in {**(without_draw if keep_files else {}), **gone}.items():
            if number:
                self._losses.add("", reason, number)

    def _settle(self) -> int:
        """What was left out until each step is kept with it; gives how many positions would have been in the steps of
        the stages that end."""
        due = [stood for stood in list(self._kept) if stood.losses is None]
        for stood, losses in zip(due, [self.losses_at(stood) for stood in due], strict=True):
            stood.losses = losses
        gone, self._gone = self._gone + sum(stood.gone for stood in due), 0
        return gone
