"""Steps of a run in lanes <-> samples of the run: a step takes the next samples, and each rank those of its own lanes.

With an epoch of so many samples, no step straddles its end. Without one, the run is one endless epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream._core import Clock
from millstream.errors import LoaderError
from millstream.order.phase import LONGEST_RUN
from millstream.order.steps import StepPhase

KEPT_PHASES = 16
"""Changes of the batch size that are kept: earlier steps are no longer explained."""


LaneSteps = StepPhase[int]
"""Steps of one size; they begin at a sample of the run."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """What an epoch is: so many samples, of which `drop_last` leaves out those that do not fill a step."""

    size: int = LONGEST_RUN
    drop_last: bool = False

    def clock(self, phase: LaneSteps) -> Clock:
        """What cuts a phase into steps."""
        return Clock(self.size - phase.place % self.size, self.size, phase.rows, 0, phase.rows, self.drop_last)


ENDLESS = Epochs()


def phase_at(phases: Sequence[LaneSteps], step: int) -> LaneSteps | None:
    """The phase of a step, or None if it is no longer known."""
    return next((phase for phase in reversed(phases) if phase.step <= step), None)


def span_of(step: int, phases: Sequence[LaneSteps], epochs: Epochs = ENDLESS) -> range:
    """The samples of a step, on all ranks.

    >>> phases = [StepPhase(0, 0, 8, 2)]
    >>> span_of(1, phases), [span_of(step, phases, Epochs(20)) for step in (2, 3)]
    (range(8, 16), [range(16, 20), range(20, 28)])
    """
    phase = phase_at(phases, step)
    if phase is None or step < 0:
        raise LoaderError(f"step {step} is no longer known", hint="batch sizes changed too often since")
    _, _, position, rows, _, _ = epochs.clock(phase).step(step - phase.step)
    return range(phase.place + position, phase.place + position + rows)


def own_samples(span: range, rank: int, ranks: int) -> range:
    """The samples of a rank: those of its lanes.

    >>> list(own_samples(range(24, 32), 1, 2)), list(own_samples(range(5, 9), 0, 2))
    ([25, 27, 29, 31], [6, 8])
    """
    return range(span.start + (rank - span.start) % ranks, span.stop, ranks)


def samples_of(step: int, phases: Sequence[LaneSteps], rank: int, ranks: int, epochs: Epochs = ENDLESS) -> range:
    """The samples of a step: those of this rank, or of all ranks where their number was another one then."""
    span = span_of(step, phases, epochs)
    phase = phase_at(phases, step)
    return span if phase is None or phase.ranks != ranks else own_samples(span, rank, ranks)


def step_of(sample: int, phases: Sequence[LaneSteps], epochs: Epochs = ENDLESS) -> int | None:
    """The step that a sample belongs to; None if it is no longer known, or left out."""
    phase = next((phase for phase in reversed(phases) if phase.place <= sample), None)
    if phase is None:
        return None
    step = phase.step + epochs.clock(phase).number_of(sample - phase.place)
    return step if sample in span_of(step, phases, epochs) else None
