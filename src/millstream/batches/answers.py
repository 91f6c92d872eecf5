"""Batches of answers: the sides of pairs as batches of their own, and what TRL's trainers take.

The two rows of a pair are neighbours, the better answer first: whoever cuts or deals out a batch keeps them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.errors import BatchError
from millstream.tensors import backend

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch

_SIDES = {"chosen": 0, "rejected": 1}


def side(batch: TrainingBatch, name: str) -> dict[str, Any]:
    """The arguments of a batch with every second row, from the first or the second one on; tensors are views."""
    if batch.metadata.get("answers") != "preference":
        raise BatchError(f"these rows are no pairs, so there is no {name!r} side", hint="pairs are preference rows")
    rows = slice(_SIDES[name], None, 2)
    lengths = None if batch.lengths is None else batch.lengths[rows]
    tokens = batch.metadata["tokens"] if lengths is None else int(lengths.sum())
    facts = {key: value[rows] if isinstance(value, list) else value for key, value in batch.metadata.items()}
    facts = {key: value for key, value in facts.items() if key not in ("answers", "pairs")}
    return {
        "input_ids": batch._tensor("input_ids")[rows],
        "labels": batch._tensor("labels")[rows],
        "framework": batch.framework,
        "lengths": lengths,
        "loss_weights": None if batch.loss_weights is None else batch.loss_weights[rows],
        "metadata": {**facts, "rows": batch.metadata["rows"] // 2, "tokens": tokens},
    }


def trl_inputs(batch: TrainingBatch) -> dict[str, Any]:
    """What TRL's collators give its DPO and KTO trainers: see `TrainingBatch.trl_inputs`."""
    kind = batch.metadata.get("answers")
    if kind == "preference":
        order = np.arange(len(batch._numpy("input_ids"))).reshape(-1, 2).T.ravel()
        return _inputs(batch, order)
    if kind == "kto" and batch.kl is not None:
        every = np.arange(len(batch._numpy("input_ids")))
        mismatched = {f"KL_{name}": tensor for name, tensor in _inputs(batch.kl, every).items()}
        return {**_inputs(batch, every), **mismatched, "label": batch["label"]}
    raise BatchError("TRL has no collator for these rows", hint="preference and kto rows have one")


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
    make = backend(batch.framework).from_numpy
    return {name: make(column[rows]) for name, column in columns.items()}
