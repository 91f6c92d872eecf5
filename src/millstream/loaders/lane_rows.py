"""Named rows of streams and stores -> a native batch.

Rows of streams are lent to the kernel, rows of stores are found by it, so a row is the same here as in a batch that the
engine makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from millstream._core import Batch
from millstream.batches.engine import feed_source
from millstream.batches.gather import NO_WEIGHT, Gatherer, LentRows, Numbers, StepWeight, lent_source
from millstream.loaders.lane_source import LaneSource
from millstream.loaders.loss import LossMean
from millstream.loaders.member import RowShape
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.store_order import StoreOrder


class LaneRows:
    """Makes the rows of a run in lanes."""

    def __init__(
        self,
        streams: Sequence[str],
        stores: Mapping[str, StoreOrder],
        shape: RowShape,
        settings: LoaderSettings,
        *,
        documents: str,
        id_bytes: int,
        loss: LossMean | None = None,
    ) -> None:
        self.names = [*streams, *stores]
        """Of the sources, as the core numbers them."""
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._stores, self._length, self._isolates = stores, shape.length, documents == "isolate"
        members = [store.member for store in stores.values()]
        self.gatherer = Gatherer(
            [
                *(lent_source(documents) for _ in streams),
                *(
                    feed_source(each.store.layout, each.id_limit, each.shape.documents, each.packing)
                    for each in members
                ),
            ],
            length=shape.length,
            labels=settings.labels,
            pad_id=shape.pad_id,
            id_bytes=id_bytes,
            mean_of="targets" if loss is None else loss.native,
            unit=shape.pad_multiple,
            memory_budget=settings.memory_budget,
        )

    def batch(
        self,
        names: Sequence[str],
        samples: Numbers,
        source: LaneSource,
        *,
        filled_to: int = 0,
        step_weight: StepWeight = NO_WEIGHT,
    ) -> Batch:
        """Make a batch; `samples` are those of their sources, of stores counted in uses."""
        found = self.in_stores(names, samples)
        lent = LentRows(self._length)
        for row, name in enumerate(names):
            if name not in self._stores:
                sample = int(samples[row])
                tokens = source.tokens(name, sample)
                found[row] = lent.add(tokens, source.ends(name, sample) if self._isolates else None)
        numbers = [self._numbers[name] for name in names]
        return self.gatherer.batch(numbers, found, lent, filled_to=filled_to, step_weight=step_weight)

    def weigh(self, names: Sequence[str], samples: Numbers) -> StepWeight:
        """What the targets of rows weigh, of this rank or another: rows of streams are full, whatever they hold."""
        return self.gatherer.weigh([self._numbers[name] for name in names], self.in_stores(names, samples))

    def in_stores(self, names: Sequence[str], samples: Numbers) -> Numbers:
        """The samples of stores that are used; those of streams stay as they are."""
        found = samples.copy()
        sources = np.array(names)
        for name, order in self._stores.items():
            here = sources == name
            if here.any():
                found[here] = order.at(samples[here])
        return found
