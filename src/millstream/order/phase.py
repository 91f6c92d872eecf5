"""A phase: a stretch of a run in which nothing changes but the rows of a step.

A run is a list of phases. Adding a source, other weights, another number of ranks or shorter rows begin a new phase at
the present step. It remembers the place of every source, so nothing is repeated and nothing is lost, and the phases
before it still explain the steps before it. Another batch size cuts the same samples elsewhere: the phase remembers at
which of its positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream._core import Clock, Course, OrderSpec, Plan, derive
from millstream.errors import OrderError
from millstream.order.shares import NO_WINDOWS, UNKNOWN, Share, Standing, Windows
from millstream.order.shuffle import LOCAL_GROUP_BLOCKS, local_blocks, source_key
from millstream.order.steps import StepPhase


@dataclass(frozen=True)
class PhaseSettings:
    """What a run should do from now on."""

    seed: int
    row_length: int
    global_rows: int
    sources: Mapping[str, Share]
    ranks: int = 1
    drop_last: bool = False
    epoch_size: int | None = None
    """Samples of an epoch; None: one pass over the only source, or until the first of several is exhausted."""
    splittable: bool = True
    """Whether a shorter row cuts a sample into several (windows do, documents do not)."""
    padded: bool = False
    """Whether the last sample is filled up: then it cannot be cut into several, some would be empty."""


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: where it starts and what it does."""

    step: int
    """The run's step at which it starts."""
    epoch: int
    offset: int
    """Samples of that epoch before the phase."""
    left: int
    """Samples of that epoch from here on."""
    size: int
    """Samples of every later epoch."""
    global_rows: int
    """Rows of a step on all ranks, when it starts."""
    ranks: int
    row_length: int
    drop_last: bool
    epoch_size: int | None
    """The epoch size that was asked for, if one was."""
    mixed_since: int
    """The step at which the present mixture began: part of its key."""
    mixed: int
    """Places of the present mixture before the phase."""
    sources: Mapping[str, Standing] = field(default_factory=dict)
    resized: StepPhase[int] | None = None
    """The last change of the rows of a step, if there was any; places are positions of the phase."""

    @property
    def steps(self) -> StepPhase[int]:
        """The last steps of one size."""
        return self.resized or StepPhase(self.step, 0, self.global_rows, self.ranks)

    def steps_at(self, step: int) -> StepPhase[int]:
        """The steps of one size that a step of this phase belongs to."""
        found = self.steps.at(step)
        assert found is not None
        return found

    @property
    def changes(self) -> list[StepPhase[int]]:
        """The changes of the rows of a step, from the first on."""
        return [] if self.resized is None else list(self.resized)[-2::-1]

    @property
    def active(self) -> list[str]:
        """Names of the sources in use; a source that was taken out keeps its standing for when it returns."""
        return [name for name, standing in self.sources.items() if standing.quota > 0]

    @property
    def is_unknown(self) -> bool:
        """Whether rows of a source in use have not been counted yet."""
        return any(self.sources[name].samples == UNKNOWN for name in self.active)

    @property
    def shares(self) -> dict[str, Share]:
        """What the settings of this phase say of its sources."""
        standings = {name: self.sources[name] for name in self.active}
        return {
            name: Share(s.samples, s.shuffle, s.quota, unit=s.unit) for name, s in standings.items()
        }  # packed or not

    def settings(self, seed: int, rows: int) -> PhaseSettings:
        """The settings of this phase, with so many rows in a step."""
        return PhaseSettings(seed, self.row_length, rows, self.shares, self.ranks, self.drop_last, self.epoch_size)

    def follows(self, settings: PhaseSettings, rows: int | None = None) -> bool:
        """Whether this phase already does what the settings ask for, or would with so many rows in a step."""
        mine = (rows or self.steps.rows, self.ranks, self.row_length, self.drop_last, self.epoch_size)
        wanted = (settings.global_rows, settings.ranks, settings.row_length, settings.drop_last, settings.epoch_size)
        shares = [(name, replace(share, packed=False)) for name, share in settings.sources.items()]
        return mine == wanted and list(self.shares.items()) == shares

    def clock(self, rank: int | None = None, steps: StepPhase[int] | None = None, left: int | None = None) -> Clock:
        """Give the clock that cuts this phase into steps, as seen by one rank (None: by all together).

        It counts steps, epochs and offsets from the beginning of the phase, or of `steps` of it. Who knows how many
        samples are left of the epoch there may say it.
        """
        start, total = (0, self.global_rows) if steps is None else (steps.place, steps.rows)
        rows = total if rank is None else total // self.ranks
        if self.drop_last and self.size < total:
            raise OrderError(
                f"drop_last leaves no step: an epoch has {self.size} samples, a global batch {total}",
                hint="use a smaller batch_size, or drop_last=False",
            )
        if left is None:
            left = self.left if start == 0 else self.place_of(start)[2]
        return Clock(left, self.size, total, (rank or 0) * rows, rows, self.drop_last, start)

    def place_of(self, position: int) -> tuple[int, int, int]:
        """Epoch, samples of it before, and samples of it from a position of this phase on."""
        if position < self.left:
            return self.epoch, self.offset + position, self.left - position
        epochs, offset = divmod(position - self.left, self.size)
        return self.epoch + 1 + epochs, offset, self.size - offset

    def position_of(self, step: int) -> int:
        """The position at which a step begins."""
        steps = self.steps_at(step)
        return int(self.clock(None, steps).step(step - steps.step)[2])

    def until(self, step: int) -> Phase:
        """The phase as it was before a step, which comes after its first one."""
        if self.resized is None or self.resized.step < step:
            return self
        past = self.resized.at(step - 1)
        return self if past is None else self._with(past)

    def _with(self, steps: StepPhase[int]) -> Phase:
        """Have other last steps. This runs for every batch of another size: `replace` takes four times as long."""
        phase = object.__new__(Phase)
        values = phase.__dict__
        values.update(self.__dict__)
        values["resized"] = None if steps.before is None else steps
        return phase

    def with_changes(self, changes: Iterable[tuple[int, int, int]]) -> Phase:
        """Have other rows in a step from some later steps on: each change is (step, its position, rows)."""
        steps = self.steps
        for step, position, rows in changes:
            steps = steps.resized(step, position, rows)
        return self._with(steps)

    def resize(self, rows: int, step: int, position: int | None = None) -> Phase | None:
        """Have so many rows in each step from a later one on; None where that needs a new phase.

        An epoch of an only source begins where one of the source does: a phase that begins with an epoch sees to it.
        """
        if position is None:
            past = self.steps_at(step - 1)  # what had no step yet is forgotten
            position = int(self.clock(None, past).step(step - past.step)[2])
        if self.epoch_size is None and self.place_of(position)[1] == 0:
            names = self.active
            if len(names) == 1 and self.sources[names[0]].after(position).left != self.size:
                return None
        return self._with(self.steps.resized(step, position, rows))

    def begun_at(self, step: int, seed: int) -> Phase:
        """The phase that begins where the steps begin that have the size of this one."""
        steps = self.steps_at(step)
        if steps.step == self.step:
            return self if self.resized is None else replace(self, resized=None)
        return next_phase(self, self.settings(seed, steps.rows), steps.step, steps.place)

    def plan(self, seed: int, windows: Mapping[str, Windows] = NO_WINDOWS) -> Plan:
        """Give the plan that names source and sample at each position of this phase.

        A plan without the windows of a packed source still says how often it is used, and where.
        """
        names = self.active
        courses = [self._course(name, seed, windows) for name in names]
        if len(names) == 1:
            return Plan(courses)
        key = derive(source_key(seed, "\0mix"), self.mixed_since)
        return Plan(courses, [self.sources[name].quota for name in names], key, self.mixed)

    def order(
        self, name: str, epoch: int, seed: int, windows: Mapping[str, Windows] = NO_WINDOWS
    ) -> tuple[OrderSpec, int]:
        """Give the order of a source in one of its epochs, and into how many rows each of its samples is cut."""
        standing = self.sources[name]
        if name in windows:
            return _packed_order(name, standing, seed, windows[name], self.row_length), 1
        split = standing.split if epoch == standing.epoch else 1
        samples = standing.begun if epoch == standing.epoch else standing.samples
        blocks = local_blocks(self.row_length * split * standing.unit)
        key = source_key(seed, name)
        return OrderSpec(standing.shuffle, samples, key, blocks, LOCAL_GROUP_BLOCKS, unit=standing.unit), split

    def _course(self, name: str, seed: int, windows: Mapping[str, Windows]) -> Course:
        standing = self.sources[name]
        begun, split = self.order(name, standing.epoch, seed, windows)
        later, _ = self.order(name, standing.epoch + 1, seed, windows)
        return Course(later, begun, split, standing.epoch, standing.offset)


