"""What is wrong with one record of many: it becomes a `RecordError` where the name of the record is known."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.stats import visible

Flags: TypeAlias = npt.NDArray[np.bool_]
_SHOWN_LETTERS = 80


class Fault(Exception):  # noqa: N818 - it says what a record has
    """The record at a place of those that are looked at, and what is wrong with it. It never reaches users."""

    def __init__(self, row: int, reason: str, found: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.row, self.reason, self.found, self.hint = row, reason, found, hint

    def named(self, rollout_id: object, where: str = "") -> RecordError:
        """The error with the name of the rollout.

        >>> print(Fault(3, "no tokens", "token_ids is empty").named("a-3"))
        no tokens: rollout 'a-3': token_ids is empty
        """
        who = f"record {self.row}" if rollout_id is None else f"rollout {shown(rollout_id)}"
        return RecordError(self.reason, f"{who}: {self.found}", self.hint, where)


def shown(value: object) -> str:
    """A value as errors show it: not too long, and harmless to a terminal.

    >>> shown("a" * 100)[-4:], shown(np.float32(0.5))
    ('aaa…', '0.5')
    """
    try:
        text = visible(repr(value.item() if isinstance(value, np.generic) else value))
    except (RecursionError, ValueError):  # lists in lists without end, or an int of thousands of digits
        text = f"a value of type {type(value).__name__} that is too large to be shown"
    return text if len(text) <= _SHOWN_LETTERS else text[: _SHOWN_LETTERS - 1] + "…"


def refuse_tokens(
    wrong: Flags,
    ends: npt.NDArray[np.int64],
    reason: str,
    name: str,
    column: npt.NDArray[Any],
    hint: str,
) -> None:
    """Refuse the first rollout whose token is wrong."""
    if not wrong.any():
        return
    place = int(wrong.argmax())
    row = int(np.searchsorted(ends, place, side="right"))
    token = place - (int(ends[row - 1]) if row else 0)
    raise Fault(row, reason, f"{name}[{token}] is {shown(column[place])}", hint)


def refuse_rows(wrong: Flags, reason: str, name: str, column: npt.NDArray[Any], hint: str) -> None:
    """Refuse the first rollout whose value is wrong."""
    if wrong.any():
        row = int(wrong.argmax())
        raise Fault(row, reason, f"{name} is {shown(column[row])}", hint)
