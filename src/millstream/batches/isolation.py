"""Do the conversations of a packed row stay apart in a model? That depends on the model, so it is tried."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches.batch import TrainingBatch
from millstream.errors import LoaderError
from millstream.tensors import backend


def check_isolation(model: Any, batch: TrainingBatch, *, tolerance: float | None = None) -> float:
    """Run a packed row through a torch model, whole and segment by segment, and compare the logits.

    The model gets exactly what `model(**batch)` would give it. Returns the largest difference, or raises LoaderError
    where it is larger than rounding explains (`tolerance`: by default the root of the precision, times the largest
    logit): then tokens of one conversation change the logits of another, and training is wrong without a sign of it.

    >>> import torch
    >>> ids = np.array([[5, 6, 7, 8]])
    >>> starts = np.array([0, 2, 4], np.int32)
    >>> batch = TrainingBatch(ids, ids, position_ids=np.array([[0, 1, 0, 1]]), cu_seqlens=starts, max_seqlen=2)
    >>> class Apart(torch.nn.Module):
    ...     def forward(self, input_ids, **others):
    ...         return torch.nn.functional.one_hot(input_ids, 10).float()
    >>> class Together(Apart):
    ...     def forward(self, input_ids, **others):
    ...         return super().forward(input_ids).cumsum(1)
    >>> check_isolation(Apart(), batch)
    0.0
    >>> check_isolation(Together(), batch)
    Traceback (most recent call last):
    millstream.errors.LoaderError: packed conversations see each other: logits differ by up to 1 ...
    """
    run = backend("torch").logits
    row, bounds = _fullest_row(batch)
    whole, precision = run(model, _part(batch, row, 0, bounds[-1], bounds))
    alone = [run(model, _part(batch, row, *ends, np.array(ends)))[0][0] for ends in pairwise(bounds)]
    apart = np.concatenate(alone)
    worst = float(np.abs(apart - whole[0]).max())
    allowed = precision**0.5 * float(np.abs(apart).max()) if tolerance is None else tolerance
    if not worst <= allowed:
        raise LoaderError(
            f"packed conversations see each other: logits differ by up to {worst:.3g} from those of each conversation "
            f"alone, and rounding explains {allowed:.3g}",
            hint="set model.config.use_cache=False and pass no attention_mask of your own; else choose an "
            "attn_implementation that knows packed rows (flash_attention_2, sdpa), or isolation='block_mask' with sdpa "
            "(eager attention adds masks, and a boolean one hides nothing)",
        )
    return worst


def _fullest_row(batch: TrainingBatch) -> tuple[int, npt.NDArray[np.int64]]:
    """The row with most segments, and where those start and the last one ends."""
    if batch.cu_seqlens is None:
        raise LoaderError(
            "this batch does not say which conversations its rows hold",
            hint="make it with packing=True and isolation='varlen' or 'block_mask'",
        )
    arrays = batch.to("numpy")
    rows, length = arrays.input_ids.shape
    starts = np.asarray(arrays.cu_seqlens, np.int64)
    lengths = np.full(rows, length) if arrays.lengths is None else arrays.lengths
    found = [starts[(starts >= row * length) & (starts < row * length + lengths[row])] for row in range(rows)]
    best = max(range(rows), key=lambda row: len(found[row]), default=0)
    if rows == 0 or len(found[best]) < 2:
        raise LoaderError(
            "no row of this batch holds two conversations, so nothing can be compared",
            hint="use a larger batch_size or max_length for this check",
        )
    return best, np.append(found[best] - best * length, lengths[best])


def _part(batch: TrainingBatch, row: int, start: int, stop: int, bounds: npt.NDArray[np.int64]) -> TrainingBatch:
    """Places [start, stop) of a row as a batch of its own, with the same fields."""
    arrays = batch.to("numpy")
    return TrainingBatch(
        arrays.input_ids[row : row + 1, start:stop],
        arrays.labels[row : row + 1, start:stop],
        lengths=np.array([stop - start], np.int32),
        position_ids=arrays.position_ids[row : row + 1, start:stop],
        cu_seqlens=(bounds - start).astype(np.int32),
        max_seqlen=int(np.diff(bounds).max()),
        dense_mask=batch.dense_mask,
    ).to("torch")
