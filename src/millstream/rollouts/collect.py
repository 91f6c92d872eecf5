"""Records -> a `RolloutBlock`: all values of a field at once, made one array.

What cannot be a value of its column is refused by a `Fault`; whether values can be true `check_numbers` says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.rollouts.block import NO_IDS, TOKEN_COLUMNS, RolloutBlock
from millstream.rollouts.check import LOGPROBS, Fault, refuse_empty
from millstream.rollouts.record import keys_of
from millstream.rollouts.row_columns import row_columns
from millstream.rollouts.token_columns import (
    Ints,
    arrays_of,
    check_lengths,
    joined_experts,
    joined_floats,
    joined_ids,
    joined_kept,
    joined_masks,
    joined_versions,
)
from millstream.storage import xxh64

Record: TypeAlias = Mapping[str, Any]
_REQUIRED = ("rollout_id", "group_id", "token_ids", "loss_mask", "reward", "finish")
_MISSING = {
    "token_ids": "give token_ids, or prompt_ids and completion_ids; texts alone are prompt and response",
    "loss_mask": "give loss_mask, prompt_len, or prompt_ids and completion_ids: else the prompt would be trained on",
    "reward": "every record has reward; a reward of null or NaN says that it was not scored",
    "finish": 'why it ended: "stop", or "length" if it was cut off',
}
_KEPT = ("kept_ids", "kept_offsets")
_NOT_TOKENS = ("kept_count", "token_ids", "loss_mask")
_ALL_OR_NONE = (*(name for name in TOKEN_COLUMNS if name not in _NOT_TOKENS), *_KEPT)
"""Fields that all rollouts have, or none."""


def collect(records: Sequence[Record], *, group_by_prompt: bool = False) -> RolloutBlock:
    """Lay records out in columns."""
    fields = _fields_of(records, [name for name in _REQUIRED if name != "group_id" or not group_by_prompt])
    ids = arrays_of(fields["token_ids"], "token_ids", "I")
    lengths = np.array([len(each) for each in ids], np.int64)
    refuse_empty(lengths)
    mask = joined_masks(_aligned(fields["loss_mask"], "loss_mask", "B", lengths), "loss_mask")
    tokens: dict[str, npt.NDArray[Any]] = {"token_ids": joined_ids(ids, "token_ids"), "loss_mask": mask}
    for name in _ALL_OR_NONE:
        if name in fields and name not in _KEPT:
            tokens[name] = _token_column(name, fields[name], lengths, mask)
    kept_ids = NO_IDS
    if "kept_ids" in fields:
        kept_ids, tokens["kept_count"] = joined_kept(fields["kept_ids"], fields["kept_offsets"], lengths)
    rows = row_columns(fields)
    rows.setdefault("group_id", np.full(len(records), None, object))
    block = RolloutBlock(np.cumsum(lengths), rows, tokens, kept_ids)
    if group_by_prompt:
        rows["group_id"] = _groups(block)
    return block


def _fields_of(records: Sequence[Record], required: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each field that any record has; None where one does not have it."""
    keys = []
    for row, record in enumerate(records):
        try:
            keys.append(keys_of(tuple(record)))
        except RecordError as error:
            raise Fault(row, error.reason, error.found, error.hint) from None
    alike = all(each is keys[0] for each in keys)
    fields: dict[str, list[Any]] = {}
    gaps: set[str] = set()
    for name in keys[0] if alike else dict.fromkeys(name for each in keys for name in each):
        if alike:
            key = keys[0][name]
            values = [record[key] for record in records]
        else:
            values = [record[each[name]] if name in each else None for record, each in zip(records, keys, strict=True)]
        kinds = set(map(type, values))
        if NoneType in kinds:
            gaps.add(name)
        if name == "reward" or kinds != {NoneType}:
            fields[name] = values
    for name in required:
        if name in gaps or name not in fields:
            _check_given(name, fields.get(name), keys)
    _check_all_or_none(fields, gaps)
    return fields


def _check_given(name: str, values: list[Any] | None, keys: Sequence[Mapping[str, str]]) -> None:
    """Refuse the first record without a field; that of a reward may hold nothing."""
    for row, each in enumerate(keys):
        if name not in each or (name != "reward" and (values is None or values[row] is None)):
            raise Fault(row, "missing field", f"it has no {name!r}", _MISSING.get(name, f"every record has {name}"))


def _check_all_or_none(fields: Mapping[str, list[Any]], gaps: Collection[str]) -> None:
    given = [name for name in _ALL_OR_NONE if name in fields]
    for name in given:
        if name in gaps:
            row = next(row for row, value in enumerate(fields[name]) if value is None)
            other = next(row for row, value in enumerate(fields[name]) if value is not None)
            found = f"it has no {name}, and rollout {fields['rollout_id'][other]!r} has"
            raise Fault(row, "missing column", found, "give it for all rollouts, or for none")
    if len(lone := [name for name in _KEPT if name in given]) == 1:
        raise Fault(0, "missing field", f"it has {lone[0]}, and only that", f"{' and '.join(_KEPT)} belong together")


def _aligned(values: list[Any], name: str, code: str, lengths: Ints) -> list[npt.NDArray[Any]]:
    arrays = arrays_of(values, name, code)
    check_lengths(arrays, name, lengths)
    return arrays


def _token_column(name: str, values: list[Any], lengths: Ints, mask: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if name == "policy_version":
        return joined_versions(values, lengths, mask)
    if name == "routed_experts":
        return joined_experts(values, lengths)
    if name == "done":
        return joined_masks(_aligned(values, name, "B", lengths), name)
    column = joined_floats(_aligned(values, name, "d", lengths))
    if name in LOGPROBS:
        np.putmask(column, ~mask, 0)
    return column


def _groups(block: RolloutBlock) -> npt.NDArray[Any]:
    """The groups of rollouts; of those that name none, equal prompts form one."""
    groups = block.rows["group_id"].copy()
    for row in [row for row, group in enumerate(groups) if group is None]:
        groups[row] = group_of_prompt(block.of(row, "token_ids")[: _prompt_length(block, row)].tobytes())
    return groups


def group_of_prompt(prompt: bytes) -> str:
    """The group of all rollouts of a prompt, the same in every run.

    >>> group_of_prompt(b"1 + 1 =")
    'prompt-f9d65b135e9c169b'
    """
    return f"prompt-{xxh64(np.frombuffer(prompt, np.uint8)):016x}"


def _prompt_length(block: RolloutBlock, row: int) -> int:
    """The tokens that are said to be the prompt, or those before the first that was sampled."""
    said = int(block.rows["prompt_len"][row]) if "prompt_len" in block.rows else -1
    mask = block.of(row, "loss_mask")
    return said if said >= 0 else int(mask.argmax()) if mask.any() else len(mask)