def _packed_order(name: str, standing: Standing, seed: int, windows: Windows, row_length: int) -> OrderSpec:
    growing = windows.always_in_order or (windows.first_in_order and standing.samples == UNKNOWN)
    missing = standing.samples - windows.samples
    if windows.capacity != row_length or missing < 0 or (missing > 0 and not growing):
        raise OrderError(
            f"{name!r} was packed into {standing.samples} rows of {row_length} tokens then, "
            f"and into {windows.samples} of {windows.capacity} now",
            hint=f"only a loader with rows of {row_length} tokens knows what those held",
        )
    key = source_key(seed, name)
    return OrderSpec(
        standing.shuffle,
        standing.samples,
        key,
        window_bins=[bins // standing.unit for bins in windows.bins],
        window_rows=windows.rows // standing.unit,
        first_in_order=windows.first_in_order,
        window_block=windows.block,
        foremost=windows.foremost,
        unit=standing.unit,
        always_in_order=windows.always_in_order,
        gaps=windows.gaps,
    )


def first_phase(settings: PhaseSettings) -> Phase:
    """Begin a run."""
    sources = {name: share.begin() for name, share in settings.sources.items()}
    return _phase(settings, sources, step=0, epoch=0, offset=0, left=None)


def next_phase(phase: Phase, settings: PhaseSettings, step: int, position: int | None = None) -> Phase:
    """Begin a phase at `step` of the run, in which `settings` hold; `position` is where that step begins in `phase`."""
    if step == 0:
        return first_phase(settings)
    position = phase.position_of(step) if position is None else position
    plan = phase.plan(settings.seed)
    factor = _factor(phase, settings)
    before = dict(phase.sources)
    for number, name in enumerate(phase.active):
        before[name] = before[name].after(plan.used(number, position))
    sources: dict[str, Standing] = {}
    for name in [*settings.sources, *(name for name in before if name not in settings.sources)]:
        if name not in before:
            sources[name] = settings.sources[name].begin()
            continue
        standing = before[name]
        idle = Share(standing.samples * (factor or 1), standing.shuffle, quota=0, unit=standing.unit)
        share = settings.sources.get(name, idle)
        sources[name] = _continued(standing, share, factor, name, phase, settings)
    epoch, offset, left = _place(phase, position, factor)
    fresh = _phase(settings, sources, step, epoch, offset, left)
    if not _same_mixture(phase, fresh):
        if offset > 0 and phase.epoch_size is None and phase.is_unknown:  # what would have ended it may come late
            return _phase(settings, sources, step, epoch + 1, 0, None)
        return fresh
    fresh = replace(fresh, mixed_since=phase.mixed_since, mixed=phase.mixed + position)
    if phase.epoch_size != fresh.epoch_size or len(fresh.active) == 1:
        return fresh
    return replace(fresh, size=phase.size, left=phase.size if left is None else left)


def _same_mixture(phase: Phase, other: Phase) -> bool:
    """Whether the places of the mixture continue, whatever else changes."""
    mine, theirs = ([(name, p.sources[name].quota) for name in p.active] for p in (phase, other))
    return mine == theirs and phase.row_length == other.row_length


def _factor(phase: Phase, settings: PhaseSettings) -> int | None:
    """By how much rows become shorter; None where that is no whole number."""
    if not settings.splittable or phase.row_length == settings.row_length:
        return 1
    factor, rest = divmod(phase.row_length, settings.row_length)
    return factor if rest == 0 and not settings.padded else None


def _continued(
    standing: Standing, share: Share, factor: int | None, name: str, phase: Phase, settings: PhaseSettings
) -> Standing:
    """Continue a source as its new share says; a new epoch may change anything, a begun one only so much."""
    standing = replace(standing, quota=share.quota)
    if standing.offset == 0:
        fresh = {"samples": share.samples, "begun": share.samples, "split": 1, "unit": share.unit}
        return replace(standing, shuffle=share.shuffle, **fresh)
    if factor is None or (share.packed and phase.row_length != settings.row_length):
        raise OrderError(
            f"rows of {phase.row_length} tokens cannot become rows of {settings.row_length} "
            f"in the middle of an epoch of {name!r}",
            hint="change it when the epoch has ended"
            if settings.padded or share.packed
            else f"use a length that divides {phase.row_length}, or change it when the epoch has ended",
        )
    if standing.shuffle != share.shuffle:
        raise OrderError(
            f"{name!r} is in the middle of an epoch with shuffle={standing.shuffle!r}, not {share.shuffle!r}",
            hint="change the shuffle when the epoch has ended",
        )
    return standing.recut(share.samples, factor)


def _place(phase: Phase, position: int, factor: int | None) -> tuple[int, int, int | None]:
    """Epoch, offset and samples left at a position of a phase; None left: a new epoch begins."""
    epoch, offset, left = phase.place_of(position)
    if offset == 0 and epoch > phase.epoch:
        return epoch, 0, None
    return epoch, offset * (factor or 1), left * (factor or 1)


def _phase(
    settings: PhaseSettings, sources: dict[str, Standing], step: int, epoch: int, offset: int, left: int | None
) -> Phase:
    draft = Phase(
        step=step,
        epoch=epoch,
        offset=offset,
        left=1,
        size=1,
        global_rows=settings.global_rows,
        ranks=settings.ranks,
        row_length=settings.row_length,
        drop_last=settings.drop_last,
        epoch_size=settings.epoch_size,
        mixed_since=step,
        mixed=0,
        sources=sources,
    )
    size = settings.epoch_size or _natural_size(draft, settings.seed)
    if left is None and len(draft.active) == 1 and settings.epoch_size is None:
        left = sources[draft.active[0]].left
    return replace(draft, size=size, left=size if left is None else left)


def _natural_size(phase: Phase, seed: int) -> int:
    """One pass over the only source, or the samples until the first of several would begin to repeat."""
    names = phase.active
    if len(names) == 1:
        return phase.sources[names[0]].samples
    plan = phase.plan(seed)
    return min(plan.position_of(number, phase.sources[name].samples) for number, name in enumerate(names))


def settled(phases: tuple[Phase, ...], name: str, total: int, seed: int) -> tuple[Phase, ...]:
    """Put the true number of rows of a source in the place of the unknown one, in all phases of a run; or the reverse.

    Where an epoch ends with the first source that is used up, it ends there or where another source ends it.
    """
    if all(UNKNOWN not in (phase.sources[name].samples, total) for phase in phases if name in phase.sources):
        return phases
    found: list[Phase] = []
    before: Phase | None = None
    for phase in phases:
        known, standing = phase, phase.sources.get(name)
        if standing is not None and UNKNOWN in (standing.samples, total):
            begun = total if standing.begun == standing.samples else standing.begun
            known = replace(phase, sources={**phase.sources, name: replace(standing, samples=total, begun=begun)})
        if phase.epoch_size is None:
            size = _natural_size(replace(known, mixed=0), seed) if known is not phase else phase.size
            known = replace(known, size=size)
        earlier = (before, found[-1]) if before is not None else None
        found.append(replace(known, left=_first_epoch(phase, known, earlier) - phase.offset))
        before = phase
    return tuple(found)


def _first_epoch(phase: Phase, known: Phase, earlier: tuple[Phase, Phase] | None) -> int:
    """Samples of the epoch in which a phase begins, by what is known now of it, and of the phase before."""
    whole = phase.offset + phase.left
    if phase.offset > 0 and earlier is not None:  # it began in that one
        then, now = earlier
        factor = max(1, then.row_length // phase.row_length)
        return factor * (now.offset + now.left if phase.epoch == then.epoch else now.size)
    if whole == phase.size:
        return known.size
    names = phase.active
    if len(names) == 1 and phase.left == phase.sources[names[0]].left:
        return phase.offset + known.sources[names[0]].left
    return whole
