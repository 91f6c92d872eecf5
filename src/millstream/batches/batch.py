"""TrainingBatch: ids, labels and masks of some rows, in the tensors of one framework.

`labels[i]` is the target of position i; -100 where there is no loss. The masks are made when somebody asks for them:
they follow from labels and row lengths, and each costs as much as the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, make_dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from millstream._core import Batch
from millstream.batches.answers import AnswerFields
from millstream.batches.columns import NO_COLUMNS, ROW_FACTS, SUMS, Columns
from millstream.batches.mapped import MappedBatch, no_name
from millstream.batches.masks import MASKS, NO_LOSS, MaskFields, check
from millstream.batches.remade import GIVEN_FIELDS, fields_of
from millstream.errors import BatchError
from millstream.tensors import backend, framework_of

COLUMNS = ("input_ids", "labels", "position_ids")
ALWAYS = frozenset(("epoch", "step", "rows", "sequence_length", "tokens"))
"""What the metadata of every batch has."""
REPLACED = (
    "input_ids", "labels", "lengths", "position_ids", "cu_seqlens", "max_seqlen", "loss_weights", "dense_mask",
    "metadata", "columns", "kl", "masks",
)  # fmt: skip
"""What `dataclasses.replace` hands on. The framework, and masks that were made, follow from the tensors."""
MODEL_FIELDS = ("input_ids", "attention_mask", "labels", "position_ids")
FIELDS = (*GIVEN_FIELDS, "seq_idx")


class TrainingBatch(AnswerFields, MaskFields, MappedBatch):
    """Rows that are ready to train on: a mapping of what a model takes, so that `model(**batch)` works.

    `dataclasses.replace(batch, labels=…)` and `copy.copy(batch)` give another one that shares its tensors; a pickle
    holds a copy of them.

    >>> batch = TrainingBatch(np.array([[5, 6, 7]]), np.array([[6, 7, -100]]))
    >>> batch["loss_mask"].tolist(), batch.attention_mask.tolist()
    ([[1.0, 1.0, 0.0]], [[1, 1, 1]])
    >>> batch.metadata["rows"], batch.metadata["sequence_length"], batch.metadata["tokens"]
    (1, 3, 3)
    >>> mask = np.array([[1, 1, 0]])
    >>> masked = TrainingBatch(batch.input_ids, batch.labels, attention_mask=mask, metadata={"mine": 7})
    >>> masked.lengths.tolist(), masked.metadata["tokens"], masked.metadata["mine"]
    ([2], 2, 7)

    Trainers make a batch anew of its items. What is no input of a model, metadata too, comes along:

    >>> list(masked), len(masked)
    (['input_ids', 'attention_mask', 'labels'], 3)
    >>> TrainingBatch({name: tensor.copy() for name, tensor in masked.items()}).metadata["mine"]
    7

    Args:
        input_ids: (rows, length), of any framework; all tensors of a batch are of one. Or a mapping of all of them.
        labels: The target of each position; -100 where there is none.
        attention_mask: 1 for real tokens, 0 for padding; by default made when it is asked for, of `lengths`.
        loss_mask: Where labels count; by default where they are not -100.
        framework: Of the tensors; by default that of `input_ids`.
        lengths: Real tokens of each row; by default what `attention_mask` says, or all.
        position_ids: Of packed rows, as are `cu_seqlens` and `max_seqlen`.
        loss_weights: What each label weighs in the loss; None where all weigh 0 or 1, as `loss_mask` says.
        dense_mask: Whether `attention_mask` of isolated rows is the dense mask, for models that know no other way.
        metadata: What else is known; `epoch`, `step`, `rows`, `sequence_length` and `tokens` are added if need be.
        columns: Which entries of the metadata belong to rows.
        kl: Of KTO rows: each prompt with the answer of another row.
        masks: Of another batch whose masks were given; those that are named themselves come first.
    """

    __slots__ = (
        "_attention_mask", "_given", "_lengths", "_loss_mask", "_metadata", "_native", "columns", "cu_seqlens",
        "dense_mask", "framework", "input_ids", "kl", "labels", "loss_weights", "max_seqlen", "position_ids",
    )  # fmt: skip
    __dataclass_fields__: ClassVar[dict[str, Any]] = {each.name: each for each in fields(make_dataclass("_", REPLACED))}

    def __init__(
        self,
        input_ids: Any,
        labels: Any = None,
        *,
        attention_mask: Any = None,
        loss_mask: Any = None,
        framework: str | None = None,
        lengths: npt.NDArray[np.int32] | None = None,
        position_ids: Any = None,
        cu_seqlens: Any = None,
        max_seqlen: int | None = None,
        loss_weights: Any = None,
        dense_mask: bool = False,
        metadata: Mapping[str, Any] | None = None,
        columns: Columns = NO_COLUMNS,
        kl: TrainingBatch | None = None,
        masks: Mapping[str, Any] | None = None,
        native: Batch | None = None,
    ) -> None:
        if native is None and isinstance(input_ids, Mapping):
            beside = (labels, attention_mask, loss_mask, lengths, position_ids, cu_seqlens, loss_weights, kl, masks)
            fields, made = fields_of(TrainingBatch, input_ids, metadata, alone=all(each is None for each in beside))
            TrainingBatch.__init__(self, **fields)
            for name, mask in made.items():
                setattr(self, f"_{name}", mask)
            return
        self.framework = _framework(input_ids, labels) if framework is None else framework
        self.input_ids, self.labels = input_ids, labels
        self._lengths, self._native = lengths, native
        self.position_ids, self.cu_seqlens, self.max_seqlen = position_ids, cu_seqlens, max_seqlen
        self.loss_weights, self.dense_mask, self.columns, self.kl = loss_weights, dense_mask, columns, kl
        self._attention_mask, self._loss_mask = attention_mask, loss_mask
        self._given = ()
        if masks or attention_mask is not None or loss_mask is not None:
            for name, mask in (masks or {}).items():
                if getattr(self, f"_{name}") is None:
                    setattr(self, f"_{name}", mask)
            self._given = tuple(name for name in MASKS if getattr(self, f"_{name}") is not None)
        try:
            self._metadata = dict(metadata or {})
        except (TypeError, ValueError):
            raise _no_metadata(metadata) from None
        if native is None:  # the engine's own columns fit
            self._check_fit()
        if attention_mask is not None and len(attention_mask.shape) == 2:
            self._lengths = self._attention().astype(bool).sum(axis=1, dtype=np.int32)
        if not ALWAYS.issubset(self._metadata):
            self._metadata = {**self._known(), **self._metadata}

    def _known(self) -> dict[str, Any]:
        """What the metadata always has, as far as the tensors say it."""
        rows, length = (int(size) for size in self.input_ids.shape)
        tokens = int(self._real_lengths().sum())
        rows -= sum(self._metadata.get("filler", ()))
        return {"epoch": 0, "step": 0, "rows": rows, "sequence_length": length, "tokens": tokens}

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known of the rows: always `epoch`, `step`, `rows`, `sequence_length` and `tokens`.

        >>> batch = TrainingBatch.empty(2, 3)
        >>> batch.metadata = {"mine": 7}
        >>> batch.metadata
        {'epoch': 0, 'step': 0, 'rows': 2, 'sequence_length': 3, 'tokens': 6, 'mine': 7}
        """
        return self._metadata

    @metadata.setter
    def metadata(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise _no_metadata(given)
        self._metadata = {**{key: self._metadata[key] for key in self._metadata if key in ALWAYS}, **given}

    def __copy__(self) -> TrainingBatch:
        return replace(self)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self.copy()  # of a view, torch would pickle everything that it is a view of
        return _unpickled, ({name: getattr(whole, name) for name in (*REPLACED, "framework")},)

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

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise no_name(name, "input_ids")
        if name in self.columns.tokens:
            return self.metadata[name]
        return getattr(self, name) if name in FIELDS else self._answer_field(name)

    def __contains__(self, name: object) -> bool:
        try:
            return self[str(name)] is not None
        except KeyError:
            return False

    def _inputs(self) -> Iterator[str]:
        """With labels="same" they are what models of Hugging Face take, which shift by themselves."""
        masked = self.cu_seqlens is None or self.dense_mask or "attention_mask" in self._given  # and none is made here
        there = {name: getattr(self, name) is not None for name in COLUMNS} | {"attention_mask": masked}
        return (name for name in MODEL_FIELDS if there[name] and self.input_ids is not None)

    def _first(self) -> Any:
        return self._tensor("input_ids")

    def pop(self, name: str) -> Any:
        """Take labels or positions out of what a model takes, as trainers do that compute the loss themselves.

        >>> batch = TrainingBatch.empty(1, 2)
        >>> batch.pop("labels").tolist(), list(batch)
        ([[-100, -100]], ['input_ids', 'attention_mask'])
        """
        if name not in ("labels", "position_ids"):
            raise BatchError(f"{name!r} cannot be taken out of a batch", hint="take it out of dict(batch)")
        taken = self._tensor(name)
        setattr(self, name, None)
        return taken

    @property
    def _is_without_labels(self) -> bool:
        """Whether labels were taken out, and everything else is there."""
        return self.labels is None and self.input_ids is not None

    def __repr__(self) -> str:
        shown = [key for key in ("epoch", "step", "rows", "sequence_length") if key in self.metadata]
        place = [f"{key}={self.metadata[key]}" for key in shown]
        released = ["released"] if self.input_ids is None else []
        return f"TrainingBatch({', '.join([self.framework, *place, *released])})"

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
        some_short = any(part.lengths is not None for part in parts)
        lengths = np.concatenate([part._real_lengths() for part in parts]) if some_short else None
        merged = parts[0]._with(lambda name: _joined(name, parts), parts[0].framework, lengths)
        if merged.max_seqlen is not None:
            merged.max_seqlen = max(part.max_seqlen or 0 for part in parts)
        sums = {key: sum(part.metadata[key] for part in parts) for key in SUMS if key in parts[0].metadata}
        merged.metadata.update(sums)
        if "step" in merged.metadata:
            merged.metadata["step"] = max(part.metadata.get("step", 0) for part in parts)
        if mismatched := [part.kl for part in parts if part.kl is not None]:
            merged.kl = TrainingBatch.merge(mismatched)
        merged.metadata.update(merged.columns.joined([part.metadata for part in parts]))
        return merged

    def validate(self) -> TrainingBatch:
        """Check that everything fits together; raises BatchError, returns the batch."""
        ids, labels = self._numpy("input_ids"), self._numpy("labels")
        self._check_fit()
        check(bool((ids >= 0).all()), "there are negative ids")
        check(bool(((labels >= 0) | (labels == NO_LOSS)).all()), f"a label is negative but not {NO_LOSS}")
        if self.cu_seqlens is not None:
            self._validate_segments(*ids.shape)
        return self

    def release(self) -> None:
        """Let go of the tensors; the buffer returns to the pool when no other tensor looks at it."""
        self.input_ids = self.labels = self.position_ids = self.cu_seqlens = self.loss_weights = None
        self._lengths = self._native = self._attention_mask = self._loss_mask = None
        self.metadata.update(dict.fromkeys(self.columns.tokens))
        if self.kl is not None:
            self.kl.release()

    def _each(self, field: Callable[[Any, str], Any], framework: str) -> TrainingBatch:
        made = self._with(lambda name: field(self, name), framework)
        made.kl = self.kl and self.kl._each(field, framework)
        return made

    def _with(
        self, field: Callable[[str], Any], framework: str, lengths: npt.NDArray[np.int32] | None = None
    ) -> TrainingBatch:
        """Make a batch of the same facts with every tensor made anew by `field`; by default rows stay as long."""
        facts = {key: list(value) if isinstance(value, list) else value for key, value in self.metadata.items()}
        made = TrainingBatch(
            field("input_ids"),
            field("input_ids" if self._is_without_labels else "labels"),
            framework=framework,
            lengths=lengths if lengths is not None or self.lengths is None else self.lengths.copy(),
            position_ids=None if self.position_ids is None else field("position_ids"),
            cu_seqlens=None if self.cu_seqlens is None else field("cu_seqlens"),
            loss_weights=None if self.loss_weights is None else field("loss_weights"),
            max_seqlen=self.max_seqlen,
            dense_mask=self.dense_mask,
            metadata={**facts, **{name: field(name) for name in self.columns.tokens}},
            columns=self.columns,
            masks={name: field(name) for name in self._given},
        )
        if self._is_without_labels:
            made.labels = None
        return made

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
            starts = self._beside(inside)
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
            masks={name: mask[start:stop] for name, mask in self.masks.items()},
        )
        part.kl = self.kl and self.kl.rows_between(start, stop)
        return part

    def _tensor(self, name: str) -> Any:
        if name in self.columns.tokens and self.metadata[name] is not None:
            return self.metadata[name]
        return super()._tensor(name if name not in self.columns.tokens else "input_ids")

    def _kind(self) -> tuple[object, ...]:
        """What batches must have in common to be merged."""
        fields = [name for name in ("position_ids", "cu_seqlens", "loss_weights") if getattr(self, name) is not None]
        facts = [fact for fact in (*ROW_FACTS, "pairs") if fact in self.metadata]
        fields += [f"its own {name}" for name in sorted(self._given)]
        return self.framework, tuple(self._tensor("input_ids").shape[1:]), *fields, *facts, self.columns

    def _real_lengths(self) -> npt.NDArray[np.int32]:
        rows, length = (int(size) for size in self.input_ids.shape)
        return np.full(rows, length, np.int32) if self.lengths is None else self.lengths


