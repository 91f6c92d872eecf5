"""RolloutSetRun: steps over a fixed set of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from millstream.errors import FingerprintError, LoaderError
from millstream.loaders import (
    PHASES_KIND,
    RowOrigin,
    Span,
    check_place,
    check_samples,
    check_source,
    dump_run,
    load_run,
)
from millstream.loaders.rollouts import Dealer, DealtStep, RolloutSet, RolloutTask, StepSamples
from millstream.loaders.runs.run import Locks
from millstream.order import PhaseSettings, Schedule, Share, order_version, steps_in
from millstream.stats import counted
from millstream.storage import StateFiles, check_state_header, state_header


class RolloutSetRun:
    """A step of a run over a fixed set. A sample is a rollout or, where groups are kept together, a group."""

    kind = "rollout"
    steps_back = True
    is_known = True
    schedule: Schedule
    step: int

    def __init__(self, rollouts: RolloutSet, task: RolloutTask, dealer: Dealer) -> None:
        self.rollouts, self.name, self.settings = rollouts, task.name, task.settings
        self.locks, self._task, self._dealer = Locks(), task, dealer
        self._rows = dealer.rows(rollouts.block)
        self._samples = len(rollouts.group_members) if task.steps.keep_groups else len(rollouts.block)
        self._files = StateFiles(task.settings.cache_dir, PHASES_KIND)
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        self.schedule, self.step = Schedule.start(self._recipe(self.settings.batch_size)), 0
        self.schedule.phases[-1].clock()  # refuses a run without a step
        self._missing: dict[str, Any] = {}

    def _recipe(self, batch_size: int) -> PhaseSettings:
        settings = self.settings
        return PhaseSettings(
            seed=settings.seed,
            row_length=1,
            global_rows=batch_size * settings.world_size,
            sources={self.name: Share(self._samples, settings.shuffle)},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            splittable=False,
        )

    def follow(self, batch_size: int, step: int, schedule: Schedule | None = None) -> None:
        """Continue at `step` with batches of this size; a new phase begins if that changes anything."""
        changed = (schedule or self.schedule).change(self._recipe(batch_size), step)
        changed.place(step)
        self.schedule, self.step = changed, step

    def seek(self, step: int) -> None:
        """Stand at a step, or change nothing."""
        self.follow(self.settings.batch_size, step)

    # Steps

    @property
    def place(self) -> tuple[Schedule, int]:
        """Where the run stands, for a way back."""
        return self.schedule, self.step

    @place.setter
    def place(self, place: tuple[Schedule, int]) -> None:
        self.schedule, self.step = place

    def coming(self, batch_size: int) -> DealtStep:
        """The next step, with so many rollouts (or groups) for each rank."""
        _, steps = self.schedule.steps_at(self.step)
        if batch_size != steps.rows // steps.ranks:
            with self.locks.moving:
                self.follow(batch_size, self.step)
        return self._dealt(self.schedule, self.step, batch_size)

    def later(self, number: int, batch_size: int) -> Callable[[], DealtStep] | None:
        """What makes the step that comes so many after the next one, in any thread; None: steps have another size."""
        _, steps = self.schedule.steps_at(self.step)
        if batch_size != steps.rows // steps.ranks:
            return None
        return partial(self._dealt, self.schedule, self.step + number, batch_size)

    def _dealt(self, schedule: Schedule, step: int, batch_size: int = 0) -> DealtStep:
        rollouts, found = self.rollouts, self._samples_of(schedule, step)
        return self._dealer.dealt(self._rows, found, rollouts, {"statistics": rollouts.rated.facts}, batch_size)

    def _samples_of(self, schedule: Schedule, step: int) -> StepSamples:
        """The samples of a step: rank r takes the r-th stretch of them, unless they are dealt out otherwise."""
        (_, steps), place = schedule.steps_at(step), schedule.place(step)
        _, samples = schedule.rows(step)
        size = steps.rows // steps.ranks
        counts = [min(size, max(0, place.rows - rank * size)) for rank in range(steps.ranks)]
        rank = self.settings.rank if steps.ranks == self.settings.world_size else None
        return StepSamples(step, place.epoch, samples.astype(np.int64), counts, rank)

    def advance(self) -> None:
        """The next step was delivered."""
        self.step += 1

    # Epochs

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.schedule.place(self.step).epoch

    def wait_until_known(self) -> None:
        """Everything is known."""

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch."""
        return self.epoch == epoch

    def check_epochs(self) -> None:
        """An epoch of a set always ends."""

    def end_epoch(self) -> None:
        """The schedule ends epochs."""

    @property
    def _own_rows(self) -> int:
        """Samples of a step on all ranks, at the loader's own batch size."""
        return self.settings.batch_size * self.settings.world_size

    def steps_in_epoch(self) -> int:
        """Steps of an epoch, at the loader's own batch size."""
        return steps_in(self._samples, self._own_rows, drop_last=self.settings.drop_last)

    # State

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands before a step."""
        schedule = self.schedule if step == self.step else self.schedule.until(step)
        place = schedule.place(step)
        begun = {
            **state_header(self.kind, step, self.settings.seed, self._task.steps.facts, order_version=order_version),
            "epoch": place.epoch,
            "offset": place.offset,
        }
        return dump_run(schedule, {self.name: self._facts}, self._files, self._missing, header=begun)

    @property
    def _facts(self) -> dict[str, Any]:
        return {"fingerprint": self.rollouts.fingerprint, "samples": self._samples}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self._check(state)
        read = load_run(state, self._files, self.settings.seed)
        phases, data = read.phases, read.data
        check_source(phases, self.name)
        if data.get(self.name) != self._facts:
            raise FingerprintError(
                f"the rollouts of {self.name!r} are not those that the state was saved for: "
                f"{data.get(self.name)} then, {self._facts} now",
                hint="give the rollouts of that time, or start a new run on these",
            )
        check_samples(phases, self.name, lambda _, split: self._samples if split == 1 else None)
        schedule = Schedule(self.settings.seed, phases)
        check_place(state, schedule.place(step))
        self.follow(self.settings.batch_size, step, schedule)
        self._missing = read.missing
        self._files.loaded(read.files, step)

    def commit(self, state: Mapping[str, Any]) -> None:
        """A state is safely saved: release the files that only states before it name."""
        self._check(state)
        self._files.release(state)

    def _check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return check_state_header(
            state, self.kind, self.settings.seed, self._task.steps.facts, order_version=order_version
        )

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last", "shuffle")
        return {
            "loader": self.kind,
            "order_version": order_version,
            f"data of {self.name!r}": self.rollouts.fingerprint,
            **{key: getattr(self.settings, key) for key in shared},
            **self._task.steps.facts,
            "step": self.step,
        }

    # Explaining

    def rows(self, step: int) -> list[tuple[RolloutSetRun, int]]:
        """The rollout of each row of this rank's batch, by its number in the set."""
        found = self._dealt(self.schedule, step)
        return [(self, number) for number in found.rollouts.places[found.own, 1].tolist()]

    def origins(self, number: int) -> list[RowOrigin]:
        """Name the origin of a rollout; a `Span`'s document is its number in the set."""
        rollouts, tokenizer = self.rollouts, self._task.tokenizer
        block = rollouts.block
        name = block["rollout_id"][number]
        span = Span(self.name, number, 0, int(block.lengths[number]), rollouts.origin(number), id=name)
        ids = block.of(number, "token_ids").tolist()
        return [RowOrigin(0, self.name, number, (span,), None if tokenizer is None else tokenizer.decode(ids))]

    def steps_of(self, document: int, source: str | None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold a rollout, given by its number."""
        if source not in (None, self.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.name!r}")
        self.rollouts.check_number(document)
        sample = int(self.rollouts.groups[document]) if self._task.steps.keep_groups else document
        return self.schedule.steps_of(self.name, None, range(sample, sample + 1), self.epoch)

    @property
    def losses(self) -> dict[str, int]:
        """What is left out, and why: records by reason, rollouts without a reward, and rows that every epoch drops."""
        found = self.rollouts.losses.counts
        return found | ({"dropped_rows": self._samples % self._own_rows} if self.settings.drop_last else {})

    @property
    def held_bytes(self) -> int:
        """Bytes of all rollouts."""
        return self.rollouts.block.nbytes

    @property
    def ready(self) -> int:
        """All rollouts are here."""
        return 0

    def prefetch(self, batches: int) -> None:
        """All rollouts are here."""

    def close(self) -> None:
        """There is nothing to release."""

    def __repr__(self) -> str:
        return f"{counted(len(self.rollouts.block), 'rollout')}, step {self.step}"
