"""Parts of a batch: neighbouring rows, the sides of its pairs, what TRL's trainers take; and batches joined to one.

The two rows of a pair are neighbours, the better answer first: cutting or dealing out a batch keeps them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from millstream.batches.columns import ROW_FACTS, SUMS
from millstream.batches.masks import NO_LOSS
from millstream.errors import BatchError
from millstream.tensors import backend, framework_of

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch

_SIDES = {"chosen": 0, "rejected": 1}


class PieceFields:
    """Some rows of a batch as a batch, and batches as one."""

    __slots__ = ()

    def rows_between(self, start: int, stop: int) -> TrainingBatch:
        """Some neighbouring rows; tensors are views.

        >>> from millstream import TrainingBatch
        >>> TrainingBatch.empty(5, 2).rows_between(1, 3).metadata["rows"]
        2
        """
        from millstream.batches.batch import TrainingBatch  # a piece of a pool's batch is not the pool's

        batch = cast("TrainingBatch", self)
        ids = batch._tensor("input_ids")
        length = int(ids.shape[1])
        starts, longest = None, None
        if batch.cu_seqlens is not None:
            every = batch._numpy("cu_seqlens")
            inside = every[(every >= start * length) & (every <= stop * length)] - np.int32(start * length)
            longest = int(np.diff(inside).max(initial=0))
            starts = batch._beside(inside)
        lengths = None if batch.lengths is None else batch.lengths[start:stop]
        facts = batch.columns.cut(batch.metadata, start, stop)
        tokens = (stop - start) * length if lengths is None else int(lengths.sum())
        if "pairs" in batch.metadata:
            facts["pairs"] = (stop - start - sum(facts.get("filler", ()))) // 2
        if "loss_tokens" in batch.metadata:
            facts["loss_tokens"] = int((batch._numpy("labels")[start:stop] != NO_LOSS).sum())
        part = TrainingBatch(
            ids[start:stop],
            (ids if batch._is_without_labels else batch._tensor("labels"))[start:stop],
            framework=batch.framework,
            lengths=lengths,
            position_ids=None if batch.position_ids is None else batch.position_ids[start:stop],
            loss_weights=None if batch.loss_weights is None else batch.loss_weights[start:stop],
            cu_seqlens=starts,
            max_seqlen=longest,
            dense_mask=batch.dense_mask,
            metadata={
                **batch.metadata,
                **facts,
                "rows": stop - start - sum(facts.get("filler", ())),
                "tokens": tokens,
            },
            columns=batch.columns,
            masks={name: mask[start:stop] for name, mask in batch.masks.items()},
            extras={name: _cut(value, len(ids), start, stop) for name, value in batch.extras.items()},
        )
        part.kl = batch.kl and batch.kl.rows_between(start, stop)
        if batch._is_without_labels:
            part.labels = None
        return part

    @classmethod
    def merge(cls, batches: Iterable[TrainingBatch]) -> TrainingBatch:
        """Put the rows of several batches into one, in memory of its own.

        >>> from millstream import TrainingBatch
        >>> TrainingBatch.merge([TrainingBatch.empty(2, 3), TrainingBatch.empty(1, 3)]).metadata["rows"]
        3
        """
        parts = list(batches)
        if not parts:
            raise BatchError("there are no batches to merge", hint="merge at least one")
        kinds = {_kind(part) for part in parts}
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
            merged.kl = cls.merge(mismatched)
        merged.metadata.update(merged.columns.joined([part.metadata for part in parts]))
        return merged


def _kind(batch: TrainingBatch) -> tuple[object, ...]:
    """What batches must have in common to be merged."""
    fields = [name for name in ("position_ids", "cu_seqlens", "loss_weights") if getattr(batch, name) is not None]
    facts = [fact for fact in (*ROW_FACTS, "pairs") if fact in batch.metadata]
    fields += [f"its own {name}" for name in sorted((*batch._given, *batch.extras))]
    return batch.framework, tuple(batch._tensor("input_ids").shape[1:]), *fields, *facts, batch.columns


def _cut(value: Any, rows: int, start: int, stop: int) -> Any:
    """An entry that a trainer set, for some rows: a tensor with a place for each row is cut."""
    of_rows = framework_of(value) is not None and tuple(value.shape[:1]) == (rows,)
    return value[start:stop] if of_rows else value


def _joined(name: str, parts: list[TrainingBatch]) -> Any:
    arrays = [part._numpy(name) for part in parts]
    if name == "cu_seqlens":
        shifts = np.cumsum([0, *(array[-1] for array in arrays)])
        shifted = [array[:-1] + shift for array, shift in zip(arrays, shifts, strict=False)]
        return parts[0]._beside(np.concatenate([*shifted, shifts[-1:]]).astype(np.int32))
    first = parts[0]._tensor(name)
    return backend(parts[0].framework).to_device(parts[0]._beside(np.concatenate(arrays)), None, first.dtype)


class AnswerFields:
    """What a batch has besides tokens where its rows are answers."""

    __slots__ = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known of the rows."""
        raise NotImplementedError

    @property
    def unit(self) -> int:
        """Neighbouring rows that belong together: 2 where rows are pairs."""
        return 2 if self.metadata.get("answers") == "preference" else 1

    @property
    def chosen(self) -> TrainingBatch:
        """Of preference rows: the better answers; tensors are views of every second row.

        >>> from millstream import TrainingBatch
        >>> pairs = TrainingBatch.empty(4, 2)
        >>> pairs.metadata["answers"] = "preference"
        >>> pairs.chosen.metadata["rows"], pairs["rejected_input_ids"].shape
        (2, (2, 2))
        """
        return _side(cast("TrainingBatch", self), "chosen")

    @property
    def rejected(self) -> TrainingBatch:
        """Of preference rows: the worse answers, in the order of `chosen`."""
        return _side(cast("TrainingBatch", self), "rejected")

    def trl_inputs(self) -> dict[str, Any]:
        """Give what the collators of TRL give its trainers: input_ids, attention_mask and completion_mask.

        Of preference rows all better answers, then all worse ones; KTO rows have `label` and `KL_` fields besides.
        """
        batch, kind = cast("TrainingBatch", self), self.metadata.get("answers")
        rows = np.arange(int(batch._tensor("input_ids").shape[0]))
        if kind == "preference":
            return _inputs(batch, rows.reshape(-1, 2).T.ravel())
        if kind == "kto" and batch.kl is not None:
            mismatched = {f"KL_{name}": tensor for name, tensor in _inputs(batch.kl, rows).items()}
            return {**_inputs(batch, rows), **mismatched, "label": batch["label"]}
        raise BatchError("TRL has no collator for these rows", hint="preference and kto rows have one")

    def _answer_field(self, name: str) -> Any:
        """`label`, or a field of one side or of the mismatched rows: `chosen_input_ids`, `kl_labels`."""
        batch, (prefix, _, field) = cast("TrainingBatch", self), name.partition("_")
        if name == "label" and name in self.metadata:
            return batch._beside(np.array(self.metadata[name], np.bool_))
        if prefix in _SIDES and self.unit == 2:
            return _side(batch, prefix)[field]
        if prefix == "kl" and batch.kl is not None:
            return batch.kl[field]
        raise KeyError(name)