def _framework(input_ids: Any, labels: Any) -> str:
    """The framework of both."""
    found = framework_of(input_ids)
    if input_ids is None:
        raise BatchError("this batch was released", hint="use it before release(), or keep a batch.copy() of it")
    if found is None or len(input_ids.shape) != 2:
        what = type(input_ids).__name__ if found is None else f"a tensor of shape {tuple(input_ids.shape)}"
        raise BatchError(f"input_ids are {what}, not (rows, length)", hint="pass arrays, as numpy.array(…) makes them")
    if framework_of(labels) != found:
        raise BatchError(
            f"input_ids are of {found}, labels {framework_of(labels) or type(labels).__name__}",
            hint="pass all tensors of a batch in one framework; batch.to(…) converts them",
        )
    return found


def _no_metadata(found: object) -> BatchError:
    return BatchError(f"metadata is {found!r}, not facts by their names", hint='pass a dict: metadata={"mine": 7}')


def _joined(name: str, parts: list[TrainingBatch]) -> Any:
    arrays = [part._numpy(name) for part in parts]
    if name == "cu_seqlens":
        shifts = np.cumsum([0, *(array[-1] for array in arrays)])
        shifted = [array[:-1] + shift for array, shift in zip(arrays, shifts, strict=False)]
        return parts[0]._beside(np.concatenate([*shifted, shifts[-1:]]).astype(np.int32))
    first = parts[0]._tensor(name)
    return backend(parts[0].framework).to_device(parts[0]._beside(np.concatenate(arrays)), None, first.dtype)


def _unpickled(fields: dict[str, Any]) -> TrainingBatch:
    batch = TrainingBatch(**{**fields, "labels": fields["input_ids"] if fields["labels"] is None else fields["labels"]})
    batch.labels = fields["labels"]  # None: they were taken out
    return batch
