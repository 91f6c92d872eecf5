"""The masks of a batch: made when they are asked for, of labels and lengths, unless they were given.

Each costs as much as the ids. A mask that was given goes wherever the rows go; one that was made is made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from millstream.errors import BatchError
from millstream.tensors import backend

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch

NO_LOSS = -100
MASKS = ("attention_mask", "loss_mask")


class MaskFields:
    """What a batch says of which positions see each other, and which count."""

    __slots__ = ()
    _attention_mask: Any
    _loss_mask: Any
    _given: tuple[str, ...]
    """The names of masks that were given."""

    @property
    def masks(self) -> dict[str, Any]:
        """The masks that were given, by name; others follow from labels and lengths."""
        return {name: getattr(self, f"_{name}") for name in self._given}

    @property
    def attention_mask(self) -> Any:
        """1 for real tokens, 0 for padding. Isolated rows have no such mask: None, or the dense one if asked for."""
        batch = cast("TrainingBatch", self)
        isolated = batch.cu_seqlens is not None
        if isolated and not batch.dense_mask and "attention_mask" not in self._given:
            return None
        if self._attention_mask is None:
            self._attention_mask = self.dense_attention_mask() if isolated else batch._beside(self._attention())
        return self._attention_mask

    @property
    def loss_mask(self) -> Any:
        """1.0 where a label counts, 0.0 where it is -100."""
        if self._loss_mask is None:
            batch = cast("TrainingBatch", self)
            self._loss_mask = backend(batch.framework).floats(batch._tensor("labels") != NO_LOSS)
        return self._loss_mask

    @property
    def seq_idx(self) -> Any:
        """The number of each position's segment in its row, for models that scan (Mamba); None for rows of one."""
        batch = cast("TrainingBatch", self)
        if batch.cu_seqlens is None:
            return None
        segments = self._segments()
        return batch._beside((segments - segments[:, :1]).astype(np.int32))

    def _segments(self) -> npt.NDArray[np.int64]:
        """The number of each position's segment in the batch."""
        batch = cast("TrainingBatch", self)
        rows, length = batch._tensor("input_ids").shape
        starts = np.zeros(rows * length + 1, np.int64)
        starts[batch._numpy("cu_seqlens")] = 1
        return np.cumsum(starts[:-1]).reshape(rows, length)

    def dense_attention_mask(self) -> Any:
        """Build the causal mask (rows, 1, length, length): True where a query may see a key of its own segment.

        Every position sees itself, padding too: a softmax over nothing would be NaN.

        >>> from millstream import TrainingBatch
        >>> batch = TrainingBatch(np.array([[5, 0]]), np.array([[-100, -100]]), lengths=np.array([0], np.int32))
        >>> batch.dense_attention_mask().tolist()
        [[[[True, False], [False, True]]]]
        """
        batch = cast("TrainingBatch", self)
        length = int(batch._tensor("input_ids").shape[1])
        causal = np.tri(length, dtype=bool)
        if batch.cu_seqlens is None:
            mask = causal & (self._attention().astype(bool)[:, None, :] | np.eye(length, dtype=bool))
        else:
            segment = self._segments()
            mask = causal & (segment[:, :, None] == segment[:, None, :])
        return batch._beside(mask[:, None])

    def _attention(self) -> npt.NDArray[Any]:
        """Which tokens are real: as a mask says that was given, or those at the front of each row."""
        batch = cast("TrainingBatch", self)
        ids = batch._tensor("input_ids")
        if "attention_mask" in self._given and len(self._attention_mask.shape) == 2:
            return batch._numpy("attention_mask")
        dtype = np.dtype(str(ids.dtype).rpartition(".")[2])  # "torch.int64"
        if batch.lengths is None:
            return np.ones(tuple(ids.shape), dtype)
        return (np.arange(ids.shape[1]) < batch.lengths[:, None]).astype(dtype)

    def _check_fit(self) -> None:
        """Check shapes and kinds of numbers against the ids; no tensor is read for that."""
        batch = cast("TrainingBatch", self)
        ids, labels = batch._tensor("input_ids"), batch._tensor("labels")
        shape = _shape("input_ids", ids)
        if len(shape) != 2:
            raise _unfit(f"input_ids have shape {shape}, not (rows, length)")
        if _shape("labels", labels) != shape:
            raise _unfit(f"labels have shape {_shape('labels', labels)}, ids {shape}")
        for name, tensor in (("input_ids", ids), ("labels", labels)):
            if "int" not in str(tensor.dtype):
                raise _unfit(f"{name} are {tensor.dtype}, not integers")
        beside = [("position_ids", batch.position_ids), ("loss_weights", batch.loss_weights)]
        beside += [(name, batch.metadata.get(name)) for name in batch.columns.tokens]
        for name, tensor in beside:
            if tensor is not None and _shape(name, tensor)[:2] != shape:
                raise _unfit(f"{name} have shape {_shape(name, tensor)}, ids {shape}")
        for name, mask in self.masks.items():
            found = _shape(name, mask)
            if found != shape if len(found) == 2 else found[:1] != shape[:1]:
                raise _unfit(f"{name} has shape {found}, ids {shape}")
        if (lengths := batch.lengths) is not None:
            if _shape("lengths", lengths) != shape[:1]:
                raise _unfit(f"lengths have shape {_shape('lengths', lengths)}, ids {shape}: each row has one")
            if not bool(((lengths >= 0) & (lengths <= shape[1])).all()):
                raise _unfit(f"lengths are {lengths}, ids have shape {shape}: each is one of 0 to {shape[1]}")

    def _validate_segments(self, rows: int, length: int) -> None:
        batch = cast("TrainingBatch", self)
        starts = batch._numpy("cu_seqlens")
        ends = (int(starts[0]), int(starts[-1])) if starts.size else (None, None)
        check(ends == (0, rows * length), f"cu_seqlens go from {ends[0]} to {ends[1]}, not from 0 to {rows * length}")
        check(bool((np.diff(starts) > 0).all()), "cu_seqlens do not rise")
        check(bool(np.isin(np.arange(rows) * length, starts).all()), "a segment crosses from one row to the next")
        longest = int(np.diff(starts).max(initial=0))
        check(longest == batch.max_seqlen, f"max_seqlen is {batch.max_seqlen}, the longest segment {longest}")


def _shape(name: str, tensor: Any) -> tuple[int, ...]:
    if not hasattr(tensor, "shape"):
        raise BatchError(f"{name}: found {tensor!r}, not an array", hint="pass arrays, as numpy.array(…) makes them")
    return tuple(tensor.shape)


def check(holds: bool, problem: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Insist on something about a batch."""
    if not holds:
        raise _unfit(problem)


def _unfit(problem: str) -> BatchError:
    return BatchError(problem, hint="pass tensors that fit; if a loader gave this batch, a transform left it so")
