"""The fields of a record: those of `Rollout`, and the names that other systems have for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache

from millstream.errors import RecordError
from millstream.rollouts.columns import Finish, Id
from millstream.rollouts.faults import shown
from millstream.rollouts.record import Rollout

_NEAR_LETTERS = 64
FIELDS = tuple(field.name for field in fields(Rollout))
TEXTS = ("prompt", "response")
"""Texts beside token ids are told to people, and nothing else: they are kept in `extra`."""
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
        if field not in FIELDS and field not in TEXTS:
            raise RecordError("unknown field", shown(name), hint=_nearest(name))
        if field in keys:
            raise RecordError("named twice", f"{keys[field]!r} and {name!r} are the same", hint="give one of them")
        keys[field] = name
    return keys


def _nearest(name: object) -> str:
    if name in SIDES:
        return "it belongs to prompt_ids and completion_ids: give both"
    if name in ("advantage", "advantages"):
        return "advantages are computed here, from rewards; what is only carried along goes into `extra`"
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
