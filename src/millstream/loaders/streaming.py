"""StreamDataLoader: raw files -> rows, tokenised on the way. What `PretrainDataLoader(…, streaming=True)` gives.

Sample k of the run is sample k div L of lane k mod L, for L lanes; a lane is a stream of tokens of its own (lane.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream._core import order_version
from millstream.batches import TrainingBatch
from millstream.errors import LoaderError
from millstream.loaders.delivery import Delivery
from millstream.loaders.lane_loader import LaneDataLoader
from millstream.loaders.lane_rows import LaneRows
from millstream.loaders.lane_steps import samples_of, step_of
from millstream.loaders.losses import named_losses
from millstream.loaders.member import RowShape
from millstream.loaders.origin import RowOrigin
from millstream.loaders.running import no_workers
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream import Stream
from millstream.loaders.stream_explain import not_in_the_log
from millstream.loaders.stream_run import StreamRun
from millstream.tensors import inside_torch_worker


class StreamDataLoader(LaneDataLoader):
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

    def __init__(self, stream: Stream, shape: RowShape, settings: LoaderSettings, *, threads: int | None) -> None:
        self.stream = stream
        run = StreamRun(stream, settings, shape.length, {"documents": shape.documents})
        delivery = Delivery(shape, settings, names_rows=False, whole_documents=False)
        super().__init__(run, shape, settings, delivery, threads=threads)

    def _new_rows(self) -> LaneRows:
        documents, id_bytes = self.shape.documents, self._delivery.id_bytes
        return LaneRows([self.stream.name], {}, self.shape, self.settings, documents=documents, id_bytes=id_bytes)

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
        """Say how many batches the present epoch has, if all have the loader's own batch size; raises UnknownLength
        until every lane was read to its end."""
        return self._run.steps_of_epoch()

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at a step that was delivered."""
        samples = samples_of(step, self._run.phases, self.settings.rank, self.settings.world_size)
        return self._run.explainer().rows(samples)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows held tokens of a document, as `explain` numbers it."""
        if source not in (None, self.stream.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.stream.name!r}")
        found = self._run.explainer().samples_with(document, [self.epoch])
        steps = {step_of(sample, self._run.phases) for sample in found} - {None}
        if not steps:
            raise not_in_the_log(document)
        return sorted(step for step in steps if step is not None)

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
        """What this rank left out and changed since the run began or last went elsewhere, by reason."""
        lanes = self._run.lanes
        return {"cut_tokens": self._cut_tokens, **named_losses(self.stream.name, lanes.left_out, lanes.changed)}

    def __repr__(self) -> str:
        facts = f"{len(self.stream.found.files)} files, {self.stream.lanes} lanes"
        return f"{type(self).__name__}({facts}; rows of {self.shape.length}, step {self._run.step})"
