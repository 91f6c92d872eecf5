"""Where a run in lanes stands: samples delivered, and how steps are cut from them. No threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, UnknownLength
from millstream.loaders.lane_steps import ENDLESS, KEPT_PHASES, Epochs, LaneSteps, phase_at, samples_of, span_of
from millstream.loaders.origin import RowOrigin
from millstream.loaders.runs.run import Locks
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream_explain import KEEP_A_LOG
from millstream.loaders.stream_lanes import StreamLanes
from millstream.order.steps import StepPhase, resized
from millstream.storage import state as states

DEFAULT_PREFETCH = 4


class LaneRun(ABC):
    """A step of a run over one stream, or over several sources of which some are streams."""

    kind: str
    epochs: Epochs = ENDLESS
    steps_back = True
    is_known = True

    def __init__(self, settings: LoaderSettings, row_facts: dict[str, Any]) -> None:
        self.settings, self._row_facts = settings, row_facts
        self.locks = Locks()

    @property
    @abstractmethod
    def streams(self) -> Mapping[str, StreamLanes]:
        """The lanes that are read, by the name of their stream."""

    @abstractmethod
    def sources_of(self, samples: Sequence[int]) -> tuple[list[str], npt.NDArray[np.int64]]:
        """Name source and sample of it for samples of one step."""

    @abstractmethod
    def ahead(self, prefetch: int | None) -> dict[str, int]:
        """How many rows of each lane of a stream are needed for so many batches."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch of the next step."""

    def wait_until_known(self) -> None:  # noqa: B027 - nothing to do is right
        """An epoch is counted by samples."""

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch."""
        return self.epoch == epoch

    def end_epoch(self) -> None:  # noqa: B027 - nothing to do is right
        """Lanes end epochs."""

    def close(self) -> None:  # noqa: B027 - nothing to do is right
        """The filler closes the files."""

    @abstractmethod
    def check_epochs(self) -> None:
        """Raise UnknownLength where it is not known when the present epoch ends."""

    @abstractmethod
    def steps_in_epoch(self) -> int:
        """Steps of an epoch at the loader's own batch size."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""

    def rows(self, step: int) -> list[tuple[LaneRun, int]]:
        """The step itself: lanes are explained step by step."""
        return [(self, step)]

    @abstractmethod
    def origins(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank at a step that was delivered."""

    @abstractmethod
    def steps_of(self, document: int, source: str | None) -> list[int]:
        """Name the steps of the present epoch that use a document."""

    @property
    @abstractmethod
    def losses(self) -> dict[str, int]:
        """What this rank left out and changed since the run began or last went elsewhere, by reason."""

    @property
    def place(self) -> tuple[list[LaneSteps], int, int]:
        """Where the run stands: its phases, the next step and its first sample."""
        return self.phases, self.step, self.sample

    @place.setter
    def place(self, place: tuple[list[LaneSteps], int, int]) -> None:
        self.phases, self.step, self.sample = place

    def restart(self) -> None:
        """Stand at the very beginning."""
        ranks = self.settings.world_size
        self.step = self.sample = 0
        self.phases = [StepPhase(0, 0, self.settings.batch_size * ranks, ranks)]
        for lanes in self.streams.values():
            lanes.restart()

    @property
    def step_rows(self) -> int:
        """Rows of a step, on all ranks together."""
        return self.phases[-1].rows

    @property
    def own_rows(self) -> int:
        """Rows of a step on all ranks, at the loader's own batch size."""
        return self.settings.batch_size * self.settings.world_size

    def resize(self, batch_size: int) -> None:
        """Go on with batches of another size, or on another number of ranks."""
        ranks = self.settings.world_size
        fresh = StepPhase(self.step, self.sample, batch_size * ranks, ranks)
        self.phases = resized(self.phases, fresh, KEPT_PHASES)

    def samples(self) -> range:
        """The samples of this rank at the present step."""
        return samples_of(self.step, self.phases, self.settings.rank, self.settings.world_size, self.epochs)

    def advance(self) -> None:
        """A step was delivered."""
        self.step += 1
        self.sample = span_of(self.step, self.phases, self.epochs).start

    def seek(self, step: int) -> None:
        """Go to a step whose places the log knows, or change nothing."""
        phase = phase_at(self.phases, step)
        if phase is None or step < 0:
            raise LoaderError(f"step {step} is not known", hint="seek a step from 0 on; reset() goes to the beginning")
        was = self.step, self.sample
        self.step, self.sample = step, span_of(step, self.phases, self.epochs).start
        if (self.step, self.sample) != was:
            try:
                self._check_places(step)
            except UnknownLength:
                self.step, self.sample = was
                raise
        self.phases = [each for each in self.phases if each.step <= step]
        for lanes in self.streams.values():
            lanes.jumped()
        self.resize(self.settings.batch_size)

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands before a step, with the places of this rank's lanes; those of others may lie
        far behind."""
        place = self.place
        if step == self.step:
            return self.present_state()
        try:
            phases = [phase for phase in self.phases if phase.step < step] or self.phases[:1]
            self.place = phases, step, span_of(step, phases, self.epochs).start
            self._check_places(step)
            return self.present_state()
        finally:
            self.place = place

    @abstractmethod
    def present_state(self) -> dict[str, Any]:
        """Describe where the run stands."""

    def _check_places(self, step: int) -> None:
        unknown = next((lane for lanes in self.streams.values() if (lane := lanes.unknown_lane()) is not None), None)
        if unknown is not None:
            raise UnknownLength(
                f"the log does not know where step {step} begins in lane {unknown}",
                hint=f"a stream goes back to what it delivered, not forward; {KEEP_A_LOG}",
            )

    @abstractmethod
    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""

    def _header(self) -> dict[str, Any]:
        """What the states of all runs in lanes begin with."""
        return {
            **states.header(self.kind, self.step, self.settings.seed, self._row_facts),
            "sample": self.sample,
            "steps": [[phase.step, phase.place, phase.rows, phase.ranks] for phase in self.phases],
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Check that a state is one of a run like this."""
        states.check_header(state, self.kind, self.settings.seed, self._row_facts)

    def commit(self, state: Mapping[str, Any]) -> None:
        """A state is safely saved. No file belongs to it alone, so there is nothing to let go of."""
        self.check(state)
