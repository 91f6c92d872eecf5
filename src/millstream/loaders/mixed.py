"""MixedDataLoader: rows of several loaders, in exact proportion, under one order."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Unpack

from millstream.batches import TrainingBatch
from millstream.loaders.mixed_stream import MixedStreamDataLoader
from millstream.loaders.mixture import Mixable, agreed
from millstream.loaders.settings import SharedKeywords
from millstream.loaders.stores import StoreDataLoader
from millstream.loaders.streaming import StreamDataLoader
from millstream.order.mix import BLOCK_PLACES


class MixedDataLoader(StoreDataLoader):
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
            lanes: a `MixedStreamDataLoader`.
        epoch_size: Samples of an epoch; by default until the first source is exhausted. With a stream among the
            sources nobody knows when that is, so there is no epoch without it.
        mix_block: Places of a block in which the weights hold exactly.
        shared: The keywords of every loader; `shuffle` and `labels` are those of the mixed loaders, and so is
            `framework` unless told otherwise, where they agree.
    """

    kind = "mixed"
    names_rows = True

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Make a loader over stores, or over lanes, which takes the same arguments."""
        bound = signature(cls.__init__).bind(cls, *given, **named)
        bound.apply_defaults()
        asked = bound.arguments
        if not _has_stream(asked["sources"]):
            return super().__new__(cls)
        mixture = agreed(asked["sources"], asked["epoch_size"], asked["mix_block"], asked["shared"])
        return MixedStreamDataLoader(mixture, threads=asked["shared"].get("threads"))

    def __init__(
        self,
        sources: Mapping[str, tuple[Mixable, float]],
        *,
        epoch_size: int | None = None,
        mix_block: int = BLOCK_PLACES,
        **shared: Unpack[SharedKeywords],
    ) -> None:
        mixture = agreed(sources, epoch_size, mix_block, shared)
        self._rollouts = mixture.rollouts
        super().__init__(
            mixture.members, mixture.shape, mixture.settings, epoch_size=mixture.epoch_size, loss=mixture.loss
        )

    def _completed(self, batch: TrainingBatch, step: int) -> TrainingBatch:
        if self._rollouts is None:
            return batch
        names, samples = self._run.schedule.rows(step, self.settings.rank)
        return self._rollouts.add(batch, names, samples)


MixedDataLoader.register(MixedStreamDataLoader)


def _has_stream(sources: Any) -> bool:
    """Whether one of the sources is a stream, as far as they are sources."""
    entries = sources.values() if isinstance(sources, Mapping) else ()
    return any(isinstance(entry, tuple) and entry and isinstance(entry[0], StreamDataLoader) for entry in entries)
