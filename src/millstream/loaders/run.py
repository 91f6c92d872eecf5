"""A run: what a loader goes over, and where it stands. No threads: moving it costs nothing, whatever the distance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from millstream._core import Clock, Feed, order_version
from millstream.batches.engine import feed_source
from millstream.errors import LoaderError
from millstream.loaders import state as states
from millstream.loaders.loss import LossMean
from millstream.loaders.member import Member, RowShape
from millstream.loaders.phases import PhaseFiles, dump_run, load_run
from millstream.loaders.settings import LoaderSettings
from millstream.order import Phase, Recipe, Schedule
from millstream.order.phase import UNKNOWN, settled, steps_in
from millstream.order.windows import Windows

MOST_BATCH_TOKENS = 2**31


class Run:
    """Stores, the rows that are cut from them, and a step of their schedule."""

    schedule: Schedule
    step: int
    phase: Phase
    clock: Clock
    samples: int
    """Samples of a step of this rank."""

    def __init__(
        self,
        kind: str,
        members: Mapping[str, Member],
        shape: RowShape,
        settings: LoaderSettings,
        epoch_size: int | None,
        loss: LossMean | None = None,
        *,
        one_source: bool = False,
    ) -> None:
        self.kind, self.members, self.shape, self.settings = kind, dict(members), shape, settings
        self.loss, self._one_source = loss, one_source
        self._epoch_size = epoch_size
        self._files = PhaseFiles(settings.cache_dir)
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        self.stand(Schedule.start(self._recipe(self.settings.batch_size), self._windows), 0)
        self._earlier_data: dict[str, Any] = {}  # of sources that were taken out, and may return
        self._missing: dict[str, Any] = {}

    def stand(self, schedule: Schedule, step: int) -> None:
        """Stand at a step of a schedule, or change nothing."""
        phase = schedule.phase_at(step)
        self.clock = phase.clock(self.settings.rank)
        self.schedule, self.step, self.phase = schedule, step, phase
        self.samples = phase.global_rows // phase.ranks // self.shape.unit

    def grow(self, name: str, member: Member) -> None:
        """Go on with a source of which more is known, perhaps all."""
        self.members[name] = member
        phases = self.schedule.phases
        if member.share.samples != UNKNOWN:
            phases = tuple(settled(phase, member.share.samples) for phase in phases)
        self.stand(Schedule(self.schedule.seed, phases, self._windows), self.step)

    def follow(self, batch_size: int, step: int, schedule: Schedule | None = None) -> None:
        """Go on at `step` with batches of this size; a new phase begins if that changes anything."""
        self.stand((schedule or self.schedule).change(self._recipe(batch_size), step), step)

    def _recipe(self, batch_size: int) -> Recipe:
        settings = self.settings
        rows = batch_size * self.shape.unit
        if rows * self.shape.length >= MOST_BATCH_TOKENS:
            raise LoaderError("a batch has at most 2**31 tokens", hint="use a smaller batch_size or chunk_size")
        return Recipe(
            seed=settings.seed,
            row_length=self.shape.length,
            global_rows=rows * settings.world_size,
            sources={name: member.share for name, member in self.members.items()},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            epoch_size=self._epoch_size,
            splittable=not any(member.shape.whole_documents for member in self.members.values()),
            padded=self.shape.tail == "pad",
        )

    def feed(self, id_bytes: int) -> tuple[Feed, Clock, int]:
        """Give what the engine needs to fill the batches of the present phase."""
        shape = self.shape
        members = [self.members[name] for name in self.phase.active]
        sources = [
            feed_source(member.store.layout, member.id_limit, member.shape.documents, member.packing)
            for member in members
        ]
        plan = self.phase.plan(self.schedule.seed, self._windows)
        mean_of = "targets" if self.loss is None else self.loss.native
        labels = shape.filled_labels(self.settings.labels)
        feed = Feed(sources, plan, shape.length, labels, shape.pad_id, id_bytes, mean_of, shape.pad_multiple)
        return feed, self.clock, self.samples * shape.unit

    @property
    def _windows(self) -> dict[str, Windows]:
        return {name: member.windows for name, member in self.members.items() if member.windows is not None}

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.phase.epoch + int(self.clock.step(self.step - self.phase.step)[0])

    @property
    def own_rows(self) -> int:
        """Rows of a step on all ranks, at the loader's own batch size."""
        return self.settings.batch_size * self.shape.unit * self.settings.world_size

    def steps_in_epoch(self) -> int:
        """Steps of an epoch, at the loader's own batch size."""
        return steps_in(self.phase.size, self.own_rows, drop_last=self.settings.drop_last)

    def state(self) -> dict[str, Any]:
        """Describe where the run stands."""
        place = self.schedule.place(self.step)
        data = {name: member.facts for name, member in self.members.items()}
        unknown = any(member.share.samples == UNKNOWN for member in self.members.values())
        header = {
            **states.header(self.kind, self.step, self.settings.seed, self._row_facts),
            "epoch": place.epoch,
            "offset": place.offset,
            **({"unknown_length": True} if unknown else {}),
        }
        known = {**self._earlier_data, **data}
        return dump_run(self.schedule, known, self._files, self._missing, header=header)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        read = load_run(state, self._files, self.settings.seed)
        phases = read.phases
        states.check_data(read.data, phases, self.members)
        if state.get("unknown_length") is True:
            for member in self.members.values():
                if member.share.samples != UNKNOWN:
                    phases = tuple(settled(phase, member.share.samples) for phase in phases)
        for name, member in self.members.items():
            states.check_samples(phases, name, member.samples_of)
            states.check_unit(phases, name, member.share.unit)
        if self._one_source:
            states.check_source(phases, next(iter(self.members)))
        schedule = Schedule(self.settings.seed, phases, self._windows)
        states.check_place(state, schedule.place(step))
        self.follow(self.settings.batch_size, step, schedule)
        self._earlier_data, self._missing = read.data, read.missing
        self._files.loaded(read.files, step)

    def commit(self, state: Mapping[str, Any]) -> None:
        """A state is safely saved: let go of the files that only states before it name."""
        self.check(state)
        self._files.release(state)

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return states.check_header(state, self.kind, self.settings.seed, self._row_facts)

    @property
    def _row_facts(self) -> dict[str, Any]:
        shape = self.shape
        facts: dict[str, Any] = {"documents": shape.documents, "tail": shape.tail}
        grouped = [name for name, member in self.members.items() if member.shape.by_length]
        facts["group_by_length"] = grouped or None
        facts["max_tokens"] = shape.max_tokens or None
        if shape.max_tokens:
            facts["pad_to_multiple_of"] = shape.pad_multiple
        if shape.answers is not None:
            facts["answers"] = shape.answers
        others = {name: member.shape.documents for name, member in self.members.items()}
        return facts if set(others.values()) == {self.shape.documents} else {**facts, "documents": others}

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        settings, shape = self.settings, self.shape
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last")
        past = repr(self.schedule.phases[:-1]).encode()
        return {
            "loader": self.kind,
            "order_version": order_version,
            "sources": ", ".join(self.members),
            **{f"data of {name!r}": member.facts["fingerprint"] for name, member in self.members.items()},
            **{f"shuffle of {name!r}": member.share.shuffle for name, member in self.members.items()},
            **{f"places of {name!r}": member.share.quota for name, member in self.members.items()},
            **{key: getattr(settings, key) for key in shared},
            "chunk_size": shape.length,
            "documents": self._row_facts["documents"],
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

    def epoch_losses(self) -> dict[str, int]:
        """Count what every epoch leaves out."""
        found: dict[str, int] = {}
        for name, member in self.members.items():
            if not member.shape.whole_documents:
                found[f"tail_tokens:{name}"] = member.shape.tail_tokens(member.store, member.share.samples)
        if self.settings.drop_last and self.phase.size < UNKNOWN // 2:
            found["dropped_rows"] = self.phase.size % self.own_rows
        return found
