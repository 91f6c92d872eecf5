"""LaneDataLoader: what loaders have in common whose rows come, all or some, from lanes of raw files."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple
from typing import Any

from millstream.batches import TrainingBatch
from millstream.batches.engine import Counters, closed_error
from millstream.batches.gather import NO_WEIGHT, Numbers, StepWeight
from millstream.loaders.delivery import Delivery, Where
from millstream.loaders.lane_rows import LaneRows
from millstream.loaders.lane_run import LaneRun
from millstream.loaders.lane_source import LaneSource
from millstream.loaders.member import RowShape
from millstream.loaders.running import RunningLoader
from millstream.loaders.settings import LoaderSettings, positive
from millstream.stages.lifetime import ForkLock, HomeProcess, close_on_exit


class LaneDataLoader(RunningLoader):
    """Threads read and tokenise lanes ahead; a batch is made of them, and of stores, when it is asked for."""

    _run: LaneRun

    def __init__(
        self, run: LaneRun, shape: RowShape, settings: LoaderSettings, delivery: Delivery, *, threads: int | None
    ) -> None:
        super().__init__(shape, settings)
        self._run, self._delivery = run, delivery
        self._threads, self._prefetch = threads, settings.prefetch
        self._lock = ForkLock()
        self._source: LaneSource | None = None
        self._rows = self._new_rows()
        self._process = HomeProcess()
        self._past = Counters()
        self._cut_tokens = 0

    @abstractmethod
    def _new_rows(self) -> LaneRows:
        """What makes the rows of the run."""

    def _weight(self) -> StepWeight:
        """What the targets of the present update weigh, where somebody asks."""
        return NO_WEIGHT

    @property
    def _turn(self) -> AbstractContextManager[Any]:
        return self._lock

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""
        began = time.perf_counter_ns()
        with self._turn:
            rows = positive("batch_size", self.settings.batch_size if batch_size is None else batch_size)
            phases, step, sample = self._run.phases, self._run.step, self._run.sample
            try:
                self._run.resize(rows)
                batch = self._delivered(self._opened())
            except BaseException as error:
                self._run.phases, self._run.step, self._run.sample = phases, step, sample
                self._stop()
                if isinstance(error, Exception):
                    self._callbacks.error(error)
                raise
            self._profile.delivered(batch.metadata["rows"], time.perf_counter_ns() - began)
            return batch

    def _opened(self) -> LaneSource:
        """The source of tokens, reading from where the run stands."""
        if self._closed:
            raise closed_error()
        if self._process.left:  # a forked child has none of its parent's threads
            self._source, self._rows, self._process = None, self._new_rows(), HomeProcess()
        if self._source is None:
            self._agreement.check(self.plan_fingerprint)
            run, settings = self._run, self.settings
            source = LaneSource(
                run.streams,
                settings,
                sample=run.sample,
                threads=self._threads,
                ahead=run.ahead(self._prefetch),
            )
            self._closing = close_on_exit(self, source.close)
            self._source = source
        return self._source

    @abstractmethod
    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""

    def _delivered(self, source: LaneSource) -> TrainingBatch:
        """Make the batch of the present step, and move on. This runs for every batch: keep it lean."""
        run, settings = self._run, self.settings
        samples, epoch = run.samples(), run.epoch
        names, found = run.sources_of(samples)
        filled_to = run.rows // settings.world_size if settings.pad_last else 0
        native = self._rows.batch(names, found, source, filled_to=filled_to, step_weight=self._weight())
        where = Where(run.step, epoch, (0, samples.start), settings.world_size)
        batch = self._completed(self._delivery.rows(native, where, self._rows.names), names, found)
        cut = sum(batch.metadata.get("cut_tokens", ()))  # before anybody changes them
        run.advance()
        batch = self._delivery.transformed(batch)
        if self._callbacks.any:
            self._callbacks.delivered(epoch, batch)
        self._cut_tokens += cut
        return batch

    def _completed(self, batch: TrainingBatch, names: Sequence[str], samples: Numbers) -> TrainingBatch:
        """Add what only this kind of loader knows; what is raised here leaves the run where it stands."""
        return batch

    def seek(self, step: int) -> None:
        """Go to a step that the log knows."""
        with self._turn:
            self._run.seek(step)
            self._jumped()

    def prefetch(self, batches: int) -> None:
        """Keep tokens for this many batches ready from now on, and start reading them."""
        depth = positive("prefetch", batches)
        with self._turn:
            self._stop()
            self._prefetch = depth
            self._opened()

    def _jumped(self) -> None:
        self._stop()
        self._cut_tokens = 0
        self._callbacks.jumped()

    def _stop(self) -> None:
        source, self._source = self._source, None
        if source is not None and not self._process.left:
            self._past = self._past.plus(astuple(source.feed.counters))
            self._closing.cancel()
            source.close()

    # Measuring

    @property
    @abstractmethod
    def losses(self) -> dict[str, int]:
        """What this rank left out and changed since the run began or last went elsewhere, by reason."""

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(self._counters)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""
        results = self._profile.results(self._counters)
        lanes = 0 if self._source is None else self._source.held_bytes
        results["memory"] = {"lanes": lanes, "batches": self._rows.gatherer.used_bytes}
        results["losses"] = self.losses
        return results

    @property
    def _counters(self) -> Counters:
        return self._past if self._source is None else self._past.plus(astuple(self._source.feed.counters))

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        super().close()
        source = self._source
        if source is not None and not self._process.left:
            source.close()  # whoever waits for a batch meanwhile hears of it
