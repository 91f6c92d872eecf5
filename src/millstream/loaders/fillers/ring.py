"""RingFiller: steps of a StoreRun, filled by the native engine ahead of the trainer, or by the trainer itself while it
changes their size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from millstream.batches import Batch, Counters, Engine, EngineSettings, closed_error
from millstream.errors import BudgetError, StoreError
from millstream.loaders.runs import Mark, StoreRun


class RingFiller:
    """Keeps the engine running where the run stands."""

    def __init__(self, run: StoreRun, id_bytes: int) -> None:
        settings = run.settings
        self._run, self._locks = run, run.locks
        self._feed = partial(run.feed, id_bytes)
        accumulation = 0 if run.loss is None else run.loss.accumulation
        how = (settings.threads, settings.prefetch, settings.memory_budget, settings.pad_last, accumulation)
        self.engine = Engine(EngineSettings(*how, beside_rows=run.growing.in_memory))
        self._before: tuple[Mark, int] | None = None
        """Where the run stood before the step that is being made, or was made last."""
        self._is_direct = False
        """Whether batches are filled without threads, since their size has changed."""
        self._first_step = 0
        """Of the run, when the engine was started."""
        self._has_grown = False
        """Whether a source has grown: the engine knows neither its rows nor their end."""
        self._closed = False
        run.changed = self._grow

    def take(self, batch_size: int) -> Batch:
        """Wait for the rows of the next step. This runs for every batch: keep it lean."""
        run, engine = self._run, self.engine
        self._before = run.mark, run.step
        if batch_size != run.samples:
            self._resize(batch_size)
            if not run.growing.sources:
                return self._fill()
        while run.growing.sources:
            run.wait_until_known()
            self._before = run.mark, run.step
            try:
                return self._next()
            except StoreError:
                engine.stop()
                if not run.growing.find_again():
                    raise
        return engine.take() if engine.ring is not None and not self._has_grown else self._next()

    def _resize(self, batch_size: int) -> None:
        """Fill batches of another size without threads at first: it may change again."""
        run, engine = self._run, self.engine
        if engine.ring is not None:
            engine.pause()
        with self._locks.moving:
            same_phase = run.resize(batch_size)
        if not same_phase:
            engine.stop()  # it reads for another one
        self._is_direct = True

    def _next(self) -> Batch:
        """Give the rows of the next step, filled by threads or by this one."""
        run, engine = self._run, self.engine
        if self._has_grown:
            if not self._extend():
                engine.stop()
            self._has_grown = False
        if engine.ring is None:
            if self._is_direct and not engine.threads_pay(run.clock, run.rank_rows):
                return self._fill()
            try:
                self._start()
            except BudgetError:
                if not self._is_direct:
                    raise
                return self._fill()  # what threads need for themselves is in the user's hands
            self._is_direct = False
        return engine.take()

    def _fill(self) -> Batch:
        """Fill the next step in this thread; a `close` meanwhile ends it or is noticed here."""
        self._check_open()
        run = self._run
        batch = self.engine.fill(self._feed, run.clock, run.rank_rows, run.step - run.first_step)
        self._check_open()
        return batch

    def _start(self) -> None:
        """Start the engine; a `close` meanwhile either finds it running or is noticed here."""
        self._check_open()
        run = self._run
        self._first_step = run.first_step
        self.engine.start(self._feed, run.clock, run.rank_rows, run.step - run.first_step, self._end)
        self._check_open()

    def _extend(self) -> bool:
        """Let the engine continue with what a source has brought; False where it must be started anew."""
        run = self._run
        if run.first_step != self._first_step:
            return False
        before = self.engine.extend(self._feed, run.clock, self._end)
        if before is not None:
            run.growing.let_go(before)
        return before is not None

    @property
    def _end(self) -> int | None:
        """The first step that cannot be filled yet, as the engine counts them."""
        run = self._run
        return run.growing.known_step - run.first_step if run.growing else None

    def _grow(self) -> None:
        self._has_grown = True

    def _check_open(self) -> None:
        if self._closed:
            self.engine.stop()
            raise closed_error()

    def taken(self, filled: Batch) -> None:
        """Move on by one step."""
        self._run.step += 1

    def give_back(self, error: BaseException, filled: Batch | None, step: int) -> None:
        """Stand where the run stood before `take`; Ctrl-C may have come before that noted where."""
        before, resized = self._before, False
        if before is not None and before[1] == step:
            resized = self._run.return_to(before[0], step)
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
            if self._run.is_known:
                self._start()

    def stop(self) -> None:
        """Drop what was filled."""
        self._is_direct = self._has_grown = False
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
        """Bytes of all batches, also of those in the user's hands, and of windows that are kept in memory."""
        batches = {"batches": self.engine.used_bytes}
        return {**batches, "windows": self._run.growing.held_bytes} if self._run.growing.in_memory else batches

    @property
    def ready(self) -> int:
        """Batches that are ready to be taken."""
        return self.engine.ready

    @property
    def figures(self) -> dict[str, Any]:
        """Parts of streams that this process made and found, by source."""
        parts = self._run.growing.parts
        return {"parts": parts} if parts else {}
