"""The training flags that tools write into messages and parts, brought to one weight and a list of stretches.

`weight` and `loss_scale` are numbers; `train`, `training` and `loss` say yes or no, `masked` says the opposite;
`training_detail` (or `train_detail`) lists stretches by character, the last one included.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from millstream.chats.parse.conversation import Stretch
from millstream.chats.parse.fields import Row, flag, items, mapping, needed, shown, wrong
from millstream.errors import RecordError

MOST = 75
"""The greatest weight: what a token of a store can hold (millstream.store.weighted_tokens)."""
_NUMBERS = ("weight", "loss_scale")
_YES = ("train", "training", "loss")
_NO = "masked"
_DETAILS = ("training_detail", "train_detail")
_FLAGS = frozenset({*_NUMBERS, *_YES, _NO})


def weight_of(row: Row, where: str) -> float | None:
    """What a message or a part says about its loss; None if it says nothing.

    >>> weight_of({"weight": 0.5}, ""), weight_of({"masked": True}, ""), weight_of({"role": "user"}, "")
    (0.5, 0.0, None)
    """
    if _FLAGS.isdisjoint(row):
        return None
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
    """A weight: finite, not negative, and not more than a store can hold.

    >>> number(-1, "weight")
    Traceback (most recent call last):
    millstream.errors.RecordError: bad weight: weight is -1
      hint: weights are numbers from 0 to 75; scale them all down
    """
    if not isinstance(value, int | float):
        raise wrong(where, value, "a number")
    if not 0 <= value <= MOST:  # nor is what is not a number
        raise bad_weight(f"{where} is {shown(value)}")
    return float(value)


def bad_weight(found: str) -> RecordError:
    """Say that a weight is none that a token can have."""
    return RecordError("bad weight", found, hint=f"weights are numbers from 0 to {MOST}; scale them all down")


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
