"""The last steps of a self-play run: where it stood before each of them, for a trainer that reads ahead; and what was
left out until there.

A mirror stands where the oldest of them begins, and for each there is what making it did to the reservoir. A copy of
the mirror that does the same comes to where the run stood. A row takes 20 bytes here, and 1,372 in a reservoir.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from millstream.errors import LoaderError
from millstream.live import EVER, GONE_FROM_RESERVOIR, Entry, Mirror, Moves
from millstream.stats import Ledger
from millstream.storage import Position

_NOTHING: Mapping[str, int] = MappingProxyType({})
KEPT = 64
"""Steps."""


@dataclass(slots=True)
class Stood:
    """Where a run stood before a step, and what making that step did."""

    step: int
    epoch: int
    epoch_rows: int
    at_first: Mapping[str, int]
    """What was left out when the epoch began."""
    files: str | None
    """A hash of the files of the epoch, where nothing is written down."""
    journal: Position
    mirror: Mirror
    """Stands here, or behind."""
    draw: int
    """Of the game that the last positions came from."""
    moves: Sequence[Moves] = ()
    gone: int = 0
    """Positions that would have been in the step, if their files were there."""
    losses: Counter[str] | None = None
    """What was left out until then, once the stages have ended that it was counted for."""


class Past:
    """The last steps, the mirror behind them, and the ledger of what the run leaves out, ahead of the trainer too."""

    def __init__(self) -> None:
        self._losses = Ledger()
        self._kept: deque[Stood] = deque()
        self._gone = 0
        """Positions that would have been in steps before the last ones, of the stages that are at work."""
        self._near: tuple[Mirror, int, Mirror] | None = None
        """The last copy that was made: of which mirror, at which step, itself. What is asked for next is often near."""

    def begin(self, mirror: Mirror) -> None:
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

    def deliver(self, stood: Stood) -> None:
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

    def __getitem__(self, step: int) -> Stood:
        first = self._kept[0].step if self._kept else step + 1
        if not first <= step < first + len(self._kept):
            raise LoaderError(
                f"this run does not know any more where it stood before step {step}: it keeps the last {KEPT} steps",
                hint="save the state of a later batch; reset() and load_state_dict() forget all steps",
            )
        return self._kept[step - first]

    def at(self, stood: Stood) -> Mirror:
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

    def losses_at(self, stood: Stood) -> Counter[str]:
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

    def catch_up(self) -> list[Entry]:
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
