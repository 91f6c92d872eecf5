"""The tensors of a step -> the batch that a trainer gets, in its framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.batches.self_play import SelfPlayBatch
from millstream.live.tensor_maker import Tensors


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
