"""MixedStreamDataLoader: what `MixedDataLoader` gives where a source is a stream of raw files. It runs in lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from millstream._core import order_version
from millstream.batches import TrainingBatch
from millstream.batches.gather import NO_WEIGHT, Numbers, StepWeight
from millstream.errors import LoaderError, UnknownLength
from millstream.loaders import mixed_explain
from millstream.loaders.delivery import Delivery
from millstream.loaders.lane_loader import LaneDataLoader
from millstream.loaders.lane_rows import LaneRows
from millstream.loaders.lane_steps import ENDLESS, Epochs
from millstream.loaders.losses import named_losses, store_losses
from millstream.loaders.mixed_run import MixedStreamRun
from millstream.loaders.mixture import Mixture
from millstream.loaders.origin import RowOrigin
from millstream.loaders.running import no_workers
from millstream.loaders.store_order import StoreOrder
from millstream.loaders.streaming import StreamDataLoader
from millstream.order.phase import steps_in
from millstream.tensors import inside_torch_worker


class MixedStreamDataLoader(LaneDataLoader):
    """Rows of streams, of stores and of conversations, mixed exactly; see docs/streaming.md.

    >>> import tempfile, pathlib
    >>> from millstream import CharTokenizer, MixedDataLoader, PretrainDataLoader
    >>> path = pathlib.Path(tempfile.mkdtemp(), "mill.txt")
    >>> _ = path.write_text("the mill by the stream")
    >>> tokenizer = CharTokenizer.train(["the mill by the stream"])
    >>> how = {"tokenizer": tokenizer, "chunk_size": 8, "streaming": True}
    >>> sources = {"web": (PretrainDataLoader(path, **how), 0.75), "code": (PretrainDataLoader(path, **how), 0.25)}
    >>> with MixedDataLoader(sources, batch_size=4, mix_block=4, epoch_size=8) as loader:
    ...     batches = [sorted(batch.metadata["source"]) for batch in loader]
    ...     texts = sorted((row.source, row.text) for row in loader.explain(0))
    >>> batches
    [['code', 'web', 'web', 'web'], ['code', 'web', 'web', 'web']]
    >>> texts[:2]
    [('code', 'the mill'), ('web', ' by the ')]
    """

    _run: MixedStreamRun

    def __init__(self, mixture: Mixture, *, threads: int | None) -> None:
        settings, self._mixture = mixture.settings, mixture
        self._rollouts = mixture.rollouts
        streams = mixture.streams
        stores = {name: StoreOrder(name, member, settings.seed) for name, member in mixture.members.items()}
        self._documents = next(iter(streams.values())).shape.documents
        if self._documents == "isolate" and mixture.loss is not None:
            raise LoaderError(
                "a stream with documents='isolate' beside conversations: what the loss is divided by depends on where "
                "documents end in rows of other ranks and later steps, which nobody has read yet",
                hint="leave out documents='isolate', or prepare the stream (leave out streaming=True)",
            )
        run = MixedStreamRun(
            {name: replace(each.stream, name=name, seed=settings.seed) for name, each in streams.items()},
            stores,
            mixture.quotas,
            settings,
            length=mixture.shape.length,
            epochs=ENDLESS if mixture.epoch_size is None else Epochs(mixture.epoch_size, settings.drop_last),
            row_facts={
                "documents": self._documents,
                "epoch_size": mixture.epoch_size,
                "drop_last": settings.drop_last and mixture.epoch_size is not None,
            },
            id_limits={name: _id_limit(mixture, each) for name, each in streams.items()},
        )
        whole = any(store.member.shape.whole_documents for store in stores.values())
        delivery = Delivery(mixture.shape, settings, names_rows=True, whole_documents=whole, loss=mixture.loss)
        self._weighed: tuple[object, StepWeight] = (None, NO_WEIGHT)
        super().__init__(run, mixture.shape, settings, delivery, threads=threads)

    def _new_rows(self) -> LaneRows:
        return LaneRows(
            list(self._run.streams),
            self._run.stores,
            self.shape,
            self.settings,
            documents=self._documents,
            id_bytes=self._delivery.id_bytes,
            loss=self._mixture.loss,
        )

    def _weight(self) -> StepWeight:
        """What the targets of the present update weigh, on all ranks: rows of streams are full, stores know theirs."""
        loss, run = self._mixture.loss, self._run
        if loss is None:
            return NO_WEIGHT
        begun = run.step - run.steps_in_phase % loss.accumulation
        update = (begun, run.phases[-1], run.blends)
        if self._weighed[0] != update:
            steps = [run.sources_of(run.span(begun + step)) for step in range(loss.accumulation)]
            parts = [self._rows.weigh(*named) for named in steps]
            targets, hundredths, segments = (sum(numbers) for numbers in zip(*parts, strict=True))
            self._weighed = update, (targets, hundredths, segments)
        return self._weighed[1]

    def _completed(self, batch: TrainingBatch, names: Sequence[str], samples: Numbers) -> TrainingBatch:
        if self._rollouts is None:
            return batch
        return self._rollouts.add(batch, names, self._rows.in_stores(names, samples))

    # The run

    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch."""
        if inside_torch_worker():
            raise no_workers()
        self._check_epochs("when an epoch ends")
        epoch = self.epoch
        while self.epoch == epoch:
            yield self.next()
        self._callbacks.epoch_ended(epoch)

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has at the loader's own batch size; raises UnknownLength without epoch_size."""
        self._check_epochs("how many batches an epoch has")
        epochs = self._run.epochs
        return steps_in(epochs.size, self._run.own_rows, drop_last=epochs.drop_last)

    def _check_epochs(self, what: str) -> None:
        if self._run.is_endless:
            raise UnknownLength(
                f"nobody knows {what}: how much a stream holds is known when it was read",
                hint="pass epoch_size= (samples), or take batches with next() and count steps",
            )

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch: of rows of streams at a step that was delivered."""
        return mixed_explain.origins_of(step, self._run)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows hold tokens of a document, as `explain` numbers it."""
        return mixed_explain.steps_of(document, source, self._run)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        run, mixture = self._run, self._mixture
        state = run.state()
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last")
        return {
            "loader": run.kind,
            "order_version": order_version,
            "sources": ", ".join(mixture.loaders),
            **{f"data of {name!r}": state["data"][name]["fingerprint"] for name in mixture.loaders},
            **{key: getattr(self.settings, key) for key in shared},
            "chunk_size": self.shape.length,
            "documents": self._documents,
            "pad_id": self.shape.pad_id,
            "epoch_size": mixture.epoch_size,
            "loss": None if mixture.loss is None else [mixture.loss.mean_of, mixture.loss.accumulation],
            "step": run.step,
            "sample": run.sample,
            "lanes": run.blends.lanes,
            "mixtures": state["blends"],
        }

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What this rank left out and changed since the run began or last went elsewhere, by source and reason; and, of
        stores, what their making and every epoch leave out."""
        run, found = self._run, {"cut_tokens": self._cut_tokens}
        for name, store in run.stores.items():
            member = store.member
            if not member.shape.whole_documents:
                found[f"tail_tokens:{name}"] = member.shape.tail_tokens(member.store, member.share.samples)
            found |= store_losses(name, member.store)
        for name, lanes in run.streams.items():
            found |= named_losses(name, lanes.left_out, lanes.changed)
        if run.epochs.drop_last:
            found["dropped_rows"] = run.epochs.size % run.own_rows
        return found

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(self._mixture.loaders)}; rows of {self.shape.length}, step {self.step})"
        )


def _id_limit(mixture: Mixture, loader: StreamDataLoader) -> int | None:
    """The stricter one of what the mixture's model and the loader's own allow."""
    limits = (mixture.settings.limits.vocab_size, loader.settings.limits.vocab_size)
    return min((limit for limit in limits if limit is not None), default=None)
