"""StreamDataLoader: raw files -> rows, tokenised on the way. What `PretrainDataLoader(…, streaming=True)` gives.

Sample k of the run is sample k div L of lane k mod L, for L lanes; a lane is a stream of tokens of its own (lane.py).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple
from typing import Any

from millstream._core import order_version
from millstream.batches import TrainingBatch
from millstream.batches.engine import Counters, closed_error
from millstream.errors import LoaderError
from millstream.loaders.lane_source import LaneSource
from millstream.loaders.member import Member, RowShape
from millstream.loaders.origin import RowOrigin
from millstream.loaders.running import RunningLoader, no_workers
from millstream.loaders.settings import LoaderSettings, positive
from millstream.loaders.stream import Stream
from millstream.loaders.stream_explain import samples_of
from millstream.loaders.stream_rows import RowColumns
from millstream.loaders.stream_run import StreamRun
from millstream.loaders.transforms import PerRow, transform_batch, transform_rows
from millstream.parts.policy import OnBad
from millstream.tensors import backend, inside_torch_worker


class StreamDataLoader(RunningLoader):
    """Rows of raw files, tokenised by threads while training runs; see docs/streaming.md.

    >>> import tempfile, pathlib
    >>> from millstream import CharTokenizer, PretrainDataLoader
    >>> path = pathlib.Path(tempfile.mkdtemp(), "mill.txt")
    >>> _ = path.write_text("the mill by the stream")
    >>> tokenizer = CharTokenizer.train(["the mill by the stream"])
    >>> with PretrainDataLoader(path, tokenizer=tokenizer, chunk_size=8, streaming=True, batch_size=1) as loader:
    ...     row = loader.explain(loader.next().metadata["step"])[0]
    >>> row.text, row.spans[0].file
    ('the mill', 'mill.txt')
    """

    _run: StreamRun

    def __init__(
        self, stream: Stream, shape: RowShape, settings: LoaderSettings, *, on_bad: OnBad, threads: int | None
    ) -> None:
        super().__init__(shape, settings)
        self.stream = stream
        self._run = StreamRun(stream, settings, shape.length, {"documents": shape.documents})
        self._on_bad, self._threads, self._prefetch = on_bad, threads, settings.prefetch
        self._backend = backend(settings.framework)
        self._row_transforms = [each for each in settings.transforms if isinstance(each, PerRow)]
        self._batch_transforms = [each for each in settings.transforms if not isinstance(each, PerRow)]
        self._lock = threading.RLock()
        self._source: LaneSource | None = None
        self._process = os.getpid()
        self._past = Counters()

    # The run

    @property
    def _turn(self) -> AbstractContextManager[Any]:
        return self._lock

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""
        began = time.perf_counter_ns()
        with self._turn:
            rows = positive("batch_size", self.settings.batch_size if batch_size is None else batch_size)
            phases = self._run.phases
            try:
                self._run.resize(rows)
                batch = self._delivered(self._opened())
            except BaseException as error:
                self._run.phases = phases
                self._stop()
                if isinstance(error, Exception):
                    self._callbacks.error(error)
                raise
            self._profile.delivered(rows, time.perf_counter_ns() - began)
            return batch

    def _opened(self) -> LaneSource:
        """The source of tokens, reading from where the run stands."""
        if self._closed:
            raise closed_error()
        if self._process != os.getpid():  # a forked child has none of its parent's threads
            self._source, self._process = None, os.getpid()
        if self._source is None:
            self._agreement.check(self.plan_fingerprint)
            source = LaneSource(self._run, self._on_bad, self._threads, self._prefetch)
            self._last_wish = weakref.finalize(self, source.close)
            self._source = source
        return self._source

    def _delivered(self, source: LaneSource) -> TrainingBatch:
        """Make the batch of the present step, and move on. This runs for every batch: keep it lean."""
        run, shape = self._run, self.shape
        samples, epoch = run.samples(), run.epoch
        isolate = shape.documents == "isolate"
        how: dict[str, Any] = {"labels": self.settings.labels, "id_bytes": self._backend.ID_BYTES}
        rows = RowColumns(len(samples), shape.length, isolate=isolate, **how)
        for row, sample in enumerate(samples):
            number, lane = divmod(sample, self.stream.lanes)
            rows.write(row, source.tokens(lane, number))
            if isolate:
                rows.isolate(row, source.ends(lane, number))
        if self._row_transforms:
            for row, sample in enumerate(samples):
                columns = {name: column[row : row + 1] for name, column in rows.columns.items()}
                columns["length"] = rows.lengths[row : row + 1]
                transform_rows(self._row_transforms, columns, (self.settings.seed, 0), sample)
        batch = self._batch(rows, epoch)
        run.advance()
        for transform in self._batch_transforms:
            batch = transform_batch(transform, batch)
        if self._callbacks.any:
            self._callbacks.delivered(epoch, batch)
        return batch

    def _batch(self, rows: RowColumns, epoch: int) -> TrainingBatch:
        inputs, labels, *positions = (self._backend.from_numpy(column) for column in rows.columns.values())
        count, length = inputs.shape
        metadata: dict[str, Any] = {
            "epoch": epoch,
            "step": self._run.step,
            "rows": int(count),
            "sequence_length": int(length),
            "tokens": int(rows.lengths.sum()),
        }
        if self.settings.pad_last:
            metadata["filler"] = [False] * int(count)
        lengths = rows.lengths if metadata["tokens"] < count * length else None
        batch = TrainingBatch(inputs, labels, framework=self._backend.NAME, lengths=lengths, metadata=metadata)
        if positions:
            starts = rows.segment_starts()
            batch.position_ids = positions[0]
            batch.cu_seqlens = self._backend.from_numpy(starts)
            batch.max_seqlen = int((starts[1:] - starts[:-1]).max(initial=0))
        return batch

    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch: until every lane has been read to its end once more.

        With several ranks the end must be known beforehand, or each of them would stop elsewhere.
        """
        if inside_torch_worker():
            raise no_workers()
        epoch = self.epoch
        if self.settings.world_size == 1:
            while self.epoch == epoch:
                yield self.next()
        else:
            end = self._run.epoch_end(epoch)
            while self._run.sample < end:
                yield self.next()
        self._callbacks.epoch_ended(epoch)

    def get_num_batches(self) -> int:
        """Say how many batches the present epoch has; raises UnknownLength until every lane was read to its end."""
        return self._run.steps_of_epoch()

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
        self._callbacks.jumped()

    def _stop(self) -> None:
        source, self._source = self._source, None
        if source is not None and self._process == os.getpid():
            self._past = self._past.plus(astuple(source.feed.counters))
            self._last_wish.detach()
            source.close()

    @property
    def member(self) -> Member:
        """A stream takes no part in a mixture: its lanes have an order of their own."""
        raise LoaderError("a stream cannot be mixed", hint="leave out streaming=True: the files are prepared once")

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at a step that was delivered."""
        samples = samples_of(step, self._run.phases, self.settings.rank, self.settings.world_size)
        return self._run.explainer().rows(samples)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows held tokens of a document, as `explain` numbers it."""
        if source not in (None, self.stream.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.stream.name!r}")
        return self._run.explainer().steps_of(document, self.epoch, self._run.phases)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels")
        return {
            "loader": "stream",
            "order_version": order_version,
            **{f"{key} of the stream": value for key, value in self.stream.data.items()},
            **{key: getattr(self.settings, key) for key in shared},
            "chunk_size": self.shape.length,
            "documents": self.shape.documents,
            "step": self._run.step,
            "sample": self._run.sample,
        }

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What this rank left out since the run began or last went elsewhere, by reason."""
        return {"cut_tokens": 0, **dict(sorted(self._run.losses.items()))}

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(self._counters)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""
        results = self._profile.results(self._counters)
        results["memory"] = {"lanes": 0 if self._source is None else self._source.held_bytes}
        results["losses"] = self.losses
        return results

    @property
    def _counters(self) -> Counters:
        return self._past if self._source is None else self._past.plus(astuple(self._source.feed.counters))

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        self._closed = True
        source = self._source
        if source is not None and self._process == os.getpid():
            source.close()  # whoever waits for a batch meanwhile hears of it

    def __repr__(self) -> str:
        facts = f"{len(self.stream.found.files)} files, {self.stream.lanes} lanes"
        return f"{type(self).__name__}({facts}; rows of {self.shape.length}, step {self._run.step})"
