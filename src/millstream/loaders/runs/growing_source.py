"""Sources of a StoreRun whose rows are still being made: which steps are known, and the wait for more.

While rows of a source are made, an epoch has an unknown number of them. Everything is counted as if it were `UNKNOWN`;
when the last row was counted the true number takes its place, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.errors import StateError, UnknownLength
from millstream.loaders import RowSource
from millstream.loaders.growing import GrowingSource, stream_of
from millstream.order import UNKNOWN, Plan, Schedule, Standing, settled
from millstream.stages import defer_sigint
from millstream.storage import DAMAGED_STATE

if TYPE_CHECKING:
    from millstream.loaders.runs.store import StoreRun


class _Place(NamedTuple):
    """Where a source stands at a step: its number in the plan of the phase, and its rows used in the phase before."""

    plan: Plan
    number: int
    used: int
    standing: Standing


class Growing:
    """The growing sources of a run."""

    def __init__(self, run: StoreRun, sources: Iterable[GrowingSource]) -> None:
        self._run = run
        self.sources = {source.name: source for source in sources}
        self.known_step = 0
        """The first step whose rows cannot be used yet."""

    def __bool__(self) -> bool:
        return bool(self.sources)

    @property
    def in_memory(self) -> bool:
        """Whether rows that are made stay in memory."""
        return any(source.held_bytes is not None for source in self.sources.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(source.held_bytes or 0 for source in self.sources.values())

    @property
    def parts(self) -> dict[str, dict[str, int]]:
        """How many parts of streams this process made, and how many it found."""
        streams = {name: stream_of(source) for name, source in self.sources.items()}
        return {name: stream.parts for name, stream in streams.items() if stream is not None}

    def let_go(self, thing: object) -> None:
        """Have what is not used any more released by a thread of a stream, if there is one."""
        for stream in map(stream_of, self.sources.values()):
            if stream is not None:
                stream.let_go(thing)
                return

    def measure(self) -> None:
        """Work out which step is the first that cannot be filled yet."""
        run = self._run
        if any(self._is_behind(name) for name in self.sources):
            self.known_step = run.step
            return
        limits = [
            place.plan.position_of(place.number, place.used + self.sources[name].count(*_at(place)))
            for name, place in self._places(run.step).items()
        ]
        if not limits:
            self.known_step = UNKNOWN
            return
        steps = run.phase.clock(None, run.steps).number_of(min(limits))
        self.known_step = run.steps.step + steps // self._together * self._together

    def _is_behind(self, name: str) -> bool:
        """Whether Ctrl-C came before the run heard what a source has brought: it asks again."""
        return self.sources[name].member is not self._run.members[name]

    @property
    def _together(self) -> int:
        """Steps that are known together, as they share a denominator."""
        return 1 if self._run.loss is None else self._run.loss.accumulation

    def _places(self, step: int) -> dict[str, _Place]:
        """Where the growing sources stand before a step."""
        run = self._run
        phase, steps = run.schedule.steps_at(step)
        position = int(phase.clock(None, steps).step(step - steps.step)[2])
        plan = phase.plan(run.schedule.seed)
        found = {}
        for number, name in enumerate(phase.active):
            if name in self.sources:
                used = int(plan.used(number, position))
                found[name] = _Place(plan, number, used, phase.sources[name].after(used))
        return found

    def _needed(self, name: str) -> tuple[int, int, int]:
        """Epoch and offset of a source before the next step, and its rows in the steps that must be known together."""
        run, place = self._run, self._places(self._run.step)[name]
        begun = run.step - run.steps.step
        after = (begun // self._together + 1) * self._together
        stop = int(run.phase.clock(None, run.steps).step(after)[2])
        return (*_at(place), max(1, int(place.plan.used(place.number, stop)) - place.used))

    def take_more(self, names: Iterable[str] | None = None) -> None:
        """Wait until the next step can be filled, or until more is known, and count with that."""
        run = self._run
        run.changed()
        active = self._places(run.step)
        for name in list(self.sources if names is None else names):
            needed = self._needed(name) if name in active else (0, 0, 1)
            has_enough = self.sources[name].count(*needed[:2]) >= needed[2]
            if names is None and has_enough and not self._is_behind(name):
                continue
            member, complete = self.sources[name].more(*needed)
            self._replace(name, member, complete=complete)
            if names is None:
                break  # what it brought may change what the others need
        else:
            self.measure()
        run.tell_losses()

    def _replace(self, name: str, member: RowSource, *, complete: bool) -> None:
        run = self._run
        with defer_sigint(), run.locks.moving:
            if complete:
                del self.sources[name]
            run.members[name] = member
            run.set_position(self.counted(run.schedule), run.step)

    def counted(self, schedule: Schedule) -> Schedule:
        """A schedule that counts with what is known by now."""
        run, phases = self._run, schedule.phases
        for name, member in run.members.items():
            if member.share.samples != UNKNOWN:
                phases = settled(phases, name, member.share.samples, schedule.seed)
        return Schedule(schedule.seed, phases, run.windows)

    def finish(self) -> None:
        """Wait until all rows are made of what is made once."""
        while ending := [name for name, source in self.sources.items() if source.ends]:
            self.take_more(ending[:1])

    def look(self) -> None:
        """Notice what was finished meanwhile."""
        if any(source.ends for source in self.sources.values()):
            with self._run.locks.asking:
                for name in [name for name, source in self.sources.items() if source.is_complete]:
                    self.take_more([name])

    def find_again(self) -> bool:
        """Look anew for sources whose files are not where they were: finished, dropped, or made anew; False: none."""
        lost = [name for name, source in self.sources.items() if source.lost(self._run.members[name].store)]
        if lost:
            self.take_more(lost)
        return bool(lost)

    # What is not known

    def check_known(self, step: int, what: str) -> None:
        """Refuse to look at a step whose rows are not known yet."""
        self.look()
        phase, steps = self._run.schedule.steps_at(step)
        _, _, start, rows, _, _ = phase.clock(None, steps).step(step - steps.step)
        for name, place in self._places(step).items():
            count = int(place.plan.used(place.number, start + rows)) - place.used
            if count and not _knows(self.sources[name], place.standing, place.standing.after(count - 1)):
                raise self._unknown(name, what)

    def check_counted(self, what: str) -> None:
        """Refuse to say what depends on the number of all rows, as long as it is not known."""
        self.look()
        for name in self.sources:
            if self._run.members[name].share.samples == UNKNOWN:
                raise self._unknown(name, what)

    def _unknown(self, name: str, what: str) -> UnknownLength:
        source = self.sources[name]
        return UnknownLength(f"{what} is not known yet: {source.made_so_far}", hint=source.way_to_know)

    # States

    def saved(self, schedule: Schedule, step: int) -> tuple[Schedule, dict[str, Any]]:
        """A schedule as a state keeps it, and what the state keeps of streams beside it.

        A state says how many rows a stream has when its first epoch has ended: some ranks know it sooner than others,
        and their states are equal.
        """
        kept, phases, reached = {}, schedule.phases, schedule.place(step)
        for name, place in self._places(step).items():
            epoch, offset = _at(place)
            if epoch == 0 and not self.sources[name].ends:
                unknown = settled(phases, name, UNKNOWN, schedule.seed)
                place_then = Schedule(schedule.seed, unknown, schedule.windows).place(step)
                if (place_then.epoch, place_then.offset) == (reached.epoch, reached.offset):
                    phases = unknown
                else:
                    epoch = 1  # an epoch of the run has ended that was as long as the stream
            saved = self.sources[name].saved(epoch, offset)
            if saved is not None:
                kept[name] = saved
        return Schedule(schedule.seed, phases, schedule.windows), kept

    @contextmanager
    def resuming(self, state: Mapping[str, Any]) -> Iterator[None]:
        """Know what a state knows, unless it is refused after all.

        What is made once is waited for, if the state knows its end.
        """
        saved = state.get("streams", {})
        if not isinstance(saved, Mapping):
            raise StateError("the state does not say where its streams stand", hint=DAMAGED_STATE)
        if state.get("unknown_length") is not True:
            self.finish()
        before = dict(self._run.members)
        with ExitStack() as stack:
            try:
                for name, source in self.sources.items():
                    stream = stream_of(source)
                    if stream is not None and name in saved:
                        self._run.members[name] = stack.enter_context(stream.resuming(saved[name]))
                yield
            except BaseException:
                self._run.members.update(before)
                raise

    def close(self) -> None:
        """Make no more rows."""
        for source in list(self.sources.values()):
            source.close()


def _knows(source: GrowingSource, first: Standing, last: Standing) -> bool:
    """Whether a source knows which rows lie from one place of its course to another."""
    if first.epoch == last.epoch:
        return source.knows(first.epoch, first.offset, last.offset)
    whole = last.epoch - first.epoch > 1
    between = not whole or source.knows(first.epoch + 1, 0, None)
    return between and source.knows(first.epoch, first.offset, None) and source.knows(last.epoch, 0, last.offset)


def _at(place: _Place) -> tuple[int, int]:
    return place.standing.epoch, place.standing.offset