def _side(batch: TrainingBatch, name: str) -> TrainingBatch:
    """Every second row of a batch, from the first or the second one on; tensors are views."""
    if batch.unit != 2:
        raise BatchError(f"these rows are no pairs, so there is no {name!r} side", hint="pairs are preference rows")
    rows = slice(_SIDES[name], None, 2)
    lengths = None if batch.lengths is None else batch.lengths[rows]
    tokens = batch.metadata["tokens"] // 2 if lengths is None else int(lengths.sum())
    facts = {key: value[rows] if isinstance(value, list) else value for key, value in batch.metadata.items()}
    facts = {key: value for key, value in facts.items() if key not in ("answers", "pairs")}
    if "loss_tokens" in facts:
        facts["loss_tokens"] = int((batch._numpy("labels")[rows] >= 0).sum())
    return type(batch)(
        batch._tensor("input_ids")[rows],
        batch._tensor("labels")[rows],
        framework=batch.framework,
        lengths=lengths,
        loss_weights=None if batch.loss_weights is None else batch.loss_weights[rows],
        metadata={**facts, "rows": batch.metadata["rows"] // 2, "tokens": tokens},
        masks={name: mask[rows] for name, mask in batch.masks.items()},
    )


def _inputs(batch: TrainingBatch, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Some rows, and which of their tokens are the answer's: shifted labels say so one place ahead."""
    labels = batch._numpy("labels")
    answer = np.zeros_like(labels)
    shift = batch.metadata["label_shift"]
    answer[:, shift:] = labels[:, : labels.shape[1] - shift] >= 0
    columns = {
        "input_ids": batch._numpy("input_ids"),
        "attention_mask": batch._attention(),
        "completion_mask": answer,
    }
    return {name: batch._beside(column[rows]) for name, column in columns.items()}
