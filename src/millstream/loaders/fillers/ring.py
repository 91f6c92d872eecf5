"""RingFiller: steps of a StoreRun, filled by the native engine ahead of the trainer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from millstream._core import Batch
from millstream.batches.engine import Counters, Engine, EngineSettings, closed_error
from millstream.errors import BudgetError, StoreError
from millstream.loaders.runs.store import StoreRun


class RingFiller:
    """Keeps the engine running where the run stands."""

    def __init__(self, run: StoreRun, id_bytes: int) -> None:
        settings = run.settings
        self._run, self._id_bytes, self._locks = run, id_bytes, run.locks
        accumulation = 0 if run.loss is None else run.loss.accumulation
        self.engine = Engine(
            EngineSettings(settings.threads, settings.prefetch, settings.memory_budget, settings.pad_last, accumulation)
        )
        self._before = run.schedule, run.step
        """Where the run stood before the step that is being made."""
        self._closed = False
        run.changed = self.engine.stop

    def take(self, batch_size: int) -> Batch:
        """Wait for the rows of the next step. This runs for every batch: keep it lean."""
        run, engine = self._run, self.engine
        self._before = run.schedule, run.step
        if batch_size != run.samples:
            engine.stop()
            with self._locks.moving:
                run.resize(batch_size)
        while run.growing is not None:
            run.wait_until_known()
            self._before = run.schedule, run.step
            try:
                return self._next()
            except StoreError:
                if not run.lost_files:
                    raise
            engine.stop()
            run.forget_known()  # they are found where they are now
        if engine.ring is None:
            self._start()
        return engine.take()

    def _next(self) -> Batch:
        if self.engine.ring is None:
            self._start()
        return self.engine.take()

    def _start(self) -> None:
        """Start the engine; a `close` meanwhile either finds it running or is noticed here."""
        self._check_open()
        run = self._run
        begun = run.phase.step
        end = None if run.growing is None else run.known_step - begun
        self.engine.start(partial(run.feed, self._id_bytes), run.step - begun, end)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            self.engine.stop()
            raise closed_error()

    def taken(self, filled: Batch) -> None:
        """Move on by one step."""
        self._run.step += 1

    def give_back(self, error: BaseException, filled: Batch | None) -> None:
        """Stand where the run stood before `take`."""
        schedule, step = self._before
        resized = schedule is not self._run.schedule
        self._run.stand(schedule, step)
        if resized or filled is not None or not isinstance(error, BudgetError):  # a ring without buffers gets some
            self.engine.stop()

    def peek(self) -> Batch:
        """Give the rows of the next step, and stay where the run is."""
        batch = self.take(self._run.samples)
        self.engine.stop()
        return batch

    def prefetch(self, batches: int) -> None:
        """Keep so many batches ready from now on, and start filling them."""
        with self._locks.asking:
            self.engine.stop()
            self.engine.settings = replace(self.engine.settings, prefetch=batches)
            self._start()

    def stop(self) -> None:
        """Drop what was filled."""
        self.engine.stop()

    def close(self) -> None:
        """Stop all threads."""
        self._closed = True
        self.engine.stop()

    @property
    def counters(self) -> Counters:
        """What threads and trainer did so far."""
        return self.engine.counters

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of all batches, also of those in the user's hands."""
        return {"batches": self.engine.used_bytes}

    @property
    def ready(self) -> int:
        """Batches that are ready to be taken."""
        return self.engine.ready
