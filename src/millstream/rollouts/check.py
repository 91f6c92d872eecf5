"""What every block of rollouts must be: types, lengths and possible numbers, checked in whole columns.

A `Fault` names the row and the reason; it becomes a `RecordError` where the name of the record is known.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.rollouts.block import NAMED_REWARD, ROW_COLUMNS, TOKEN_COLUMNS, RolloutBlock, RolloutColumn
from millstream.stats import visible

Flags: TypeAlias = npt.NDArray[np.bool_]
_SHOWN_LETTERS = 80
_MOST_LOGPROB = 1e-4
"""A log-probability is at most 0; this much more is what float32 loses in a softmax over large logits."""
_MOST_FLOAT32 = float(np.finfo(np.float32).max)
MOST_ID, MOST_NAME = 1 << 16, 1 << 10
"""The most characters of an id, which may be a prompt, and of the name of a reward."""
_IDS = ("rollout_id", "group_id", "prompt_id")
LOGPROBS = ("sampling_logprobs", "ref_logprobs")
_FINITE = ("values", "token_rewards")
_EXPERT_DTYPES = (np.dtype(np.uint8), np.dtype(np.uint16))
_LEAST = {"sample_idx": -1, "prompt_len": -1, "top_k": -1, "weight": 0.0, "temperature": 0.0, "generation_seconds": 0.0}
_REQUIRED = tuple(name for name, column in (ROW_COLUMNS | TOKEN_COLUMNS).items() if column.required)
_OBJECTS: dict[str, set[type]] = {
    "rollout_id": {str, int},
    "group_id": {str, int},
    "prompt_id": {str, int, NoneType},
    "extra": {dict, NoneType},
}
_NUMBER = "give a finite number"
_FIT = "let `block_of` make blocks of records"


class Fault(Exception):  # noqa: N818 - it says what a record has
    """The row of a bad record, and what is wrong with it. It never reaches users."""

    def __init__(self, row: int, reason: str, found: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.row, self.reason, self.found, self.hint = row, reason, found, hint

    def named(self, rollout_id: object, where: str = "") -> RecordError:
        """The error with the name of the rollout.

        >>> print(Fault(3, "no tokens", "token_ids is empty").named("a-3"))
        no tokens: rollout 'a-3': token_ids is empty
        """
        name = f"record {self.row}" if rollout_id is None else f"rollout {shown(rollout_id)}"
        return RecordError(self.reason, f"{name}: {self.found}", self.hint, where)


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


def _refuse_rows(wrong: Flags, reason: str, name: str, column: npt.NDArray[Any], hint: str) -> None:
    """Refuse the first rollout whose value is wrong."""
    if wrong.any():
        row = int(wrong.argmax())
        raise Fault(row, reason, f"{name} is {shown(column[row])}", hint)


def check_numbers(block: RolloutBlock) -> None:
    """Refuse, by a `Fault`, the first rollout with numbers that cannot be trained on."""
    trained = block.tokens["loss_mask"]
    for name in LOGPROBS:
        if name in block.tokens:
            column = block.tokens[name]
            if not _within(column, -_MOST_FLOAT32, _MOST_LOGPROB):
                wrong = trained & ~((column <= _MOST_LOGPROB) & (column >= -_MOST_FLOAT32))
                hint = "a log-probability is finite and not above 0 wherever loss_mask is 1"
                refuse_tokens(wrong, block.ends, "impossible log-probability", name, column, hint)
    for name in _FINITE:
        if name in block.tokens:
            column = block.tokens[name]
            if not _within(column, -_MOST_FLOAT32, _MOST_FLOAT32):
                refuse_tokens(~np.isfinite(column), block.ends, "not finite", name, column, _NUMBER)
    for name, column in block.rows.items():
        _check_numbers(block, name, column)


def check_names(block: RolloutBlock) -> None:
    """Refuse, by a `Fault`, the first rollout with an id or a name that cannot be written down, or is too long."""
    for name in _IDS:
        values: list[Any] = block.rows[name].tolist() if name in block.rows else []
        texts = [value for value in values if isinstance(value, str)]
        numbers = [value for value in values if isinstance(value, int)]
        if all(map(_is_number, numbers)) and _is_text("".join(texts)) and max(map(len, texts), default=0) <= MOST_ID:
            continue
        row = next(row for row, value in enumerate(values) if not _is_id(value))
        hint = f"an id is a text of at most {MOST_ID:,} characters, or a whole number of 64 bits"
        raise Fault(row, "impossible id", f"{name} is {shown(values[row])}", hint)
    for name in [*block.rows, *block.tokens]:
        if not _is_text(name) or len(name) > MOST_NAME:
            named = np.isnan(block.rows[name]) if name.startswith(NAMED_REWARD) else np.zeros(1, bool)
            hint = f"a name is a text of at most {MOST_NAME:,} characters, without halves of surrogate pairs"
            raise Fault(int((~named).argmax()), "impossible name", f"a column is called {shown(name)}", hint)


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_ID and _is_text(value)
    return value is None or (isinstance(value, int) and _is_number(value))


def _is_number(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 64


def _is_text(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which nothing can write as UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _within(column: npt.NDArray[np.float32], least: float, most: float) -> bool:
    """Whether all numbers are in a range: nearly always they are, and nothing has to be kept of each. NaN is not."""
    return not len(column) or bool(column.min() >= least and column.max() <= most)


def _check_numbers(block: RolloutBlock, name: str, column: npt.NDArray[Any]) -> None:
    known = ROW_COLUMNS.get(name)
    if column.dtype.kind == "f" and (known is not None or name.startswith(NAMED_REWARD)):
        wrong = np.isinf(column) if name != "weight" else ~np.isfinite(column)
        absent = "leave it out for 1" if name == "weight" else "NaN or null says that there is none"
        _refuse_rows(wrong, "not finite", name, column, f"{_NUMBER}; {absent}")
    if name in _LEAST:
        _refuse_rows(column < _LEAST[name], "impossible value", name, column, f"it is at least {max(0, _LEAST[name])}")
    if name == "prompt_len":
        _refuse_rows(column > block.lengths, "impossible value", name, column, "it counts the first tokens")
    if name == "top_p":
        _refuse_rows((column <= 0) | (column > 1), "impossible value", name, column, "it is above 0, and at most 1")


def check_layout(block: RolloutBlock) -> None:
    """Refuse columns that do not fit together; of numbers only those are looked at that say where others are."""
    missing = [name for name in _REQUIRED if name not in block]
    if missing:
        raise Fault(0, "missing field", f"there is no {missing[0]}", f"every rollout has a {missing[0]}")
    total = int(block.ends[-1]) if len(block) else 0
    refuse_empty(block.lengths)
    for name, values in block.rows.items():
        _check_column(name, values, len(block), ROW_COLUMNS.get(name), 1)
        if values.ndim != 1:
            raise Fault(0, "wrong type", f"{shown(name)} has the shape {values.shape}", "one value per rollout")
    for name, values in block.tokens.items():
        _check_column(name, values, total, TOKEN_COLUMNS.get(name), 3 if name == "routed_experts" else 1)
    _check_objects(block)
    kept = int(block.tokens["kept_count"].sum(dtype=np.uint64)) if "kept_count" in block.tokens else 0
    if kept != len(block.kept_ids) or block.kept_ids.dtype != np.uint32:
        found = f"kept_count says {kept:,}, and there are {len(block.kept_ids):,} of {block.kept_ids.dtype}"
        raise Fault(0, "impossible kept ids", found, _FIT)


def refuse_empty(lengths: npt.NDArray[np.int64]) -> None:
    """Refuse the first rollout without tokens."""
    if len(lengths) and lengths.min() < 1:
        raise Fault(int((lengths < 1).argmax()), "no tokens", "token_ids is empty", "leave it out")


def _check_objects(block: RolloutBlock) -> None:
    for name, fine in _OBJECTS.items():
        values: list[Any] = block.rows[name].tolist() if name in block.rows else []
        if not set(map(type, values)) <= fine:
            row = next(row for row, value in enumerate(values) if type(value) not in fine)
            kind = "a mapping" if name == "extra" else "a text or a whole number"
            raise Fault(row, "wrong type", f"{name} is {shown(values[row])}", f"it is {kind}")


def _check_column(
    name: str, values: npt.NDArray[Any], length: int, known: RolloutColumn | None, dimensions: int
) -> None:
    if len(values) != length or (known is not None and values.ndim != dimensions):
        raise Fault(
            0, "unequal lengths", f"{name} has the shape {values.shape}, and {length:,} values are wanted", _FIT
        )
    if known is None:
        return
    wanted = _EXPERT_DTYPES if known.dtype is None else (np.dtype(known.dtype),)
    if values.dtype not in wanted:
        raise Fault(0, "wrong type", f"{name} holds {values.dtype}, not {' or '.join(map(str, wanted))}", _FIT)
    if known.choices and len(values) and int(values.max()) >= len(known.choices):
        choices = ", ".join(f"{number} {word}" for number, word in enumerate(known.choices))
        _refuse_rows(values >= len(known.choices), f"unknown {name}", name, values, f"it is one of {choices}")
