"""Values of a field with one value per record -> a column: ids, words as their numbers, numbers, and `extra`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import NAMED_REWARD, ROW_COLUMNS, Id, RolloutColumn
from millstream.rollouts.check import Fault, shown
from millstream.rollouts.record import CARRIED, FINISH_WORDS

Array: TypeAlias = npt.NDArray[Any]
Extra: TypeAlias = dict[str, Any] | None
IDS = ("rollout_id", "group_id", "prompt_id")
_PLAIN_IDS = {str, NoneType}
_MOST_DEPTH = 64
"""How deep what is carried along may be nested: each that reads it has a stack of its own, and some are short."""
_NESTED = (dict, list, tuple)
_EXTRA = f"it is a mapping of texts to what JSON can hold, nested at most {_MOST_DEPTH} deep"
_MOST_REWARDS = 4096
"""Different names of rewards in a block: each is a column of all its rollouts."""


_NUMBERS = {
    name: {word: column.choices.index(meant) for word, meant in words.items()}
    for name, column in ROW_COLUMNS.items()
    if (words := FINISH_WORDS if name == "finish" else {word: word for word in column.choices})
}
"""The numbers of words, by the names of their columns."""


def row_columns(fields: Mapping[str, list[Any]]) -> dict[str, Array]:
    """All columns with one value per rollout."""
    columns = {name: _column(name, fields[name]) for name in ROW_COLUMNS if name in fields and name != "extra"}
    for name, values in _named_rewards(fields.get("rewards", ())).items():
        columns[name] = _numbers(values, name, "d", np.nan)
    extra = _extras(fields)
    return columns if extra is None else columns | {"extra": _objects(extra)}


def _column(name: str, values: list[Any]) -> Array:
    column = ROW_COLUMNS[name]
    if name in IDS:
        plain = set(map(type, values)) <= _PLAIN_IDS
        return _objects(values if plain else [_id(value, row, name) for row, value in enumerate(values)])
    if column.choices:
        return _words(name, values, column)
    code = "q" if np.dtype(column.dtype).kind == "i" else "d"
    numbers = _numbers(values, name, code, np.nan if column.absent is None else column.absent)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        return numbers.astype(column.dtype)


def _id(value: Any, row: int, name: str) -> Id | None:
    if type(value) is str or value is None:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return str(value)
    raise Fault(row, "wrong type", f"{name} is {shown(value)}", "an id is a text or a whole number")


def _words(name: str, values: list[Any], column: RolloutColumn) -> Array:
    numbers = _NUMBERS[name]
    for row, value in enumerate(values):
        if value is not None and (not isinstance(value, str) or value not in numbers):
            raise Fault(row, f"unknown {name}", f"{name} is {shown(value)}", f"it is one of {', '.join(numbers)}")
    return np.array([column.absent if value is None else numbers[value] for value in values], column.dtype)


def _numbers(values: list[Any], name: str, code: str, absent: float) -> Array:
    """Numbers; `absent` where there is None."""
    given = [absent if value is None else value for value in values]
    try:
        return np.array(array(code, given))
    except (TypeError, OverflowError, ValueError):
        row = next(row for row, value in enumerate(given) if not _fits(value, code))
        kind = "a whole number" if code == "q" else "a number"
        raise Fault(row, "wrong type", f"{name} is {shown(given[row])}", f"give {kind}") from None


def _fits(value: Any, code: str) -> bool:
    try:
        array(code, [value])
    except (TypeError, OverflowError, ValueError):
        return False
    return True


def _named_rewards(values: Sequence[Any]) -> dict[str, list[Any]]:
    """The rewards of each name; None where a record does not have it."""
    columns: dict[str, list[Any]] = {}
    for row, value in enumerate(values):
        if value is None:
            continue
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise Fault(row, "wrong type", f"rewards is {shown(value)}", 'give {"name": number, …}')
        for name, reward in value.items():
            columns.setdefault(NAMED_REWARD + name, [None] * len(values))[row] = reward
        if len(columns) > _MOST_REWARDS:
            found = f"there are more than {_MOST_REWARDS:,} different names of rewards"
            raise Fault(row, "too many rewards", found, "what differs for each rollout goes into `extra`")
    return columns


def _extras(fields: Mapping[str, list[Any]]) -> list[Extra] | None:
    """What is only carried along: `extra`, which may be JSON already, and texts beside token ids."""
    given = [name for name in ("extra", *CARRIED) if name in fields]
    if not given:
        return None
    extra: list[Extra] = [None] * len(fields[given[0]])
    if "extra" in fields:
        extra = [_mapping(value, row) for row, value in enumerate(fields["extra"])]
    for name in CARRIED:
        for row, text in enumerate(fields.get(name, ())):
            if text is not None:
                extra[row] = {**(extra[row] or {}), name: text}
    check_extra(extra)
    return extra


def check_extra(extra: Sequence[Any]) -> None:
    """Refuse the first value that cannot be written as JSON."""
    shallow = [value is None or _is_shallow(value, _MOST_DEPTH) for value in extra]
    if all(shallow) and _is_json(list(extra)):
        return
    row = next(row for row, value in enumerate(extra) if not (shallow[row] and _is_json(value)))
    raise Fault(row, "wrong type", f"extra is {shown(extra[row])}", _EXTRA)


def _mapping(value: Any, row: int) -> Extra:
    found = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            raise Fault(row, "wrong type", f"extra is {shown(value)}", _EXTRA) from None
    if found is None:
        return None
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise Fault(row, "wrong type", f"extra is {shown(value)}", _EXTRA)
    return dict(found)


def _is_shallow(value: Any, depth: int) -> bool:
    if not depth:
        return False
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, _NESTED) and not _is_shallow(each, depth - 1):
            return False
    return True


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _objects(values: Sequence[object]) -> Array:
    column = np.empty(len(values), object)
    column[:] = values
    return column
