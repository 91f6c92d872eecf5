"""TrainingBatch: ids, labels and masks of some rows, in the tensors of one framework.

`labels[i]` is the target of position i; -100 where there is no loss. The masks are made when somebody asks for them:
they follow from labels and row lengths, and each costs as much as the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream._core import Batch
from millstream.batches.answers import AnswerFields
from millstream.batches.columns import NO_COLUMNS, ROW_FACTS, Columns
from millstream.errors import BatchError
from millstream.tensors import FRAMEWORKS, backend

NO_LOSS = -100
COLUMNS = ("input_ids", "labels", "position_ids")
MASKS = ("attention_mask", "loss_mask")
_SUMS = ("rows", "tokens", "pairs", "loss_tokens")
MODEL_FIELDS = ("input_ids", "attention_mask", "labels", "position_ids")
FIELDS = (*COLUMNS, *MASKS, "loss_weights", "cu_seqlens", "max_seqlen", "seq_idx")


class TrainingBatch(AnswerFields):
    """Rows that are ready to train on.

    >>> batch = TrainingBatch(np.array([[5, 6, 7]]), np.array([[6, 7, -100]]), framework="numpy")
    >>> batch["loss_mask"].tolist(), batch.attention_mask.tolist()
    ([[1.0, 1.0, 0.0]], [[1, 1, 1]])
    >>> batch.metadata["rows"], batch.metadata["sequence_length"], batch.metadata["tokens"]
    (1, 3, 3)
    """

    __slots__ = (
        "_attention_mask", "_lengths", "_loss_mask", "_native", "columns", "cu_seqlens", "dense_mask", "framework",
        "input_ids", "kl", "labels", "loss_weights", "max_seqlen", "metadata", "position_ids",
    )  # fmt: skip

    def __init__(
        self,
        input_ids: Any,
        labels: Any,
        *,
        framework: str = "numpy",
        lengths: npt.NDArray[np.int32] | None = None,
        position_ids: Any = None,
        cu_seqlens: Any = None,
        max_seqlen: int | None = None,
        loss_weights: Any = None,
        dense_mask: bool = False,
        metadata: dict[str, Any] | None = None,
        columns: Columns = NO_COLUMNS,
        native: Batch | None = None,
    ) -> None:
        self.framework = framework
        self.input_ids = input_ids
        self.labels = labels
        self._lengths = lengths
        self._native = native
        self.position_ids = position_ids
        self.cu_seqlens = cu_seqlens
        self.max_seqlen = max_seqlen
        self.loss_weights = loss_weights
        """What each label weighs in the loss; None where all weigh 0 or 1, as `loss_mask` says."""
        self.dense_mask = dense_mask
        """Whether `attention_mask` of isolated rows is the dense mask, for models that know no other way."""
        self.kl: TrainingBatch | None = None
        """Of KTO rows: each prompt with the answer of another row."""
        self._attention_mask = self._loss_mask = None
        if metadata is None:
            rows, length = (int(size) for size in input_ids.shape)
            tokens = rows * length if lengths is None else int(lengths.sum())
            metadata = {"epoch": 0, "step": 0, "rows": rows, "sequence_length": length, "tokens": tokens}
        self.metadata = metadata
        self.columns = columns
        """Which entries of the metadata belong to rows."""

    @classmethod
    def empty(cls, rows: int, length: int, *, framework: str = "numpy") -> TrainingBatch:
        """Make a batch of zeros without loss, to be written into."""
        make = backend(framework).from_numpy
        ids = np.zeros((rows, length), np.int64)
        return cls(make(ids), make(np.full_like(ids, NO_LOSS)), framework=framework)

    @property
    def lengths(self) -> npt.NDArray[np.int32] | None:
        """Real tokens of each row; None when every row is full."""
        if self._lengths is None and self._native is not None:
            self._lengths = self._native.lengths
        return self._lengths

    @property
    def attention_mask(self) -> Any:
        """1 for real tokens, 0 for padding. Isolated rows have no such mask: None, or the dense one if asked for."""
        isolated = self.cu_seqlens is not None
        if isolated and not self.dense_mask:
            return None
        if self._attention_mask is None:
            make = backend(self.framework).from_numpy
            self._attention_mask = self.dense_attention_mask() if isolated else make(self._attention())
        return self._attention_mask

    @property
    def loss_mask(self) -> Any:
        """1.0 where a label counts, 0.0 where it is -100."""
        if self._loss_mask is None:
            counts = self._numpy("labels") != NO_LOSS
            self._loss_mask = backend(self.framework).from_numpy(counts.astype(np.float32))
        return self._loss_mask

    @property
    def seq_idx(self) -> Any:
        """The number of each position's segment in its row, for models that scan (Mamba); None for rows of one."""
        if self.cu_seqlens is None:
            return None
        segments = self._segments()
        return backend(self.framework).from_numpy((segments - segments[:, :1]).astype(np.int32))

    def _segments(self) -> npt.NDArray[np.int64]:
        """The number of each position's segment in the batch."""
        rows, length = self._numpy("input_ids").shape
        starts = np.zeros(rows * length + 1, np.int64)
        starts[self._numpy("cu_seqlens")] = 1
        return np.cumsum(starts[:-1]).reshape(rows, length)

    def dense_attention_mask(self) -> Any:
        """Build the causal mask (rows, 1, length, length): True where a query may see a key of its own segment.

        Every position sees itself, padding too: a softmax over nothing would be NaN.

        >>> batch = TrainingBatch(np.array([[5, 0]]), np.array([[-100, -100]]), lengths=np.array([0], np.int32))
        >>> batch.dense_attention_mask().tolist()
        [[[[True, False], [False, True]]]]
        """
        length = self._numpy("input_ids").shape[1]
        causal = np.tri(length, dtype=bool)
        if self.cu_seqlens is None:
            mask = causal & (self._attention().astype(bool)[:, None, :] | np.eye(length, dtype=bool))
        else:
            segment = self._segments()
            mask = causal & (segment[:, :, None] == segment[:, None, :])
        return backend(self.framework).from_numpy(mask[:, None])

    def __getitem__(self, name: str) -> Any:
        if name in self.columns.tokens:
            return self.metadata[name]
        return getattr(self, name) if name in FIELDS else self._answer_field(name)

    def __contains__(self, name: object) -> bool:
        try:
            return self[str(name)] is not None
        except KeyError:
            return False

    def keys(self) -> Iterator[str]:
        """Names of what a model takes, as far as it is there: `model(**batch)` works (with labels="same" for models
        of Hugging Face, which shift by themselves)."""
        return (name for name in MODEL_FIELDS if name in self)

    def __repr__(self) -> str:
        place = ", ".join(f"{key}={self.metadata[key]}" for key in ("epoch", "step", "rows", "sequence_length"))
        return f"TrainingBatch({self.framework}, {place}{', released' if self.input_ids is None else ''})"

    def copy(self) -> TrainingBatch:
        """Copy everything into memory of its own, so that the loader may reuse its buffer."""
        make = backend(self.framework).from_numpy
        copied = self._with(lambda name: make(self._numpy(name).copy()), self.framework)
        copied.kl = self.kl and self.kl.copy()
        return copied

    def split(self, parts: int) -> list[TrainingBatch]:
        """Cut the rows into `parts` neighbouring batches that differ by at most one row (or pair); tensors are views.

        >>> [piece.metadata["rows"] for piece in TrainingBatch.empty(5, 2).split(2)]
        [3, 2]
        """
        if parts < 1:
            raise BatchError(f"a batch is split into at least 1 part, not {parts}", hint="pass parts=1 or more")
        samples = int(self._tensor("input_ids").shape[0]) // self.unit
        bounds = [part * (samples // parts) + min(part, samples % parts) for part in range(parts + 1)]
        return [self.rows_between(start * self.unit, stop * self.unit) for start, stop in pairwise(bounds)]

    @classmethod
    def merge(cls, batches: Iterable[TrainingBatch]) -> TrainingBatch:
        """Put the rows of several batches into one, in memory of its own.

        >>> TrainingBatch.merge([TrainingBatch.empty(2, 3), TrainingBatch.empty(1, 3)]).metadata["rows"]
        3
        """
        parts = list(batches)
        if not parts:
            raise BatchError("there are no batches to merge", hint="merge at least one")
        kinds = {part._kind() for part in parts}
        if len(kinds) != 1:
            raise BatchError(
                f"batches to merge differ in framework, row length or fields: {sorted(map(str, kinds))}",
                hint="merge batches of one loader, or pad them to one length",
            )
        make = backend(parts[0].framework).from_numpy
        merged = parts[0]._with(lambda name: make(_joined(name, parts)), parts[0].framework)
        if any(part.lengths is not None for part in parts):
            merged._lengths = np.concatenate([part._real_lengths() for part in parts])
        if merged.max_seqlen is not None:
            merged.max_seqlen = max(part.max_seqlen or 0 for part in parts)
        sums = {key: sum(part.metadata[key] for part in parts) for key in _SUMS if key in parts[0].metadata}
        merged.metadata.update(sums)
        if mismatched := [part.kl for part in parts if part.kl is not None]:
            merged.kl = TrainingBatch.merge(mismatched)
        merged.metadata.update(merged.columns.joined([part.metadata for part in parts]))
        return merged

    def validate(self) -> TrainingBatch:
        """Check that everything fits together; raises BatchError, returns the batch."""
        ids, labels = self._numpy("input_ids"), self._numpy("labels")
        _check(ids.ndim == 2, f"input_ids have shape {ids.shape}, not (rows, length)")
        _check(labels.shape == ids.shape, f"labels have shape {labels.shape}, ids {ids.shape}")
        for name, array in (("input_ids", ids), ("labels", labels)):
            _check(array.dtype.kind in "iu", f"{name} are {array.dtype}, not integers")
        _check(bool((ids >= 0).all()), "there are negative ids")
        _check(bool(((labels >= 0) | (labels == NO_LOSS)).all()), f"a label is negative but not {NO_LOSS}")
        fields = [name for name in ("position_ids", "loss_weights") if getattr(self, name) is not None]
        for name in (*fields, *self.columns.tokens):
            shape = self._numpy(name).shape
            _check(shape[:2] == ids.shape, f"{name} have shape {shape}, ids {ids.shape}")
        if self.lengths is not None:
            fits = self.lengths.shape == ids.shape[:1] and bool(
                ((self.lengths >= 0) & (self.lengths <= ids.shape[1])).all()
            )
            _check(fits, f"lengths are not one of 0 to {ids.shape[1]} per row")
        if self.cu_seqlens is not None:
            self._validate_segments(*ids.shape)
        return self

    def _validate_segments(self, rows: int, length: int) -> None:
        starts = self._numpy("cu_seqlens")
        ends = (int(starts[0]), int(starts[-1])) if starts.size else (None, None)
        _check(ends == (0, rows * length), f"cu_seqlens go from {ends[0]} to {ends[1]}, not from 0 to {rows * length}")
        _check(bool((np.diff(starts) > 0).all()), "cu_seqlens do not rise")
        _check(bool(np.isin(np.arange(rows) * length, starts).all()), "a segment crosses from one row to the next")
        longest = int(np.diff(starts).max(initial=0))
        _check(longest == self.max_seqlen, f"max_seqlen is {self.max_seqlen}, the longest segment {longest}")

    def release(self) -> None:
        """Let go of the tensors; the buffer returns to the pool when no other tensor looks at it."""
        self.input_ids = self.labels = self.position_ids = self.cu_seqlens = self.loss_weights = None
        self._lengths = self._native = self._attention_mask = self._loss_mask = None
        self.metadata.update(dict.fromkeys(self.columns.tokens))
        if self.kl is not None:
            self.kl.release()

    def to(self, target: str) -> TrainingBatch:
        """Convert to another framework ("numpy", "torch", "jax", "mlx") or move to a device ("cuda:0")."""
        if target in FRAMEWORKS:
            if target == self.framework:
                return self
            make = backend(target).from_numpy
            moved = self._with(lambda name: make(self._numpy(name)), target)
        else:
            move = backend(self.framework).to_device
            moved = self._with(lambda name: move(self._tensor(name), target), self.framework)
        moved.kl = self.kl and self.kl.to(target)
        return moved

    def _with(self, field: Callable[[str], Any], framework: str) -> TrainingBatch:
        """Make a batch of the same facts with every tensor made anew by `field`."""
        facts = {key: list(value) if isinstance(value, list) else value for key, value in self.metadata.items()}
        return TrainingBatch(
            field("input_ids"),
            field("labels"),
            framework=framework,
            lengths=None if self.lengths is None else self.lengths.copy(),
            position_ids=None if self.position_ids is None else field("position_ids"),
            cu_seqlens=None if self.cu_seqlens is None else field("cu_seqlens"),
            loss_weights=None if self.loss_weights is None else field("loss_weights"),
            max_seqlen=self.max_seqlen,
            dense_mask=self.dense_mask,
            metadata={**facts, **{name: field(name) for name in self.columns.tokens}},
            columns=self.columns,
        )

    def rows_between(self, start: int, stop: int) -> TrainingBatch:
        """Some neighbouring rows; tensors are views.

        >>> TrainingBatch.empty(5, 2).rows_between(1, 3).metadata["rows"]
        2
        """
        length = int(self.input_ids.shape[1])
        starts, longest = None, None
        if self.cu_seqlens is not None:
            every = self._numpy("cu_seqlens")
            inside = every[(every >= start * length) & (every <= stop * length)] - np.int32(start * length)
            longest = int(np.diff(inside).max(initial=0))
            starts = backend(self.framework).from_numpy(inside)
        lengths = None if self.lengths is None else self.lengths[start:stop]
        facts = self.columns.cut(self.metadata, start, stop)
        tokens = (stop - start) * length if lengths is None else int(lengths.sum())
        if "pairs" in self.metadata:
            facts["pairs"] = (stop - start - sum(facts.get("filler", ()))) // 2
        if "loss_tokens" in self.metadata:
            facts["loss_tokens"] = int((self._numpy("labels")[start:stop] != NO_LOSS).sum())
        part = TrainingBatch(
            self.input_ids[start:stop],
            self.labels[start:stop],
            framework=self.framework,
            lengths=lengths,
            position_ids=None if self.position_ids is None else self.position_ids[start:stop],
            loss_weights=None if self.loss_weights is None else self.loss_weights[start:stop],
            cu_seqlens=starts,
            max_seqlen=longest,
            dense_mask=self.dense_mask,
            metadata={
                **self.metadata,
                **facts,
                "rows": stop - start - sum(facts.get("filler", ())),
                "tokens": tokens,
            },
            columns=self.columns,
        )
        part.kl = self.kl and self.kl.rows_between(start, stop)
        return part

    def _numpy(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = backend(self.framework).to_numpy(self._tensor(name))
        return array

    def _tensor(self, name: str) -> Any:
        tensor = self.metadata[name] if name in self.columns.tokens else getattr(self, name)
        if tensor is None:
            raise BatchError("this batch was released", hint="use it before release(), or keep a batch.copy() of it")
        return tensor

    def _kind(self) -> tuple[object, ...]:
        """What batches must have in common to be merged."""
        fields = [name for name in ("position_ids", "cu_seqlens", "loss_weights") if getattr(self, name) is not None]
        facts = [fact for fact in (*ROW_FACTS, "pairs") if fact in self.metadata]
        return self.framework, tuple(self._tensor("input_ids").shape[1:]), *fields, *facts, self.columns

    def _real_lengths(self) -> npt.NDArray[np.int32]:
        rows, length = (int(size) for size in self.input_ids.shape)
        return np.full(rows, length, np.int32) if self.lengths is None else self.lengths

    def _attention(self) -> npt.NDArray[Any]:
        ids = self._numpy("input_ids")
        if self.lengths is None:
            return np.ones_like(ids)
        return (np.arange(ids.shape[1]) < self.lengths[:, None]).astype(ids.dtype)


def _joined(name: str, parts: list[TrainingBatch]) -> npt.NDArray[Any]:
    arrays = [part._numpy(name) for part in parts]
    if name != "cu_seqlens":
        return np.concatenate(arrays)
    shifts = np.cumsum([0, *(array[-1] for array in arrays)])
    shifted = [array[:-1] + shift for array, shift in zip(arrays, shifts, strict=False)]
    return np.concatenate([*shifted, shifts[-1:]]).astype(np.int32)


def _check(holds: bool, problem: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise BatchError(problem, hint="a transform, or whoever put the batch together, left it so")
