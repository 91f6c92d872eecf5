"""Rollout: one trajectory as a typed record. Millstream itself works on `RolloutBlock`s, many of them in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import RolloutBlock
from millstream.rollouts.columns import NAMED_REWARD, ROW_COLUMNS, Finish, Id, Kind, LogprobKind

Numbers: TypeAlias = Sequence[Any] | npt.NDArray[Any]
"""One number per token."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
    """One trajectory as a flat sequence of tokens, exactly as they were sampled, and what is known of it.

    >>> Rollout(
    ...     rollout_id="a", group_id="g", token_ids=[5, 6, 7], loss_mask=[0, 1, 1], reward=1.0, finish="stop"
    ... ).reward
    1.0
    """

    rollout_id: Id
    group_id: Id
    """Answers to the same prompt that are compared with each other."""
    token_ids: Numbers
    loss_mask: Numbers
    """1: sampled by the policy; 0: prompt, output of a tool, template."""
    reward: float | None
    """NaN or None: not scored."""
    finish: Finish
    rewards: Mapping[str, float] | None = None
    prompt_id: Id | None = None
    sample_idx: int | None = None
    prompt_len: int | None = None
    kind: Kind | None = None
    weight: float | None = None
    bootstrap_value: float | None = None
    """The value behind the last token of a rollout that was cut off."""
    logprob_kind: LogprobKind | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    generation_seconds: float | None = None
    sampling_logprobs: Numbers | None = None
    policy_version: int | Numbers | Mapping[str, int] | None = None
    """Of the whole rollout, of each token, or `{"start": …, "end": …}`."""
    token_rewards: Numbers | None = None
    values: Numbers | None = None
    ref_logprobs: Numbers | None = None
    done: Numbers | None = None
    routed_experts: npt.NDArray[Any] | None = None
    """Of shape (tokens, layers, experts)."""
    kept_ids: Numbers | None = None
    """The ids that top-p kept, end to end: those of token t are [kept_offsets[t], kept_offsets[t + 1])."""
    kept_offsets: Numbers | None = None
    extra: Mapping[str, Any] | None = None


def rollout_at(block: RolloutBlock, row: int) -> Rollout:
    """One rollout of a block as a record; its arrays are views. What nobody said about it is None.

    >>> from millstream.rollouts.parse import block_of
    >>> said = {"rollout_id": "a", "group_id": 3, "reward": 0.5, "finish": "length", "weight": 2.0}
    >>> record = rollout_at(block_of([{**said, "token_ids": [5, 6], "loss_mask": [0, 1]}]), 0)
    >>> record.group_id, record.finish, record.weight, record.token_ids.tolist(), record.values
    (3, 'length', 2.0, [5, 6], None)
    """
    fields: dict[str, Any] = {name: block.of(row, name) for name in block.tokens if name != "kept_count"}
    named: dict[str, float] = {}
    for name, values in block.rows.items():
        column, value = ROW_COLUMNS.get(name), values[row]
        if name.startswith(NAMED_REWARD):
            if not np.isnan(value):
                named[name.removeprefix(NAMED_REWARD)] = float(value)
        elif column is not None:
            plain = value.item() if isinstance(value, np.generic) else value
            is_absent = plain == column.absent or (column.absent is not None and plain != plain)  # NaN
            fields[name] = None if is_absent else column.choices[plain] if column.choices else plain
    if "kept_count" in block.tokens:
        fields["kept_offsets"] = np.concatenate([[0], np.cumsum(block.of(row, "kept_count"), dtype=np.int64)])
        fields["kept_ids"] = block.kept_ids_of(row)
    known = Rollout.__dataclass_fields__
    return Rollout(**{name: value for name, value in fields.items() if name in known}, rewards=named or None)
