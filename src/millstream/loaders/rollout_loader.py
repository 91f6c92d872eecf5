"""What loaders of fixed sets of rollouts and of feeds have in common: a step is planned, delivered, and gone."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from millstream.batches import TrainingBatch
from millstream.batches.engine import Counters, closed_error
from millstream.batches.rollouts import RolloutFormat, RowBuffers
from millstream.errors import LoaderError
from millstream.loaders.loader import no_workers
from millstream.loaders.member import RowShape
from millstream.loaders.rollout_steps import DealtStep, MicroBatches
from millstream.loaders.rollout_task import RolloutTask
from millstream.loaders.running import RunningLoader
from millstream.loaders.settings import positive
from millstream.loaders.transforms import PerRow, transform_batch
from millstream.stages.lifetime import ForkLock
from millstream.tensors import inside_torch_worker

Made = TypeVar("Made", TrainingBatch, MicroBatches)


class RolloutLoader(RunningLoader):
    """Steps of rollouts. Batches are copied out of columns in memory when they are asked for: nothing is read ahead."""

    def __init__(self, task: RolloutTask, longest: int) -> None:
        settings, steps = task.settings, task.steps
        super().__init__(RowShape(task.limits.longest or longest, "row", pad_id=task.pad_id), settings)
        if any(isinstance(transform, PerRow) for transform in settings.transforms):
            raise LoaderError(
                "a transform of rows would change tokens under their log-probabilities",
                hint="pass functions batch -> batch, or change the records before they get here",
            )
        self.name, self.steps, self.tokenizer = task.name, steps, task.tokenizer
        self._format = RolloutFormat(
            labels=settings.labels,
            pad_id=task.pad_id,
            framework=settings.framework,
            packed=steps.packing,
            pad_to_multiple_of=steps.pad_to_multiple_of,
        )
        half = None if settings.memory_budget is None else settings.memory_budget // 2  # the other is for rollouts
        self._buffers = RowBuffers(half)
        self._lock = ForkLock()

    @property
    def _turn(self) -> AbstractContextManager[Any]:
        return self._lock

    def _jumped(self) -> None:
        self._callbacks.jumped()

    @abstractmethod
    def _coming(self, batch_size: int | None) -> DealtStep:
        """The coming step, with so many rollouts (or groups) for each rank."""

    @abstractmethod
    def _advance(self) -> None:
        """The coming step was delivered."""

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rollouts of this rank (with `keep_groups`: groups), as one step of the run."""

        def made(step: DealtStep, rows: int) -> TrainingBatch:
            return self._transformed(step.batch(filled_to=rows if self.settings.pad_last else 0))

        return self._delivered(batch_size, made, lambda batch: batch.metadata["rows"])

    def get_micro_batches(self, batch_size: int | None = None) -> MicroBatches:
        """Give the same rollouts in micro-batches of at most `micro_tokens`, as many on every rank.

        Those without a rollout are a row of padding without loss. Every one has the denominators of the whole step.
        """
        if self.steps.micro_tokens is None:
            raise LoaderError("nobody said how much fits into a micro-batch", hint="pass micro_tokens= to the loader")

        def made(step: DealtStep, _: int) -> MicroBatches:
            found = step.micro_batches()
            found[:] = [self._transformed(batch) for batch in found]
            return found

        return self._delivered(batch_size, made, lambda found: sum(each.metadata["rows"] for each in found))

    def _delivered(
        self, batch_size: int | None, make: Callable[[DealtStep, int], Made], rows_of: Callable[[Made], int]
    ) -> Made:
        began = time.perf_counter_ns()
        with self._turn:
            if self._closed:
                raise closed_error()
            size = None if batch_size is None else positive("batch_size", batch_size)
            epoch = self.epoch
            try:
                step = self._coming(size)
                epoch = step.rollouts.facts["epoch"]
                made = make(step, size or self.settings.batch_size)
            except Exception as error:
                self._callbacks.error(error)
                raise
            self._advance()
            if self._callbacks.any:
                for batch in [made] if isinstance(made, TrainingBatch) else made:
                    self._callbacks.delivered(epoch, batch)
            self._profile.delivered(rows_of(made), time.perf_counter_ns() - began)
            return made

    def _transformed(self, batch: TrainingBatch) -> TrainingBatch:
        for transform in self.settings.transforms:
            batch = transform_batch(transform, batch)
        return batch

    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch."""
        if inside_torch_worker():
            raise no_workers()
        return self._rest(self.get_batch)

    def iterate_micro_batches(self) -> Iterator[MicroBatches]:
        """Iterate over the rest of the present epoch, each step in micro-batches."""
        return self._rest(self.get_micro_batches)

    @abstractmethod
    def _rest(self, give: Callable[[], Made]) -> Iterator[Made]:
        """What is left of the epoch."""

    def prefetch(self, batches: int) -> None:
        """Check the number. Rollouts lie in memory, ready to be copied: there is nothing to do ahead of time."""
        positive("prefetch", batches)

    # Measuring

    @property
    @abstractmethod
    def losses(self) -> dict[str, int]:
        """What is left out, and why."""

    @property
    def _held_bytes(self) -> int:
        """Bytes of rollouts in memory."""
        return 0

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(Counters())

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""
        results = self._profile.results(Counters())
        results["memory"] = {"batches": self._buffers.used_bytes, "rollouts": self._held_bytes}
        results["losses"] = self.losses
        return results
