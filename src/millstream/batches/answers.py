"""Batches of answers: the sides of pairs as batches of their own, and what TRL's trainers take.

The two rows of a pair are neighbours, the better answer first: whoever cuts or deals out a batch keeps them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from millstream.errors import BatchError

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch

_SIDES = {"chosen": 0, "rejected": 1}


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
