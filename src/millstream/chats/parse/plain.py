"""Rows without messages: plain text, judged steps, and rows that were tokenised elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.chats.parse.conversation import Document, Stepwise, Tokens
from millstream.chats.parse.fields import Row, flag, items, needed, text, wrong
from millstream.chats.parse.options import Options
from millstream.chats.parse.weights import MOST, bad_weight
from millstream.errors import RecordError

NO_LABEL = -100
LENGTHS = "lengths differ"
MASKS = ("loss_mask", "completion_mask", "assistant_masks")


def document_row(row: Row, how: Options) -> Document:
    """`text`."""
    found = text(needed(row, "text"), "text")
    if not found:
        raise RecordError("empty text", "'text' is empty", hint="leave such rows out")
    return Document(found)


def stepwise_row(row: Row, how: Options) -> Stepwise:
    """`prompt`, `completions` and one label for each."""
    prompt = text(needed(row, "prompt"), "prompt")
    steps, labels = items(needed(row, "completions"), "completions"), items(needed(row, "labels"), "labels")
    if len(steps) != len(labels):
        raise RecordError(LENGTHS, f"{len(steps)} completions and {len(labels)} labels", hint="each step has one label")
    if not steps:
        raise RecordError("empty conversation", "completions has no steps", hint="leave such rows out")
    texts = tuple(text(each, f"completions[{place}]") for place, each in enumerate(steps))
    return Stepwise(prompt, texts, tuple(flag(each, f"labels[{place}]") for place, each in enumerate(labels)))


def tokens_row(row: Row, how: Options) -> Tokens:
    """`input_ids`, and `labels` or masks of equal length; a token is learned if none of them forbids it."""
    ids = _column(needed(row, "input_ids"), "input_ids", "iu")
    if not len(ids):
        raise RecordError("empty row", "input_ids has no tokens", hint="leave such rows out")
    if ids.min() < 0 or ids.max() > 0xFFFFFFFF:
        raise RecordError(
            "bad token id", f"ids from {ids.min()} to {ids.max()}", hint="ids count from 0 and fit 32 bits"
        )
    weights = np.ones(len(ids), np.float32)
    if row.get("labels") is not None:
        labels = _same_length(_column(row["labels"], "labels", "iu"), "labels", ids)
        learned = labels != NO_LABEL
        if (other := np.flatnonzero(learned & (labels != ids))).size:
            place = int(other[0])
            found = f"labels[{place}] is {labels[place]}, input_ids[{place}] is {ids[place]}"
            hint = "a label is the id at the same place or -100; labels that were shifted must be shifted back"
            raise RecordError("labels are other ids", found, hint=hint)
        weights *= learned
    for name in MASKS:
        if row.get(name) is not None:
            mask = _same_length(_column(row[name], name, "iufb"), name, ids)
            outside = ~((mask >= 0) & (mask <= MOST))
            if outside.any():
                place = int(np.flatnonzero(outside)[0])
                raise bad_weight(f"{name}[{place}] is {mask[place]}")
            weights *= mask
    if (heaviest := weights.max()) > MOST:
        raise bad_weight(f"the masks together weigh a token {heaviest:g}")
    if row.get("attention_mask") is not None:
        attention = _same_length(_column(row["attention_mask"], "attention_mask", "iufb"), "attention_mask", ids)
        if not (attention == 1).all():
            found, hint = f"attention_mask is not 1 for {int((attention != 1).sum())} tokens", "store rows unpadded"
            raise RecordError("padded row", found, hint=hint)
    return Tokens(ids.astype(np.uint32), weights)


def _column(value: object, name: str, kinds: str) -> NDArray[Any]:
    """A flat array of numbers."""
    try:
        array = np.asarray(value if isinstance(value, np.ndarray) else items(value, name))
    except ValueError:  # lists of unequal length in it
        raise wrong(name, value, "an array of numbers") from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise wrong(
            name, value if not isinstance(value, np.ndarray) else value.tolist(), "a flat array of whole numbers"
        )
    return array


def _same_length(array: NDArray[Any], name: str, ids: NDArray[Any]) -> NDArray[Any]:
    if len(array) != len(ids):
        raise RecordError(
            LENGTHS, f"{len(array)} in {name} and {len(ids)} in input_ids", hint="they have one entry per token"
        )
    return array
