"""MixedDataLoader: rows of several loaders, in exact proportion, under one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Unpack

from millstream.batches import TrainingBatch
from millstream.errors import LoaderError
from millstream.loaders.delivery import Delivery
from millstream.loaders.fillers.lanes import LaneDelivery, LaneFiller
from millstream.loaders.fillers.ring import RingFiller
from millstream.loaders.lane_rows import LaneRows
from millstream.loaders.lane_steps import ENDLESS, Epochs
from millstream.loaders.loader import DataLoader
from millstream.loaders.mixed_run import MixedStreamRun
from millstream.loaders.mixture import Mixable, Mixture, agreed
from millstream.loaders.runs.store import StoreRun
from millstream.loaders.settings import LoaderSettings, SharedKeywords
from millstream.loaders.store_order import StoreOrder
from millstream.order.mix import BLOCK_PLACES


class MixedDataLoader(DataLoader[TrainingBatch]):
    """Rows of several sources, mixed exactly; each source goes through its own order and repeats when it ends.

    Only the order and the data of each loader are used. Weights, sources and batch size may change in mid-run: load
    the state into a loader with the new recipe, and nothing is repeated and nothing is lost.

    >>> from millstream.loaders.pretrain import example_loader
    >>> sources = {"web": (example_loader(), 0.75), "code": (example_loader(), 0.25)}
    >>> with MixedDataLoader(sources, batch_size=4, mix_block=4, framework="numpy") as loader:
    ...     sorted(loader.next().metadata["source"])
    ['code', 'web', 'web', 'web']

    Args:
        sources: Name -> (loader, weight): loaders of texts and of conversations, with rows of one length and ids of one
            tokenizer (conversations may have control tokens behind its vocabulary). Names are part of the keys: adding
            a source moves no other. With a stream of raw files among them the run goes in
            lanes (docs/streaming.md).
        epoch_size: Samples of an epoch; by default until the first source is exhausted. With a stream among the
            sources nobody knows when that is, so there is no epoch without it.
        mix_block: Places of a block in which the weights hold exactly.
        shared: The keywords of every loader; `shuffle` and `labels` are those of the mixed loaders, and so is
            `framework` unless told otherwise, where they agree.
    """

    kind = "mixed"

    def __init__(
        self,
        sources: Mapping[str, tuple[Mixable, float]],
        *,
        epoch_size: int | None = None,
        mix_block: int = BLOCK_PLACES,
        **shared: Unpack[SharedKeywords],
    ) -> None:
        threads = shared.get("threads")
        mixture = agreed(sources, epoch_size, mix_block, shared)
        self.shape, self._names = mixture.shape, list(mixture.loaders)
        if mixture.streams:
            super().__init__(*_lane_parts(mixture, threads), mixture.settings)
            return
        run = StoreRun(self.kind, mixture.members, mixture.shape, mixture.settings, mixture.epoch_size, mixture.loss)
        rollouts = mixture.rollouts

        def add(batch: TrainingBatch, step: int) -> TrainingBatch:
            assert rollouts is not None
            return rollouts.add(batch, *run.schedule.rows(step, run.settings.rank))

        delivery = Delivery.of_stores(run, names_rows=True, complete=None if rollouts is None else add)
        super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, mixture.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._names)}; rows of {self.shape.length}, step {self.step})"


def _lane_parts(mixture: Mixture, threads: int | None) -> tuple[MixedStreamRun, LaneFiller, LaneDelivery]:
    """What a loader over a mixture with a stream is made of."""
    settings, shape, streams, loss = mixture.settings, mixture.shape, mixture.streams, mixture.loss
    stores = {name: StoreOrder(name, member, settings.seed) for name, member in mixture.members.items()}
    documents = next(iter(streams.values())).shape.documents
    if documents == "isolate" and loss is not None:
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
        length=shape.length,
        epochs=ENDLESS if mixture.epoch_size is None else Epochs(mixture.epoch_size, settings.drop_last),
        row_facts={
            "documents": documents,
            "epoch_size": mixture.epoch_size,
            "drop_last": settings.drop_last and mixture.epoch_size is not None,
        },
        id_limits={name: _id_limit(mixture, each.settings) for name, each in streams.items()},
        plan_facts={
            "documents": documents,
            "pad_id": shape.pad_id,
            "epoch_size": mixture.epoch_size,
            "loss": None if loss is None else [loss.mean_of, loss.accumulation],
        },
    )
    whole = any(store.member.shape.whole_documents for store in stores.values())
    delivery = Delivery(shape, settings, names_rows=True, whole_documents=whole, loss=loss)
    new_rows = partial(
        LaneRows, list(run.streams), stores, shape, settings, documents=documents, id_bytes=delivery.id_bytes, loss=loss
    )
    filler, rollouts = LaneFiller(run, new_rows, threads=threads, loss=loss), mixture.rollouts
    return run, filler, LaneDelivery(delivery, filler, run, None if rollouts is None else rollouts.add)


def _id_limit(mixture: Mixture, settings: LoaderSettings) -> int | None:
    """The stricter one of what the mixture's model and the loader's own allow."""
    limits = (mixture.settings.limits.vocab_size, settings.limits.vocab_size)
    return min((limit for limit in limits if limit is not None), default=None)
