"""A run: its phases, and with them every step's place in the data, forwards and backwards.

(seed, phases) + step -> epoch, rows, samples; and (source, sample) -> steps. Pure arithmetic, O(1) in the
position, the same on every rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from millstream.errors import OrderError
from millstream.order.phase import Phase, PhaseSettings, first_phase, next_phase
from millstream.order.shares import NO_WINDOWS, Windows
from millstream.order.shuffle import Words
from millstream.order.steps import LONGEST_RUN, StepPhase


@dataclass(frozen=True)
class StepPlace:
    """Where a step lies, as seen by one rank."""

    step: int
    epoch: int
    offset: int
    """Samples of the epoch before this step's first row of all ranks."""
    rows: int
    """Rows of all ranks."""
    first: int
    """Position, within the phase, of this rank's first row."""
    own: int
    """Rows of this rank."""


@dataclass(frozen=True)
class Schedule:
    """The phases of a run.

    >>> from millstream.order.phase import PhaseSettings
    >>> from millstream.order.shares import Share
    >>> from millstream.order.schedule import Schedule
    >>> settings = PhaseSettings(seed=0, row_length=4, global_rows=3, sources={"web": Share(8, shuffle="none")})
    >>> run = Schedule.start(settings)
    >>> [(place.epoch, place.rows) for place in map(run.place, range(4))]
    [(0, 3), (0, 3), (0, 2), (1, 3)]
    >>> [int(sample) for sample in run.rows(2)[1]]
    [6, 7]
    """

    seed: int
    phases: tuple[Phase, ...]
    windows: Mapping[str, Windows] = field(default_factory=dict)
    """Of the sources whose rows are packed."""

    @classmethod
    def start(cls, settings: PhaseSettings, windows: Mapping[str, Windows] = NO_WINDOWS) -> Schedule:
        """Begin a run with these settings."""
        return cls(settings.seed, (first_phase(settings),), windows)

    def change(self, settings: PhaseSettings, step: int) -> Schedule:
        """Follow `settings` from `step` on; what lies before stays as it was, what came after is forgotten."""
        phase = self._phase_of(step)
        past = self._before(step)
        if past and past[-1].follows(settings):  # also when steps of another size, for none, lay in between
            return self._with(past)
        now = phase.until(step + 1)
        earlier = past if phase.step == step else past[:-1]
        if now.follows(settings):
            return self._with((*earlier, now))
        if phase.step < step and now.follows(settings, rows=settings.global_rows):
            resized = past[-1].resize(settings.global_rows, step)
            if resized is not None:
                return self._with((*earlier, resized))
        return self._with((*past, next_phase(now if phase.step == step else past[-1], settings, step)))

    def resize(self, rows: int, step: int, position: int | None = None) -> Schedule:
        """Have so many rows in each step from `step` on, and change nothing else. O(1) in the changes before.

        A caller may pass the position of its phase at which the step begins.
        """
        phase = self.phases[-1]
        resized = phase.resize(rows, step, position) if phase.step < step else None
        if resized is None:
            return self.change(self._phase_of(step).settings(self.seed, rows), step)
        return self._with((*self.phases[:-1], resized))

    def with_changes(self, changes: Iterable[tuple[int, int, int]]) -> Schedule:
        """Have other rows in a step from some later steps of the last phase on: (step, its position, rows) each."""
        return self._with((*self.phases[:-1], self.phases[-1].with_changes(changes)))

    def until(self, step: int) -> Schedule:
        """The schedule as it was before a step."""
        return self._with(self._before(step) or (self.phases[0].until(self.phases[0].step + 1),))

    def _before(self, step: int) -> tuple[Phase, ...]:
        """The phases as they were before a step."""
        return tuple(phase.until(step) for phase in self.phases if phase.step < step)

    def _with(self, phases: tuple[Phase, ...]) -> Schedule:
        """Have other phases. This runs for every batch of another size: `Schedule()` takes twice as long."""
        schedule = object.__new__(Schedule)
        values = schedule.__dict__
        values["seed"], values["phases"], values["windows"] = self.seed, phases, self.windows
        return schedule

    @property
    def past(self) -> list[object]:
        """What lies before the last change, for a comparison."""
        steps = [part for phase in self.phases for part in (phase.until(phase.step + 1), *phase.changes)]
        return steps[:-1]

    def phase_at(self, step: int) -> Phase:
        """Give the phase that a step belongs to, as if it began where the rows of a step last changed before."""
        return self._phase_of(step).begun_at(step, self.seed)

    def _phase_of(self, step: int) -> Phase:
        return self.steps_at(step)[0]

    def steps_at(self, step: int) -> tuple[Phase, StepPhase[int]]:
        """Give the phase that a step belongs to, and those of its steps that have the same size."""
        if not hasattr(step, "__index__") or step < 0:
            raise OrderError(f"there is no step {step!r}", hint="steps count from 0")
        for phase in reversed(self.phases):
            if phase.step > step:
                continue
            steps = phase.resized
            if steps is None or steps.step > step:
                steps = phase.steps_at(step)
            if (step - steps.step) * steps.rows >= LONGEST_RUN:
                raise OrderError(f"step {step} lies behind {LONGEST_RUN} samples", hint="no run is that long")
            return phase, steps
        raise OrderError(
            f"step {step} lies before what is known of this run (from step {self.phases[0].step} on)",
            hint="pass the cache_dir= that the run was saved with: the earlier phases lie there; without one, a state "
            "that they outgrow keeps only the present phase",
        )

    def place(self, step: int, rank: int | None = None) -> StepPlace:
        """Say where a step lies, as seen by one rank (None: by all together)."""
        phase, steps = self.steps_at(step)
        epoch, before, _ = phase.place_of(steps.place)
        epochs, offset, _, rows, first, own = phase.clock(rank, steps).step(step - steps.step)
        return StepPlace(step, epoch + epochs, offset + (before if epochs == 0 else 0), rows, first, own)

    def rows(self, step: int, rank: int | None = None) -> tuple[list[str], Words]:
        """Name source and sample of each row of a step."""
        phase = self._phase_of(step)
        place = self.place(step, rank)
        sources, samples = np.empty(place.own, np.uint64), np.empty(place.own, np.uint64)
        phase.plan(self.seed, self.windows).rows(place.first, sources, samples)
        names = phase.active
        return [names[source] for source in sources.tolist()], samples

    def steps_of(self, name: str, tokens: tuple[int, int] | None, documents: range, epoch: int) -> list[int]:
        """Find the steps of an epoch whose rows use given samples of a source.

        Samples are windows over `tokens` (start, stop), or, where `tokens` is None, `documents` themselves.
        """
        steps: set[int] = set()
        for phase, first, stop in self._stretches(epoch):
            if name not in phase.active or first == stop:
                continue
            samples = documents
            if tokens is not None:
                samples = range(tokens[0] // phase.row_length, (tokens[1] - 1) // phase.row_length + 1)
            steps.update(self._steps_in(phase, name, samples, first, stop))
        return sorted(steps)

    def _stretches(self, epoch: int) -> Iterator[tuple[Phase, int, int]]:
        """Yield, for each phase, the positions of it that lie in an epoch."""
        for phase, following in zip(self.phases, (*self.phases[1:], None), strict=True):
            before = epoch - phase.epoch
            if before < 0:
                continue
            first = 0 if before == 0 else phase.left + (before - 1) * phase.size
            stop = phase.left + before * phase.size
            if following is not None:
                stop = min(stop, phase.position_of(following.step))
            yield phase, first, max(first, stop)

    def _steps_in(self, phase: Phase, name: str, samples: Iterable[int], first: int, stop: int) -> Iterator[int]:
        plan, number = phase.plan(self.seed), phase.active.index(name)
        sizes = list(phase.steps)[::-1]
        start_use, stop_use = plan.used(number, first), plan.used(number, stop)
        for use in self._uses(phase, name, samples, start_use, stop_use):
            position = plan.position_of(number, use)
            steps = sizes[bisect_right(sizes, position, key=lambda steps: steps.place) - 1]
            clock = phase.clock(None, steps)
            step = clock.number_of(position)
            _, _, start, rows, _, _ = clock.step(step)
            if start <= position < start + rows:  # drop_last may leave it out
                yield steps.step + step

    def _uses(self, phase: Phase, name: str, samples: Iterable[int], start: int, stop: int) -> Iterator[int]:
        """The times, counted from the start of the phase, at which a source's samples are used in [start, stop)."""
        if stop == start:
            return
        standing = phase.sources[name]
        epoch, last = standing.after(start).epoch, standing.after(stop - 1).epoch
        wanted = np.array(list(samples), np.uint64)
        while epoch <= last:
            order, split = phase.order(name, epoch, self.seed, self.windows)
            inside = wanted if name in self.windows else wanted[wanted < order.samples * split]
            positions = np.empty_like(inside)
            order.inverse(epoch, inside // np.uint64(split), positions)
            shift = -standing.offset if epoch == standing.epoch else standing.left
            shift += max(0, epoch - standing.epoch - 1) * standing.samples
            for position, sample in zip(positions.tolist(), inside.tolist(), strict=True):
                use = position * split + sample % split + shift
                if start <= use < stop:
                    yield use
            epoch += 1
