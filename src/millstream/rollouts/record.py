"""Rollout: one trajectory as a typed record, its fields, and the names that other systems give them.

Millstream itself works on `RolloutBlock`s, many rollouts in columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.rollouts.block import NAMED_REWARD, ROW_COLUMNS, Finish, Id, Kind, LogprobKind, RolloutBlock
from millstream.rollouts.check import shown

Numbers: TypeAlias = Sequence[Any] | npt.NDArray[Any]
"""One number per token."""
_NEAR_LETTERS = 64
TEXTS = ("prompt", "response")
CARRIED = (*TEXTS, "completion")
"""Texts beside token ids are only shown: they are kept in `extra`."""
ALIASES = {
    "input_ids": "token_ids",
    "tokens": "token_ids",
    "response_mask": "loss_mask",
    "mask": "loss_mask",
    "logprobs": "sampling_logprobs",
    "old_log_probs": "sampling_logprobs",
    "rollout_log_probs": "sampling_logprobs",
    "inference_logprobs": "sampling_logprobs",
    "ref_log_prob": "ref_logprobs",
    "reference_logprobs": "ref_logprobs",
    "token_level_rewards": "token_rewards",
    "finish_reason": "finish",
    "id": "rollout_id",
    "uid": "group_id",
}
"""Names of other systems. Each stands for all tokens of a rollout: a mask of the answer alone has another length."""
MASKS = ("completion_mask", "tool_mask", "env_mask")
"""Which tokens of a completion are trained on: all masks that there are must say so."""
SIDES = {
    "prompt_ids": "token_ids",
    "completion_ids": "token_ids",
    "prompt_mask": "loss_mask",
    **dict.fromkeys(MASKS, "loss_mask"),
    "completion_logprobs": "sampling_logprobs",
    "sampling_per_token_logps": "sampling_logprobs",
    "old_per_token_logps": "sampling_logprobs",
    "completion_temperatures": "temperature",
    "is_truncated": "finish",
    "ref_per_token_logps": "ref_logprobs",
}
"""Names of TRL and prime-rl, in records that keep the prompt and its completion apart. What covers the completion alone
may stand under every name."""
FINISH_WORDS: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "truncated": "length",
    "abort": "abort",
    "aborted": "abort",
    "cancelled": "abort",
    "error": "error",
}
"""Why a rollout ended, in the words of inference engines."""


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
    """The value after the last token of a rollout that was cut off."""
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
    """One rollout of a block as a record; its arrays are views. What is not known of it is None.

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


FIELDS = tuple(field.name for field in fields(Rollout))


@lru_cache(maxsize=1024)
def keys_of(names: tuple[str, ...]) -> dict[str, str]:
    """The key of each field, in records that have these keys.

    >>> keys_of(("id", "reward"))
    {'rollout_id': 'id', 'reward': 'reward'}
    >>> keys_of(("rewrad",))
    Traceback (most recent call last):
    millstream.errors.RecordError: unknown field: 'rewrad'
      hint: did you mean 'reward'? what is only carried along goes into `extra`
    """
    keys: dict[str, str] = {}
    for name in names:
        field = ALIASES.get(name, name)
        if field not in FIELDS and field not in CARRIED:
            raise RecordError("unknown field", shown(name), hint=_nearest(name))
        if field in keys:
            raise RecordError("named twice", f"{keys[field]!r} and {name!r} are the same", hint="give one of them")
        keys[field] = name
    return keys


def _nearest(name: object) -> str:
    if name in SIDES:
        return "it belongs to prompt_ids and completion_ids: give both"
    if name in ("advantage", "advantages"):
        return "leave it out: advantages are computed here, from rewards; what is only carried along goes into `extra`"
    near = get_close_matches(str(name)[:_NEAR_LETTERS], [*FIELDS, *ALIASES], n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}what is only carried along goes into `extra`"


def id_of(record: object) -> Id | None:
    """The id of a record, whatever it calls it, or None.

    >>> id_of({"id": "a"}), id_of({"reward": 1.0})
    ('a', None)
    """
    names = ("rollout_id", *(name for name, meant in ALIASES.items() if meant == "rollout_id"))
    found = (record.get(name) if isinstance(record, Mapping) else getattr(record, name, None) for name in names)
    return next((each for each in found if each is not None), None)


def holds_rollouts(row: Mapping[str, object]) -> bool:
    """Whether a row looks like a rollout: token ids whose prompt is known and a reward, or the texts of both sides and
    a reward.

    >>> holds_rollouts({"input_ids": [1], "loss_mask": [1], "reward": 1.0}), holds_rollouts({"text": "x"})
    (True, False)
    >>> holds_rollouts({"prompt_ids": [1], "completion_ids": [2], "reward": 1.0})
    True
    """
    has = _known(row)
    knows_prompt = not has.isdisjoint({"loss_mask", "prompt_len"}) or {"prompt_ids", "completion_ids"} <= set(row)
    return "reward" in row and (("token_ids" in has and knows_prompt) or holds_text(row))


def holds_text(row: Mapping[str, object]) -> bool:
    """Whether a row holds the texts of a rollout and not its tokens.

    >>> holds_text({"prompt": "1+1", "response": "2", "reward": 1.0})
    True
    """
    return all(isinstance(row.get(name), str) for name in TEXTS) and "token_ids" not in _known(row)


def _known(row: Mapping[str, object]) -> set[str]:
    return {ALIASES.get(name, SIDES.get(name, name)) for name, value in row.items() if value is not None}
