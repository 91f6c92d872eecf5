"""MixedDataLoader: rows of several loaders, in exact proportion, under one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from millstream.batches import TrainingBatch
from millstream.loaders.delivery import Delivery
from millstream.loaders.fillers import RingFiller
from millstream.loaders.loader import DataLoader
from millstream.loaders.mixture import Mixable, agreed
from millstream.loaders.runs import StoreRun
from millstream.loaders.settings import SharedKeywords
from millstream.order import BLOCK_PLACES


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
            a source moves no other.
        epoch_size: Samples of an epoch; by default until the first source is exhausted. With a stream of raw files
            among the sources that is known when it has been counted.
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
        mixture = agreed(sources, epoch_size, mix_block, shared)
        self.shape, self._names = mixture.shape, list(mixture.loaders)
        settings, growing = mixture.settings, mixture.growing
        run = StoreRun(
            self.kind,
            mixture.members(growing),
            mixture.shape,
            settings,
            mixture.epoch_size,
            mixture.loss,
            growing=growing,
        )
        rollouts = mixture.rollouts

        def add(batch: TrainingBatch, step: int) -> TrainingBatch:
            assert rollouts is not None
            return rollouts.add(batch, *run.schedule.rows(step, run.settings.rank))

        delivery = Delivery.of_stores(run, names_rows=True, complete=None if rollouts is None else add)
        super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._names)}; rows of {self.shape.length}, step {self.step})"
