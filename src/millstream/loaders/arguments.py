"""What a caller passes to a loader or its methods: checked once, and unknown keywords named as they are called here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from millstream.errors import LoaderError, OrderError
from millstream.loaders.settings import positive, whole
from millstream.storage import MOST_COUNT

MOST_ROWS = 2**31
_OURS = {
    "assistant_only_loss": 'train="assistant", the default',
    "chat_template_path": "chat_template=",
    "completion_only_loss": 'train="completion"',
    "cutoff_len": "max_length=",
    "dataset_text_field": 'columns={"text": "the field"}',
    "gradient_accumulation_steps": "accumulation=",
    "group_size": 'live={"group_size": …} of a feed; groups of a fixed set are as large as they are',
    "mask_history": 'train="last"',
    "max_seq_len": "max_length=",
    "max_seq_length": "max_length=",
    "num_workers": "threads=",
    "packing_strategy": "packing=True, by best fit",
    "padding_free": "packing=True",
    "per_device_train_batch_size": "batch_size=",
    "sample_packing": "packing=True",
    "seq_len": "max_length=",
    "train_on_inputs": 'train="all"',
    "truncation_mode": 'truncation="keep_start" or "keep_end"',
}


def asked_step(step: object) -> int:
    """Insist on the number of a step.

    >>> asked_step(np.int64(3))
    3
    >>> asked_step("3")
    Traceback (most recent call last):
    millstream.errors.OrderError: there is no step '3'
      hint: steps are whole numbers that count from 0, as batch.metadata['step'] says them
    """
    number = whole(step)
    if number is None or number < 0:
        raise OrderError(
            f"there is no step {step!r}",
            hint="steps are whole numbers that count from 0, as batch.metadata['step'] says them",
        )
    if number >= MOST_COUNT:
        raise OrderError(f"there is no step {number}", hint="no run is that long")
    return number


def asked_rows(batch_size: object) -> int:
    """Insist on a number of rows that a batch can have.

    >>> asked_rows(4)
    4
    """
    if type(batch_size) is int and 0 < batch_size <= MOST_ROWS:
        return batch_size  # what almost every call passes
    rows = positive("batch_size", batch_size)
    if rows > MOST_ROWS:
        raise LoaderError(f"batch_size={rows} is too many: a batch has at most 2**31 rows", hint="ask for fewer rows")
    return rows


def asked_place(after: Any, before: Any, next_step: int) -> int:
    """The step at which a state stands: after a batch or a step, before one, or, by default, at the next step.

    >>> asked_place(None, None, 5), asked_place(2, None, 5), asked_place(None, 2, 5)
    (5, 3, 2)
    """
    if after is not None and before is not None:
        raise LoaderError("a state stands after a batch or before one, not both", hint="pass one of them")
    if after is None and before is None:
        return next_step
    if isinstance(after, int | np.integer) and after < 0:
        raise LoaderError(f"there is no step {after}", hint="steps count from 0; before=0 is the beginning")
    step = _step_of(before) if after is None else _step_of(after) + 1
    if not 0 <= step <= next_step:
        raise LoaderError(
            f"a state at step {step} was asked for, and the next step is {next_step}",
            hint="pass a batch that this loader has delivered since its last reset(), seek() or load_state_dict()",
        )
    return step


def _step_of(batch: Any) -> int:
    """The step of a batch, of micro-batches, or the number itself."""
    if isinstance(batch, int | np.integer) and not isinstance(batch, bool):
        return int(batch)
    steps = {_metadata_of(each).get("step") for each in (batch if isinstance(batch, list) else [batch])}
    step = steps.pop() if len(steps) == 1 else None
    if not isinstance(step, int):
        raise LoaderError(
            f"{type(batch).__name__} does not say which step it is",
            hint="pass a batch of this loader, or its step number: batch.metadata['step']",
        )
    return step


def _metadata_of(batch: Any) -> Mapping[str, Any]:
    metadata = getattr(batch, "metadata", None)
    return metadata if isinstance(metadata, Mapping) else {}


def refuse_unknown(given: Iterable[str], *known: Iterable[str]) -> None:
    """Refuse an unknown keyword, and name the one that was meant.

    >>> refuse_unknown(["max_seq_length"], ["max_length", "packing"])
    Traceback (most recent call last):
    TypeError: unknown keyword 'max_seq_length'; here it is max_length=
    >>> refuse_unknown(["pakcing"], ["max_length", "packing"])
    Traceback (most recent call last):
    TypeError: unknown keyword 'pakcing'; did you mean 'packing'? there are max_length, packing
    """
    names = list(dict.fromkeys(name for some in known for name in some))
    for name in given:
        if name in names:
            continue
        if name in _OURS:
            raise TypeError(f"unknown keyword {name!r}; here it is {_OURS[name]}")
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise TypeError(f"unknown keyword {name!r}; {meant}there are {', '.join(names)}")
