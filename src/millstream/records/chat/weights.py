"""The training flags that tools write into messages and parts, brought to one weight and a list of stretches.

`weight` and `loss_scale` are numbers; `train`, `training` and `loss` say yes or no, `masked` says the opposite;
`training_detail` (or `train_detail`) lists stretches by character, the last one included.
"""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import Any

from millstream.errors import RecordError
from millstream.records.chat.conversation import Stretch
from millstream.records.chat.fields import Row, flag, items, mapping, needed, shown, wrong

MOST = 1e6
_NUMBERS = ("weight", "loss_scale")
_YES = ("train", "training", "loss")
_NO = "masked"
_DETAILS = ("training_detail", "train_detail")


def weight_of(row: Row, where: str) -> float | None:
    """What a message or a part says about its loss; None if it says nothing.

    >>> weight_of({"weight": 0.5}, ""), weight_of({"masked": True}, ""), weight_of({"role": "user"}, "")
    (0.5, 0.0, None)
    """
    said: dict[str, float] = {}
    for name in _NUMBERS:
        if (value := row.get(name)) is not None:
            said[name] = number(value, f"{where}.{name}")
    for name in _YES:
        if (value := row.get(name)) is not None:
            said[name] = float(flag(value, f"{where}.{name}"))
    if (value := row.get(_NO)) is not None:
        said[_NO] = float(not flag(value, f"{where}.{_NO}"))
    if not said:
        return None
    numbers = {said[name] for name in _NUMBERS if name in said}
    if len({value > 0 for value in said.values()}) > 1 or len(numbers) > 1:
        flags = ", ".join(f"{name}={shown(row[name])}" for name in said)
        raise RecordError("flags contradict", f"{where} has {flags}", hint="keep one of them")
    return numbers.pop() if numbers else next(iter(said.values()))


def number(value: object, where: str) -> float:
    """A weight: finite, not negative, not absurd.

    >>> number(-1, "weight")
    Traceback (most recent call last):
    millstream.errors.RecordError: bad weight: weight is -1
      hint: weights are numbers from 0 to 1,000,000
    """
    if not isinstance(value, int | float):
        raise wrong(where, value, "a number")
    if not (isfinite(value) if isinstance(value, float) else True) or not 0 <= value <= MOST:
        raise RecordError("bad weight", f"{where} is {shown(value)}", hint=f"weights are numbers from 0 to {MOST:,.0f}")
    return float(value)


def stretches_of(row: Row, content: str, where: str) -> tuple[Stretch, ...]:
    """The stretches that a message lists, sorted.

    >>> stretches_of({"training_detail": [{"begin_offset": 0, "end_offset": 4, "train": False}]}, "hello you", "")
    (Stretch(start=0, stop=5, weight=0.0),)
    """
    for name in _DETAILS:
        if (details := row.get(name)) is not None:
            where = f"{where}.{name}"
            listed = items(details, where)
            found = [_stretch(each, len(content), f"{where}[{place}]") for place, each in enumerate(listed)]
            return in_order(found, where)
    return ()


def in_order(stretches: list[Stretch], where: str) -> tuple[Stretch, ...]:
    """The same, sorted; an error if two overlap."""
    stretches.sort(key=lambda each: each.start)
    for before, after in pairwise(stretches):
        if after.start < before.stop:
            found = f"{where}: character {after.start} lies in two stretches"
            raise RecordError("stretches overlap", found, hint="each ends, last character included, before the next")
    return tuple(stretches)


def _stretch(value: Any, length: int, where: str) -> Stretch:
    detail = mapping(value, where)
    begin, end = (_offset(needed(detail, name, where), f"{where}.{name}") for name in ("begin_offset", "end_offset"))
    if not 0 <= begin <= end < length:
        found = f"{where} is characters {shown(begin)} to {shown(end)} of a content of {length}"
        raise RecordError("offsets outside", found, hint="offsets count characters from 0; end_offset is the last one")
    weight = weight_of(detail, where)
    if weight is None:
        raise RecordError("no flag", f"{where} does not say whether to train", hint='add "train": true or false')
    return Stretch(begin, end + 1, weight)


def _offset(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1:
        raise wrong(where, value, "a whole number")
    return int(value)
