"""Where a run over a fixed set of rollouts stands, and which of them each rank has in any step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream._core import order_version
from millstream.errors import FingerprintError
from millstream.loaders import state as states
from millstream.loaders.phases import PhaseFiles, dump_run, load_run
from millstream.loaders.settings import LoaderSettings
from millstream.order import Recipe, Schedule, Share
from millstream.order.phase import steps_in

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepSamples:
    """Which samples a step has, on all ranks, and how many of them each rank takes."""

    step: int
    epoch: int
    samples: Numbers
    counts: list[int]
    rank: int | None
    """The rank of who asks; None where the number of ranks was another one then."""


class RolloutRun:
    """A step of a run. A sample is a rollout or, where groups are kept together, a group."""

    kind = "rollout"
    schedule: Schedule
    step: int

    def __init__(
        self,
        name: str,
        samples: int,
        fingerprint: str,
        settings: LoaderSettings,
        row_facts: Mapping[str, Any],
    ) -> None:
        self.name, self.settings = name, settings
        self._samples, self._fingerprint, self._row_facts = samples, fingerprint, dict(row_facts)
        self._files = PhaseFiles(settings.cache_dir)
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        self.schedule, self.step = Schedule.start(self._recipe(self.settings.batch_size)), 0
        self.schedule.phases[-1].clock()  # refuses a run without a step
        self._missing: dict[str, Any] = {}

    def _recipe(self, batch_size: int) -> Recipe:
        settings = self.settings
        return Recipe(
            seed=settings.seed,
            row_length=1,
            global_rows=batch_size * settings.world_size,
            sources={self.name: Share(self._samples, settings.shuffle)},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            splittable=False,
        )

    def follow(self, batch_size: int, step: int, schedule: Schedule | None = None) -> None:
        """Go on at `step` with batches of this size; a new phase begins if that changes anything."""
        changed = (schedule or self.schedule).change(self._recipe(batch_size), step)
        changed.place(step)
        self.schedule, self.step = changed, step

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.schedule.place(self.step).epoch

    @property
    def own_rows(self) -> int:
        """Samples of a step on all ranks, at the loader's own batch size."""
        return self.settings.batch_size * self.settings.world_size

    @property
    def steps_in_epoch(self) -> int:
        """Steps of an epoch, at the loader's own batch size."""
        return steps_in(self._samples, self.own_rows, drop_last=self.settings.drop_last)

    @property
    def batch_size(self) -> int:
        """Samples of a step of each rank."""
        phase = self.schedule.phase_at(self.step)
        return phase.global_rows // phase.ranks

    def dropped(self) -> int:
        """Samples that every epoch leaves out."""
        return self._samples % self.own_rows if self.settings.drop_last else 0

    def samples_of(self, step: int) -> StepSamples:
        """The samples of a step: rank r takes the r-th stretch of them, unless they are dealt out otherwise."""
        phase, place = self.schedule.phase_at(step), self.schedule.place(step)
        _, samples = self.schedule.rows(step)
        size = phase.global_rows // phase.ranks
        counts = [min(size, max(0, place.rows - rank * size)) for rank in range(phase.ranks)]
        rank = self.settings.rank if phase.ranks == self.settings.world_size else None
        return StepSamples(step, place.epoch, samples.astype(np.int64), counts, rank)

    def steps_of(self, samples: range) -> list[int]:
        """The steps of the present epoch that use some samples."""
        return self.schedule.steps_of(self.name, None, samples, self.epoch)

    def state(self) -> dict[str, Any]:
        """Describe where the run stands."""
        place = self.schedule.place(self.step)
        header = {
            **states.header(self.kind, self.step, self.settings.seed, self._row_facts),
            "epoch": place.epoch,
            "offset": place.offset,
        }
        return dump_run(self.schedule, {self.name: self._facts}, self._files, self._missing, header=header)

    @property
    def _facts(self) -> dict[str, Any]:
        return {"fingerprint": self._fingerprint, "samples": self._samples}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        read = load_run(state, self._files, self.settings.seed)
        phases, data = read.phases, read.data
        states.check_source(phases, self.name)
        if data.get(self.name) != self._facts:
            raise FingerprintError(
                f"the rollouts of {self.name!r} are not those that the state was saved for: "
                f"{data.get(self.name)} then, {self._facts} now",
                hint="give the rollouts of that time, or start a new run on these",
            )
        states.check_samples(phases, self.name, lambda _, split: self._samples if split == 1 else None)
        schedule = Schedule(self.settings.seed, phases)
        states.check_place(state, schedule.place(step))
        self.follow(self.settings.batch_size, step, schedule)
        self._missing = read.missing
        self._files.loaded(read.files, step)

    def commit(self, state: Mapping[str, Any]) -> None:
        """A state is safely saved: let go of the files that only states before it name."""
        self.check(state)
        self._files.release(state)

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return states.check_header(state, self.kind, self.settings.seed, self._row_facts)

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last", "shuffle")
        return {
            "loader": self.kind,
            "order_version": order_version,
            f"data of {self.name!r}": self._fingerprint,
            **{key: getattr(self.settings, key) for key in shared},
            **self._row_facts,
            "step": self.step,
        }
