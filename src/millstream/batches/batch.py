"""TrainingBatch: ids, labels and masks of some rows, in the tensors of one framework.

`labels[i]` is the target of position i; -100 where there is no loss. The masks are made when they are read:
they follow from labels and row lengths, and each costs as much as the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, make_dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from millstream._core import Batch
from millstream.batches.columns import NO_COLUMNS, Columns
from millstream.batches.mapped import MappedBatch, no_name
from millstream.batches.masks import MASKS, NO_LOSS, MaskFields, check
from millstream.batches.rebuilt import GIVEN_FIELDS, fields_of
from millstream.batches.slicing import AnswerFields, PieceFields
from millstream.errors import BatchError
from millstream.tensors import backend, framework_of

COLUMNS = ("input_ids", "labels", "position_ids")
ALWAYS = frozenset(("epoch", "step", "rows", "sequence_length", "tokens"))
"""What the metadata of every batch has."""
REPLACED = (
    "input_ids", "labels", "lengths", "position_ids", "cu_seqlens", "max_seqlen", "loss_weights", "dense_mask",
    "metadata", "columns", "kl", "masks", "extras",
)  # fmt: skip
"""What `dataclasses.replace` hands on. The framework, and masks that were made, follow from the tensors."""
MODEL_FIELDS = ("input_ids", "attention_mask", "labels", "position_ids")
FIELDS = (*GIVEN_FIELDS, "seq_idx")


class TrainingBatch(AnswerFields, MaskFields, PieceFields, MappedBatch):
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

    Trainers may also set entries of their own; those of the batch stay as they are:

    >>> batch["use_cache"] = False
    >>> list(batch), batch["use_cache"]
    (['input_ids', 'attention_mask', 'labels', 'use_cache'], False)

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
        extras: Further entries of the mapping, as `batch[name] = …` sets them.
    """

    __slots__ = (
        "_attention_mask", "_given", "_lengths", "_loss_mask", "_metadata", "_native", "columns", "cu_seqlens",
        "dense_mask", "extras", "framework", "input_ids", "kl", "labels", "loss_weights", "max_seqlen", "position_ids",
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
        extras: Mapping[str, Any] | None = None,
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
        self.extras: dict[str, Any] = dict(extras) if extras else {}
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
        if name in self.extras:
            return self.extras[name]
        return getattr(self, name) if name in FIELDS else self._answer_field(name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Add an entry to the mapping, such as the `use_cache` of TRL's SFTTrainer; the batch's own are refused."""
        if not isinstance(name, str):
            raise no_name(name, "input_ids")
        if name in FIELDS or (name not in self.extras and name in self):
            raise BatchError(
                f"{name!r} of a batch cannot be set by its name",
                hint=f"make another batch by dataclasses.replace(batch, {name}=…), or change dict(batch)",
            )
        self.extras[name] = value

    def __contains__(self, name: object) -> bool:
        try:
            return self[str(name)] is not None
        except KeyError:
            return False

    def _inputs(self) -> Iterator[str]:
        """With labels="same" they are what models of Hugging Face take, which shift by themselves."""
        masked = self.cu_seqlens is None or self.dense_mask or "attention_mask" in self._given  # and none is made here
        there = {name: getattr(self, name) is not None for name in COLUMNS} | {"attention_mask": masked}
        own = (name for name in MODEL_FIELDS if there[name] and self.input_ids is not None)
        return chain(own, self.extras)

    def _first(self) -> Any:
        return self._tensor("input_ids")

    def pop(self, name: str) -> Any:
        """Take labels, positions or an entry that was set out of what a model takes, as trainers do.

        >>> batch = TrainingBatch.empty(1, 2)
        >>> batch.pop("labels").tolist(), list(batch)
        ([[-100, -100]], ['input_ids', 'attention_mask'])
        """
        if name in self.extras:
            return self.extras.pop(name)
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
        self.extras.clear()
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
            extras={
                name: field(name) if framework_of(value) == self.framework else value
                for name, value in self.extras.items()
            },
        )
        if self._is_without_labels:
            made.labels = None
        return made

    def _tensor(self, name: str) -> Any:
        if name in self.columns.tokens and self.metadata[name] is not None:
            return self.metadata[name]
        if name in self.extras:
            return self.extras[name]
        return super()._tensor(name if name not in self.columns.tokens else "input_ids")

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


def _unpickled(fields: dict[str, Any]) -> TrainingBatch:
    batch = TrainingBatch(**{**fields, "labels": fields["input_ids"] if fields["labels"] is None else fields["labels"]})
    batch.labels = fields["labels"]  # None: they were taken out
    return batch
