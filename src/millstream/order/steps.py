"""Steps of one size: how many an epoch has, and the phases of steps in a run that changes their size.

A phase of steps is immutable and links to the one before it: a run that changes its size shares its past with what it
was before. It also links to an earlier one, at distances that grow, so any step is found in O(log n). A change costs
O(1), however many there were before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

LONGEST_RUN = 2**62
"""Samples of a run: what the native arithmetic counts without overflow."""


def steps_in(samples: int, rows: int, *, drop_last: bool) -> int:
    """The steps of an epoch of so many samples, of which a step takes `rows` on all ranks together.

    >>> steps_in(10, 4, drop_last=False), steps_in(10, 4, drop_last=True)
    (3, 2)
    """
    whole, rest = divmod(samples, rows)
    return whole + (rest > 0 and not drop_last)


PlaceT = TypeVar("PlaceT")
"""Where steps begin in the data: a position of a phase, a sample of a stream, a place of a feed."""
PhaseT = TypeVar("PhaseT", bound="StepPhase[Any]")


@dataclass(slots=True, eq=False, repr=False)
class StepPhase(Generic[PlaceT]):
    """From `step` on, which begins at `place`, a step has `rows` rows on `ranks` ranks together.

    Nothing changes it. It is not frozen: to be made would take five times as long, for every batch of another size.

    >>> first = StepPhase(0, place=0, rows=8, ranks=2)
    >>> last = first.resized(5, place=40, rows=4).resized(9, place=56, rows=8)
    >>> last, last.at(6), last.at(4) is first
    (StepPhase(9, 56, 8, 2), StepPhase(5, 40, 4, 2), True)
    >>> [phase.step for phase in last]
    [9, 5, 0]
    """

    step: int
    place: PlaceT
    rows: int
    ranks: int
    before: StepPhase[PlaceT] | None = None
    far: StepPhase[PlaceT] | None = None
    """One that lies further back; None where there is none before."""
    number: int = 0
    """Phases before this one."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.step}, {self.place}, {self.rows}, {self.ranks})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepPhase):
            return NotImplemented
        mine: StepPhase[PlaceT] | None = self
        theirs: StepPhase[PlaceT] | None = other
        while mine is not theirs:  # what they share is equal
            if mine is None or theirs is None or mine._values != theirs._values:
                return False
            mine, theirs = mine.before, theirs.before
        return True

    def __iter__(self) -> Iterator[StepPhase[PlaceT]]:
        """This one and those before it, the latest first."""
        phase: StepPhase[PlaceT] | None = self
        while phase is not None:
            yield phase
            phase = phase.before

    @property
    def _values(self) -> tuple[int, PlaceT, int, int, int]:
        return self.step, self.place, self.rows, self.ranks, self.number

    def at(self, step: int) -> StepPhase[PlaceT] | None:
        """The phase of a step; None where it lies before all that is known."""
        phase: StepPhase[PlaceT] | None = self
        while phase is not None and phase.step > step:
            phase = phase.far if phase.far is not None and phase.far.step > step else phase.before
        return phase

    def resized(self, step: int, place: PlaceT, rows: int, ranks: int | None = None) -> StepPhase[PlaceT]:
        """Have steps of another size from a step on; what came after it is forgotten."""
        past = self.at(step - 1)
        ranks = self.ranks if ranks is None else ranks
        if past is None:
            return StepPhase(step, place, rows, ranks)
        if past.rows == rows and past.ranks == ranks:
            return past
        far, number = past.far, past.number  # two leaps of one length become one, so that any phase is O(log n) away
        leap = past if far is None or far.far is None or number - far.number != far.number - far.far.number else far.far
        return StepPhase(step, place, rows, ranks, past, leap, number + 1)


def resized(phases: Sequence[PhaseT], fresh: PhaseT, most: int) -> list[PhaseT]:
    """The same for a run that knows only its last `most` sizes, and them as a list.

    >>> [phase.rows for phase in resized([StepPhase(0, 0, 8, 1), StepPhase(2, 16, 4, 1)], StepPhase(3, 20, 8, 1), 2)]
    [4, 8]
    """
    past = [phase for phase in phases if phase.step < fresh.step]
    if past and (past[-1].rows, past[-1].ranks) == (fresh.rows, fresh.ranks):
        return past
    return [*past, fresh][-most:]
