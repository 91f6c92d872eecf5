"""Keywords that other trainers have for what is asked of a loader of conversations, and ours for the same."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

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


def refuse_unknown(given: Iterable[str], *known: Iterable[str]) -> None:
    """Refuse a keyword that nobody takes, and name the one that was meant.

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
