"""LaneFiller: steps of raw files that threads read and tokenise ahead; a batch is made of them when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from millstream._core import Batch
from millstream.batches import TrainingBatch
from millstream.batches.engine import Counters, closed_error
from millstream.batches.gather import NO_WEIGHT, Numbers, StepWeight
from millstream.loaders.delivery import Delivery, Where
from millstream.loaders.lane_rows import LaneRows
from millstream.loaders.lane_run import LaneRun
from millstream.loaders.lane_source import LaneSource
from millstream.loaders.loss import LossMean
from millstream.loaders.mixed_run import MixedStreamRun
from millstream.loaders.settings import positive
from millstream.stages.lifetime import HomeProcess, close_on_exit


@dataclass(frozen=True, slots=True)
class LaneStep:
    """The rows of a step, and which samples they are."""

    native: Batch
    first: int
    """The first sample of this rank."""
    names: Sequence[str]
    samples: Numbers


class LaneFiller:
    """Reads lanes ahead, and makes batches of them and of stores."""

    def __init__(
        self, run: LaneRun, new_rows: Callable[[], LaneRows], *, threads: int | None, loss: LossMean | None = None
    ) -> None:
        self._run, self._locks, self._new_rows, self._loss = run, run.locks, new_rows, loss
        self._threads, self._prefetch = threads, run.settings.prefetch
        self._source: LaneSource | None = None
        self.rows, self._process = new_rows(), HomeProcess()
        self._past = Counters()
        self._weighed: tuple[object, StepWeight] = (None, NO_WEIGHT)
        self._before = run.place
        self._closed = False

    def take(self, batch_size: int) -> LaneStep:
        """Wait for the tokens of the next step, and make its rows."""
        run, settings = self._run, self._run.settings
        self._before = run.place
        with self._locks.moving:
            run.resize(positive("batch_size", batch_size))
        source = self._opened()
        samples = run.samples()
        names, found = run.sources_of(samples)
        filled_to = run.step_rows // settings.world_size if settings.pad_last else 0
        native = self.rows.batch(names, found, source, filled_to=filled_to, step_weight=self._weight())
        return LaneStep(native, samples.start, names, found)

    def _opened(self) -> LaneSource:
        """The source of tokens, reading from where the run stands."""
        if self._closed:
            raise closed_error()
        if self._process.left:  # a forked child has none of its parent's threads
            self._source, self.rows, self._process = None, self._new_rows(), HomeProcess()
        if self._source is None:
            run = self._run
            ahead = run.ahead(self._prefetch)
            source = LaneSource(run.streams, run.settings, sample=run.sample, threads=self._threads, ahead=ahead)
            self._closing = close_on_exit(self, source.close)
            self._source = source
        return self._source

    def _weight(self) -> StepWeight:
        """What the targets of the present update weigh, on all ranks: rows of streams are full, stores know theirs."""
        loss, run = self._loss, self._run
        if loss is None or not isinstance(run, MixedStreamRun):
            return NO_WEIGHT
        begun = run.step - run.steps_in_phase % loss.accumulation
        update = (begun, run.phases[-1], run.blends)
        if self._weighed[0] != update:
            steps = [run.sources_of(run.span(begun + step)) for step in range(loss.accumulation)]
            parts = [self.rows.weigh(*named) for named in steps]
            targets, hundredths, segments = (sum(numbers) for numbers in zip(*parts, strict=True))
            self._weighed = update, (targets, hundredths, segments)
        return self._weighed[1]

    def taken(self, filled: LaneStep) -> None:
        """Move on by one step."""
        self._run.advance()

    def give_back(self, error: BaseException, filled: LaneStep | None, step: int) -> None:
        """Stand where the run stood before `take`; Ctrl-C may have come before that noted where."""
        if self._before[1] == step:
            self._run.place = self._before
        self.stop()

    def prefetch(self, batches: int) -> None:
        """Keep tokens for so many batches ready from now on, and start reading them."""
        with self._locks.asking:
            self.stop()
            self._prefetch = batches
            self._opened()

    def stop(self) -> None:
        """Drop what was read."""
        source, self._source = self._source, None
        if source is not None and not self._process.left:
            self._past = self._past.plus(astuple(source.feed.counters))
            self._closing.cancel()
            source.close()

    def close(self) -> None:
        """Stop all threads; a consumer that waits is told."""
        self._closed = True
        source = self._source
        if source is not None and not self._process.left:
            source.close()

    @property
    def counters(self) -> Counters:
        """What threads and trainer did so far."""
        return self._past if self._source is None else self._past.plus(astuple(self._source.feed.counters))

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of tokens that were read, and of batches."""
        lanes = 0 if self._source is None else self._source.held_bytes
        return {"lanes": lanes, "batches": self.rows.gatherer.used_bytes}

    @property
    def ready(self) -> None:
        """Batches are made when they are asked for."""
        return


class LaneDelivery:
    """Finishes the batches of a run in lanes."""

    def __init__(
        self,
        delivery: Delivery,
        filler: LaneFiller,
        run: LaneRun,
        complete: Callable[[TrainingBatch, Sequence[str], Numbers], TrainingBatch] | None = None,
    ) -> None:
        self._delivery, self._filler, self._run, self._complete = delivery, filler, run, complete
        self.ledger = delivery.ledger

    def finish(self, filled: LaneStep) -> tuple[TrainingBatch, int]:
        """Make the batch, with all transforms; gives it and its number of rows."""
        run = self._run
        where = Where(run.step, run.epoch, (0, filled.first), run.settings.world_size)
        batch = self._delivery.rows(filled.native, where, self._filler.rows.names)
        if self._complete is not None:
            batch = self._complete(batch, filled.names, self._filler.rows.in_stores(filled.names, filled.samples))
        return self._delivery.transformed(batch), filled.native.facts[2]
