"""StoreRun: steps over stores of tokens, which may still be made. Moving it costs nothing, whatever the distance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.batches import Feed, LossMean, feed_source
from millstream.errors import LoaderError
from millstream.loaders import (
    PHASES_KIND,
    LoaderSettings,
    RowShape,
    RowSource,
    Source,
    StoreSource,
    StreamRows,
    check_data,
    check_place,
    check_samples,
    check_source,
    check_stream_order,
    check_unit,
    dump_run,
    load_run,
    row_facts,
    steps_of,
    store_losses,
    warn_of_losses,
)
from millstream.loaders.growing import GrowingSource, stream_of
from millstream.loaders.runs.growing_source import Growing
from millstream.loaders.runs.run import Locks
from millstream.order import UNKNOWN, Clock, Phase, PhaseSettings, Schedule, StepPhase, Windows, order_version, steps_in
from millstream.storage import StateFiles, check_state_header, state_header

Change = tuple[int, int, int, Any]
"""A step, its position in the phase, the rows of a step from there on, and the change before."""
Mark = tuple[Schedule, Change | None]


class StoreRun:
    """Stores, the rows that are cut from them, and a step of their schedule.

    Args:
        kind: Names the loader in a state.
        members: The stores by name.
        shape: What a row is.
        settings: Of the loader.
        epoch_size: Samples of an epoch, if it is not one pass.
        loss: What the loss is a mean of.
        one_source: Whether the run keeps its only source; else sources may come and go between states.
        growing: Sources whose rows are still being made.
    """

    steps_back = True
    step: int
    clock: Clock
    """Of the steps that have the size of the next one."""
    first_step: int
    """The first of them."""
    begun: tuple[int, int]
    """The epoch in which they begin, and the samples of it before."""
    rank_rows: int
    """Rows of a step of this rank."""
    samples: int
    """Samples of a step of this rank."""

    def __init__(
        self,
        kind: str,
        members: Mapping[str, RowSource],
        shape: RowShape,
        settings: LoaderSettings,
        epoch_size: int | None = None,
        loss: LossMean | None = None,
        *,
        one_source: bool = False,
        growing: Iterable[GrowingSource] = (),
    ) -> None:
        self.kind, self.members, self.shape, self.settings = kind, dict(members), shape, settings
        self.loss, self._one_source = loss, one_source
        self.locks, self._epoch_size = Locks(), epoch_size
        self._files = StateFiles(settings.cache_dir, PHASES_KIND)
        self.growing = Growing(self, growing)
        self._changes: Change | None = None
        """Of the size of a step, that the schedule does not hold yet."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a source has grown: what was made ahead does not know it."""
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        self.set_position(Schedule.start(self._recipe(self.settings.batch_size), self.windows), 0)
        self._earlier_data: dict[str, Any] = {}  # of sources that were taken out, and may return
        self._earlier_streams: dict[str, Any] = {}
        self._missing: dict[str, Any] = {}

    def set_position(self, schedule: Schedule, step: int) -> None:
        """Stand at a step of a schedule, or change nothing."""
        phase, steps = schedule.steps_at(step)
        epoch, offset, left = phase.place_of(steps.place)
        self.clock = phase.clock(self.settings.rank, steps, left)
        self._schedule, self._changes, self._phase, self._steps = schedule, None, phase, steps
        self.step, self.first_step = step, steps.step
        self.begun = epoch, offset
        self.rank_rows = steps.rows // steps.ranks
        self.samples = self.rank_rows // self.shape.unit
        if self.growing.sources:
            self.growing.measure()

    @property
    def schedule(self) -> Schedule:
        """All phases of the run."""
        if self._changes is not None:
            with self.locks.moving:
                self._apply_changes()
        return self._schedule

    @property
    def phase(self) -> Phase:
        """The phase of the next step."""
        return self._phase if self._changes is None else self.schedule.steps_at(self.step)[0]

    @property
    def steps(self) -> StepPhase[int]:
        """Those of the phase that have the size of the next one."""
        return self._steps if self._changes is None else self.schedule.steps_at(self.step)[1]

    def _apply_changes(self) -> None:
        """Put changes of the size of a step into the schedule."""
        if self._changes is not None:  # else another thread has
            schedule = self._schedule.with_changes(_in_order(self._changes))
            self._phase, self._steps = schedule.steps_at(self.step)
            self._schedule, self._changes = schedule, None

    @property
    def mark(self) -> Mark:
        """Where `return_to` finds the schedule as it is now."""
        return self._schedule, self._changes

    def return_to(self, mark: Mark, step: int) -> bool:
        """Stand where the run stood; gives whether its schedule was another one."""
        changed = mark[0] is not self._schedule or mark[1] is not self._changes
        schedule = mark[0].with_changes(_in_order(mark[1])) if mark[1] is not None else mark[0]
        self.set_position(self.growing.counted(schedule) if self.growing else schedule, step)
        return changed

    def resize(self, batch_size: int) -> bool:
        """Take batches of another size from here on; gives whether the phase is still the same.

        This runs for every batch of another size: the schedule learns of it when it is asked for.
        """
        if self.shape.max_tokens:
            raise LoaderError(
                f"{batch_size} rows were asked for, but batches have as many as fit {self.shape.max_tokens} tokens",
                hint="call next(), or make the loader with batch_size= in the place of max_tokens=",
            )
        rows, step, phase, settings = self.shape.batch_rows(batch_size), self.step, self._phase, self.settings
        total = rows * settings.world_size
        if step == self.first_step or self.growing.sources or (phase.drop_last and phase.size < total):
            return self._resize(total)
        clock, epochs, offset, position = self.clock.resized(step - self.first_step, total, settings.rank * rows, rows)
        epoch, before = self.begun
        if epochs == 0:
            offset += before
        if offset == 0 and phase.epoch_size is None:
            return self._resize(total)
        self._changes = step, position, total, self._changes
        self.clock, self.first_step, self.begun = clock, step, (epoch + epochs, offset)
        self.rank_rows, self.samples = rows, batch_size
        return True

    def _resize(self, rows: int) -> bool:
        """The same where a phase or an epoch begins, or a source grows."""
        sources = self.phase.sources
        self.set_position(self.schedule.resize(rows, self.step), self.step)
        return self.phase.sources is sources

    def seek(self, step: int) -> None:
        """Stand at a step; raises UnknownLength for one whose rows are still being made."""
        if self.growing and step > 0 and step != self.step:
            self.growing.check_known(step - 1, f"where step {step} lies")  # it begins where that one ends
        self.follow(self.settings.batch_size, step)

    def follow(self, batch_size: int, step: int, schedule: Schedule | None = None) -> None:
        """Continue at `step` with batches of this size; a new phase begins if that changes anything else."""
        self.set_position((schedule or self.schedule).change(self._recipe(batch_size), step), step)

    def _recipe(self, batch_size: int) -> PhaseSettings:
        settings = self.settings
        return PhaseSettings(
            seed=settings.seed,
            row_length=self.shape.length,
            global_rows=self.shape.batch_rows(batch_size) * settings.world_size,
            sources={name: member.share for name, member in self.members.items()},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            epoch_size=self._epoch_size,
            splittable=not any(member.shape.whole_documents for member in self.members.values()),
            padded=self.shape.tail == "pad",
        )

    def feed(self, id_bytes: int) -> Feed:
        """Give what the engine needs to fill the batches of the present phase."""
        shape = self.shape
        sources = [
            feed_source(member.store.layout, member.id_limit, member.shape.documents, member.packing)
            for member in map(self.members.__getitem__, self.phase.active)
        ]
        plan = self.phase.plan(self.schedule.seed, self.windows)
        mean_of = "targets" if self.loss is None else self.loss.native
        labels = shape.filled_labels(self.settings.labels)
        return Feed(sources, plan, shape.length, labels, shape.pad_id, id_bytes, mean_of, shape.pad_multiple)

    @property
    def windows(self) -> dict[str, Windows]:
        """Of the sources whose rows come in windows."""
        return {name: member.windows for name, member in self.members.items() if member.windows is not None}

    # Sources that grow

    @property
    def is_known(self) -> bool:
        """Whether the next step is known, or its rows are still to be made."""
        return not self.growing or self.step < self.growing.known_step

    def wait_until_known(self) -> None:
        """Wait until the next step is known."""
        while not self.is_known:
            self.growing.take_more()

    def finish(self) -> None:
        """Wait until all rows are made."""
        with self.locks.asking:
            self.growing.finish()

    def tell_losses(self) -> None:
        """Say, once everything is made, if rows were left out; one rank says it for all."""
        if self._one_source and not self.growing and self.settings.rank == 0:
            warn_of_losses(next(iter(self.members.values())).store)

    # Epochs

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.begun[0] + int(self.clock.step(self.step - self.first_step)[0])

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch."""
        return self.epoch == epoch

    def check_epochs(self) -> None:
        """An epoch of stores always ends."""

    def end_epoch(self) -> None:
        """The schedule ends epochs."""

    @property
    def own_rows(self) -> int:
        """Rows of a step on all ranks, at the loader's own batch size."""
        return self.settings.batch_size * self.shape.unit * self.settings.world_size

    def steps_in_epoch(self) -> int:
        """Steps of an epoch, at the loader's own batch size."""
        if self.phase.epoch_size is None and self.epoch == self.phase.epoch:  # an epoch that has ended is counted
            self.growing.check_counted("how many batches an epoch has")
        return steps_in(self.phase.size, self.own_rows, drop_last=self.settings.drop_last)

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands before a step."""
        schedule = self.schedule if step == self.step else self.schedule.until(step)
        place = schedule.place(step)
        streams = {name: saved for name, saved in self._earlier_streams.items() if name not in self.members}
        if self.growing:
            schedule, present = self.growing.saved(schedule, step)
            streams |= present
        unknown = any(each.samples == UNKNOWN for each in schedule.phases[-1].sources.values())
        data = {name: member.facts for name, member in self.members.items()}
        begun = {
            **state_header(
                self.kind, step, self.settings.seed, row_facts(self.shape, self.members), order_version=order_version
            ),
            "epoch": place.epoch,
            "offset": place.offset,
            **({"unknown_length": True} if unknown else {}),
            **({"streams": streams} if streams else {}),
        }
        known = {**self._earlier_data, **data}
        return dump_run(schedule, known, self._files, self._missing, header=begun)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing. A state that knows the end of its epoch waits for it."""
        step = self.check(state)
        read = load_run(state, self._files, self.settings.seed)
        check_data(read.data, read.phases, self.members)
        with self.locks.asking, self.growing.resuming(state):
            phases = self.growing.counted(Schedule(self.settings.seed, read.phases)).phases
            for name, member in self.members.items():
                check_samples(phases, name, member.samples_of)
                check_unit(phases, name, member.share.unit)
            if self._one_source:
                check_source(phases, next(iter(self.members)))
            schedule = Schedule(self.settings.seed, phases, self.windows)
            check_place(state, schedule.place(step))
            self.follow(self.settings.batch_size, step, schedule)
        self._earlier_data, self._missing = read.data, read.missing
        self._earlier_streams = dict(state.get("streams", {}))
        self._files.loaded(read.files, step)

    def commit(self, state: Mapping[str, Any]) -> None:
        """A state is safely saved: release the files that only earlier states name."""
        self.check(state)
        self._files.release(state)

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        check_stream_order(state)
        return check_state_header(
            state, self.kind, self.settings.seed, row_facts(self.shape, self.members), order_version=order_version
        )

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        settings, shape = self.settings, self.shape
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last")
        past = repr(self.schedule.past).encode()
        return {
            "loader": self.kind,
            "order_version": order_version,
            "sources": ", ".join(self.members),
            **{f"data of {name!r}": member.facts["fingerprint"] for name, member in self.members.items()},
            **{f"shuffle of {name!r}": member.share.shuffle for name, member in self.members.items()},
            **{f"places of {name!r}": member.share.quota for name, member in self.members.items()},
            **{key: getattr(settings, key) for key in shared},
            "chunk_size": shape.length,
            "documents": row_facts(shape, self.members)["documents"],
            "tail": shape.tail,
            "pad_id": shape.pad_id,
            "pad_to_multiple_of": shape.pad_multiple,
            "group_by_length": shape.by_length,
            "max_tokens": shape.max_tokens,
            "epoch_size": self._epoch_size,
            "loss": None if self.loss is None else [self.loss.mean_of, self.loss.accumulation],
            "step": self.step,
            "earlier phases": hashlib.blake2b(past, digest_size=8).hexdigest(),
        }

    # Explaining

    def rows(self, step: int) -> list[tuple[Source, int]]:
        """Source and sample of each row of this rank at a step; of all ranks where their number was another one."""
        if self.growing:
            self.growing.check_known(step, f"what step {step} holds")
        phase, _ = self.schedule.steps_at(step)
        rank = self.settings.rank if phase.ranks == self.settings.world_size else None
        names, samples = self.schedule.rows(step, rank)
        sources = {name: self._source(name, phase.row_length) for name in set(names)}
        return [(sources[name], sample) for name, sample in zip(names, samples.tolist(), strict=True)]

    def _source(self, name: str, length: int) -> Source:
        stream = stream_of(self.growing.sources.get(name))
        return StoreSource(self, name, length) if stream is None else StreamRows(self, stream, length)

    def finds_files_again(self) -> bool:
        """Whether files that are not where they were belong to a growing source, which is then looked for again."""
        with self.locks.asking:
            return self.growing.find_again()

    def steps_of(self, document: int, source: str | None) -> list[int]:
        """Name the steps of the present epoch that use a document, on any rank."""
        return steps_of(document, source, self)

    @property
    def losses(self) -> dict[str, int]:
        """What every epoch leaves out, and what the making of the stores left out and changed."""
        cut = {name: member for name, member in self.members.items() if not member.shape.whole_documents}
        found = {f"tail_tokens:{name}": member.tail_tokens for name, member in cut.items()}
        if self.settings.drop_last and self.phase.size < UNKNOWN // 2:
            found["dropped_rows"] = self.phase.size % self.own_rows
        for name, member in self.members.items():
            found |= store_losses(member.store, name).counts
            stream = stream_of(self.growing.sources.get(name))
            found |= {} if stream is None else stream.losses
        return found

    def close(self) -> None:
        """Make no more rows."""
        self.growing.close()


def _in_order(change: Change | None) -> list[tuple[int, int, int]]:
    """Changes from the first on."""
    found = []
    while change is not None:
        step, position, rows, change = change
        found.append((step, position, rows))
    return found[::-1]
