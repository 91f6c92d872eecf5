"""Which games or frames a user wants: by the values of fields, and by functions of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import RecipeError
from millstream.games.block import Game
from millstream.games.frame import FRAME

Predicate: TypeAlias = Callable[[Game], bool | str]
"""A game -> True to keep it, False to drop it under the name of the function, or a reason to drop it."""
Wanted: TypeAlias = Any
"""A value; a pair (least, most), of which each may be None; or a set of values."""

_NAMES = tuple(name for name in FRAME.names or () if FRAME[name].shape == () and name != "_padding")


class FieldMatch:
    """What fields of frames must be.

    Args:
        match: For each field a value, a pair of the least and the most, both included, or a set of values.

    >>> wanted = FieldMatch({"rule50_count": (0, 50), "visits": (1, None), "input_format": {1, 2}})
    >>> frames = np.zeros(2, FRAME)
    >>> frames["visits"], frames["input_format"] = [800, 0], 1
    >>> {reason: kept.tolist() for reason, kept in wanted(frames).items()}
    {'rule50_count does not match': [True, True], 'visits does not match': [True, False],
     'input_format does not match': [True, True]}
    """

    def __init__(self, match: Mapping[str, Wanted]) -> None:
        self.match = dict(match)
        for name, wanted in self.match.items():
            if name not in _NAMES:
                raise RecipeError(f"a frame has no field {name!r} to match", hint=f"it has {', '.join(_NAMES)}")
            _check(name, wanted)

    def __call__(self, fields: npt.NDArray[np.void]) -> dict[str, npt.NDArray[np.bool_]]:
        """By the reason to drop it, whether each frame is kept."""
        return {f"{name} does not match": _matches(fields[name], wanted) for name, wanted in self.match.items()}


def _check(name: str, wanted: Wanted) -> None:
    """Refuse what no frame can match."""
    is_pair, is_set = isinstance(wanted, (list, tuple)), isinstance(wanted, (set, frozenset))
    numbers = [each for each in wanted if each is not None or is_set] if is_pair or is_set else [wanted]
    if (is_pair and len(wanted) != 2) or not all(map(_is_number, numbers)):
        hint = "pass a number, a pair (least, most) of which one may be None, or a set of numbers"
        raise RecipeError(f"match: {name} shall be {wanted!r}", hint=hint)
    if not numbers or (is_pair and len(numbers) == 2 and not numbers[0] <= numbers[1]):
        which = "every frame is" if is_pair and not numbers else "no frame is"
        raise RecipeError(f"match: {name} shall be {wanted!r}, which {which}", hint="pass (least, most)")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_))


def _matches(values: npt.NDArray[Any], wanted: Wanted) -> npt.NDArray[np.bool_]:
    if isinstance(wanted, (set, frozenset)):
        return np.isin(values, list(wanted))
    least, most = wanted if isinstance(wanted, (list, tuple)) else (wanted, wanted)
    kept = np.ones(len(values), np.bool_)
    if least is not None:
        kept &= values >= least
    if most is not None:
        kept &= values <= most
    return kept


def reason_against(predicate: Predicate, game: Game) -> str | None:
    """Why a predicate does not want a game, or None."""
    answer: object = predicate(game)
    name = getattr(predicate, "__name__", type(predicate).__name__)
    if isinstance(answer, str) and answer:
        return answer
    if isinstance(answer, (int, np.integer, np.bool_)):  # what a comparison of arrays gives is no bool of Python
        return None if answer else name
    raise RecipeError(
        f"the predicate {name} says {answer!r} of a game",
        hint="return True to keep it, False to drop it, or a reason to drop it",
    )


def filter_facts(
    rules: str | None, match: Mapping[str, Wanted] | None, predicates: Sequence[Predicate]
) -> dict[str, Any]:
    """What says in every process which games are wanted, as JSON can; functions are known by their names.

    >>> filter_facts("moves", {"visits": (1, None), "version": {7, 6}}, [bool])
    {'rules': 'moves', 'match': {'version': {'one of': [6, 7]}, 'visits': [1, None]}, 'predicates': ['builtins.bool']}
    """
    return {
        "rules": rules,
        "match": {name: _plain(wanted) for name, wanted in sorted(match.items())} if match else None,
        "predicates": [_name_of(predicate) for predicate in predicates] or None,
    }


def _plain(wanted: Wanted) -> Any:
    if isinstance(wanted, (set, frozenset)):
        return {"one of": sorted(map(_plain, wanted))}
    if isinstance(wanted, (list, tuple)):
        return [_plain(bound) for bound in wanted]
    return wanted.item() if isinstance(wanted, np.generic) else wanted


def _name_of(predicate: Any) -> str:
    if isinstance(predicate, partial):
        given = [
            *map(repr, predicate.args),
            *(f"{name}={value!r}" for name, value in sorted(predicate.keywords.items())),
        ]
        return f"{_name_of(predicate.func)}({', '.join(given)})"
    kind = predicate if hasattr(predicate, "__qualname__") else type(predicate)
    told = "" if kind is predicate or kind.__repr__ is object.__repr__ else f": {predicate!r}"
    return f"{kind.__module__}.{kind.__qualname__}{told}"
