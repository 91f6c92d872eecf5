"""Records of a prompt and its completion, as TRL and prime-rl have them -> records of one sequence of tokens.

What they say of the completion alone follows zeros for the prompt, which is never trained on. What is assumed of
them or not used is noted in `extra`, and counted where they come in: nothing of that is silent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import TOKEN_COLUMNS, RolloutBlock
from millstream.rollouts.check import Fault, shown
from millstream.rollouts.record import ALIASES, MASKS, SIDES
from millstream.rollouts.token_columns import arrays_of

Record = Mapping[str, Any]
_BESIDE = "give prompt_ids and completion_ids, or token_ids with loss_mask or prompt_len"
_NOTED, _OLD = "noted", "old_per_token_logps"
_NO_FINISH, _NOT_OLD = "finish not said", f"{_OLD} not used"
NOTES = (_NO_FINISH, _NOT_OLD)
"""What `extra["noted"]` may say of a rollout."""


def as_sequence(record: Record, place: int) -> Record:
    """A record of one sequence: `token_ids` and `loss_mask`, made of both sides, or of `prompt_len`.

    >>> made = as_sequence({"prompt_ids": [5, 6], "completion_ids": [7, 8], "completion_logprobs": [-0.5, -1]}, 0)
    >>> {name: np.asarray(value).tolist() for name, value in made.items()}
    {'sampling_logprobs': [0.0, 0.0, -0.5, -1.0], 'token_ids': [5, 6, 7, 8], 'loss_mask': [0, 0, 1, 1], 'prompt_len': 2,
    'finish': 'stop', 'extra': {'noted': ['finish not said']}}
    >>> as_sequence({"token_ids": [5, 6, 7], "prompt_len": 2}, 0)["loss_mask"].tolist()
    [False, False, True]
    """
    if record.get("prompt_ids") is not None or record.get("completion_ids") is not None:
        return _joined(record, place)
    if record.get("prompt_len") is None or any(_field(name) == "loss_mask" for name in _given(record)):
        return record
    ids = next((value for name, value in record.items() if _field(name) == "token_ids"), None)
    length = record["prompt_len"]
    if ids is None or not hasattr(ids, "__len__") or not isinstance(length, int | np.integer) or length < 0:
        return record  # `collect` says what is wrong with it
    rest = {name: value for name, value in record.items() if _field(name) != "loss_mask"}
    return {**rest, "loss_mask": np.arange(len(ids)) >= length}


def _joined(record: Record, place: int) -> Record:
    if missing := [name for name in ("prompt_ids", "completion_ids") if record.get(name) is None]:
        raise Fault(place, "missing field", f"it has no {missing[0]!r}", _BESIDE)
    if twice := [name for name in _given(record) if _field(name) == "token_ids" and name not in SIDES]:
        raise Fault(place, "named twice", f"{twice[0]!r} and 'prompt_ids' both say the tokens", _BESIDE)
    record, carried = _usable(record, place)
    prompt, completion = (_numbers(record[name], name, "I", place) for name in ("prompt_ids", "completion_ids"))
    _check_prompt(record, prompt, place)
    made: dict[str, Any] = {}
    for name in _given(record):
        field = SIDES.get(name, _field(name))
        if name in ("prompt_ids", "completion_ids", "prompt_mask", *MASKS):
            continue
        if field in made:
            raise Fault(place, "named twice", f"{name!r} says {field} once more", "give one of them")
        whole = field in TOKEN_COLUMNS and field != "routed_experts"
        made[field] = _after_prompt(record[name], name, prompt, completion, place) if whole else record[name]
    made["token_ids"] = np.concatenate([prompt, completion])
    mask = _mask(record, prompt, completion, place)
    if "loss_mask" in made and (masks := [name for name in MASKS if record.get(name) is not None]):
        raise Fault(place, "named twice", f"{masks[0]!r} says loss_mask once more", "give one of them")
    made.setdefault("loss_mask", mask)
    if made.setdefault("prompt_len", len(prompt)) != len(prompt):
        found = f"prompt_len is {shown(made['prompt_len'])}, and prompt_ids has {len(prompt):,}"
        raise Fault(place, "impossible value", found, "leave prompt_len out")
    if "finish" not in made:
        made["finish"] = "stop"
        carried.setdefault(_NOTED, []).append(_NO_FINISH)
    if carried:
        made["extra"] = _with(made.get("extra"), carried)
    return made


def _usable(record: Record, place: int) -> tuple[Record, dict[str, Any]]:
    """The record with what has another form here, and what is only carried along."""
    usable, carried = dict(record), dict[str, Any]()
    logprobs = [name for name in _given(record) if SIDES.get(name, _field(name)) == "sampling_logprobs"]
    if _OLD in logprobs and len(logprobs) > 1:  # a trainer's own: those of the engine are the truer ones
        del usable[_OLD]
        carried[_NOTED] = [_NOT_OLD]
    if (cut := usable.get("is_truncated")) is not None:
        if not isinstance(cut, int | np.bool_) or cut not in (0, 1):
            raise Fault(place, "wrong type", f"is_truncated is {shown(cut)}", "it is true or false; or give finish")
        usable["is_truncated"] = "length" if cut else "stop"
    if (heat := usable.get("completion_temperatures")) is not None:
        numbers = _numbers(heat, "completion_temperatures", "d", place).tolist()
        usable["completion_temperatures"] = numbers[0] if len(set(numbers)) == 1 else None
        if len(set(numbers)) > 1:
            carried["completion_temperatures"] = numbers
    return usable, carried


def _with(extra: Any, carried: dict[str, Any]) -> Any:
    """What is carried along, beside `extra`, which may be JSON; one that is none is refused later."""
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except (ValueError, RecursionError):
            return extra
    return {**(extra or {}), **carried} if extra is None or isinstance(extra, Mapping) else extra


def notes_of(block: RolloutBlock) -> Counter[str]:
    """How many rollouts have which note.

    >>> from millstream.rollouts.parse import block_of
    >>> said = {"rollout_id": "a", "group_id": "g", "reward": 1.0}
    >>> notes_of(block_of({**said, "prompt_ids": [5, 6], "completion_ids": [7, 8]}))
    Counter({'finish not said': 1})
    """
    extras = block.rows["extra"].tolist() if "extra" in block.rows else ()
    noted = (extra.get(_NOTED) for extra in extras if isinstance(extra, dict))
    return Counter(note for each in noted if isinstance(each, list) for note in NOTES if note in each)


def _mask(record: Record, prompt: Any, completion: Any, place: int) -> npt.NDArray[Any]:
    """What is trained on: the completion, but for what its masks leave out."""
    mask = np.ones(len(completion), np.int64)
    for name in (name for name in MASKS if record.get(name) is not None):
        said = _numbers(record[name], name, "B", place)
        if len(said) != len(completion):
            found = f"{name} has {len(said):,} values, and completion_ids has {len(completion):,}"
            raise Fault(place, "unequal lengths", found, "it covers the completion")
        if ((said != 0) & (said != 1)).any():
            raise Fault(place, f"impossible {name}", f"{name} is {shown(record[name])}", "it is 0 or 1 for each token")
        mask &= said.astype(np.int64)
    return np.concatenate([np.zeros(len(prompt), np.int64), mask])


def _after_prompt(value: Any, name: str, prompt: Any, completion: Any, place: int) -> Any:
    """Values of the completion after zeros; those of all tokens, or of the whole rollout, as they are."""
    if not hasattr(value, "__len__") or isinstance(value, str | bytes | Mapping):
        return value
    if len(value) == len(prompt) + len(completion) or (name == "policy_version" and len(value) == 2):
        return value
    if len(value) != len(completion):
        found = f"{name} has {len(value):,} values, and completion_ids has {len(completion):,}"
        raise Fault(place, "unequal lengths", found, "it covers the completion, or the prompt and the completion")
    numbers = _numbers(value, name, "q" if name == "policy_version" else "d", place)
    if name == "policy_version" and len(numbers):
        return np.concatenate([np.full(len(prompt), numbers[0]), numbers])
    return np.concatenate([np.zeros(len(prompt), numbers.dtype), numbers])


def _check_prompt(record: Record, prompt: Any, place: int) -> None:
    """Refuse a mask of the prompt that is more than yes or no: its zeros may be padding, or its ones be trained on."""
    if record.get("prompt_mask") is None:
        return
    mask = _numbers(record["prompt_mask"], "prompt_mask", "B", place)
    if len(mask) != len(prompt) or len(set(mask.tolist())) > 1:
        found = f"prompt_mask is {shown(record['prompt_mask'])}, and prompt_ids has {len(prompt):,}"
        hint = "the prompt is not trained on: cut padding off; if parts of it are meant, give token_ids and loss_mask"
        raise Fault(place, "ambiguous prompt mask", found, hint)


def _numbers(value: Any, name: str, code: str, place: int) -> npt.NDArray[Any]:
    try:
        return arrays_of([value], name, code)[0]
    except Fault as fault:
        raise Fault(place, fault.reason, fault.found, fault.hint) from None


def _given(record: Record) -> Iterable[str]:
    return (name for name, value in record.items() if value is not None)


def _field(name: str) -> str:
    return ALIASES.get(name, name)
