"""The tensors of a step -> the batch that a trainer gets, in its framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.batches import SelfPlayBatch
from millstream.live import Tensors
from millstream.loaders import transform_batch
from millstream.loaders.self_play.run import SelfPlayRun
from millstream.stats import Ledger
from millstream.tensors import backend


class SelfPlayDelivery:
    """Finishes the batches of a run over games."""

    def __init__(self, run: SelfPlayRun) -> None:
        self._run, self._backend = run, backend(run.settings.framework)
        self.ledger = Ledger()  # the stages count what is lost

    def finish(self, filled: Tensors) -> tuple[SelfPlayBatch, int]:
        """Make the batch of the run's next step, with all transforms; gives it and its number of rows."""
        run = self._run
        batch = batch_of(filled, run.epoch, run.step, self._backend)
        for transform in run.settings.transforms:
            batch = transform_batch(transform, batch)
        return batch, len(batch)


def batch_of(tensors: Tensors, epoch: int, step: int, framework: Any) -> SelfPlayBatch:
    """A batch in the memory of the tensors; what is known of each row has its own, and outlives them."""
    start, stop = tensors.rows
    mine = tensors.origins[start:stop]
    columns = {key: mine[key].astype(np.int64) for key in ("chunk", "ply", "use")}
    metadata = {"epoch": epoch, "step": step, "rows": stop - start, **columns}
    if tensors.rule50 is not None:
        metadata["rule50"] = tensors.rule50.copy()
    planes = tensors.planes
    if planes.dtype == np.uint64 and framework.NAME in ("jax", "mlx"):  # they have no such numbers by default
        planes = planes.view(np.uint8).reshape(len(planes), -1, 8)
    arrays = [framework.share(array) for array in (planes, tensors.policy, tensors.values)]
    return SelfPlayBatch(*arrays, framework=framework.NAME, metadata=metadata)
