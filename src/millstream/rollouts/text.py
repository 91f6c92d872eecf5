"""Rollouts that are texts -> rollouts of tokens. The ids may not be those that were sampled: this is never silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError, TokenizerError
from millstream.rollouts.collect import group_of_prompt
from millstream.rollouts.fields import ALIASES, FINISH_WORDS, TEXTS, holds_text
from millstream.tokens import Tokenizer

RETOKENIZED = (
    "rollouts that hold texts and no token ids were tokenised: their ids may not be those that the policy sampled"
)


def tokenize(
    records: Sequence[Any], tokenizer: Tokenizer | None, names: Sequence[str]
) -> tuple[list[Any], dict[int, RecordError]]:
    """The records with tokens for those that hold texts, by their places; and which of these have none, and why.

    The prompt is not trained on, the response is, and behind a response that ended by itself stands the token that ends
    texts, if there is one. `names` are the ids of rollouts that have none; equal prompts are a group, if none is named.

    >>> from millstream.tokens import CharTokenizer
    >>> made, _ = tokenize([{"prompt": "a", "response": "bb", "reward": 1.0}], CharTokenizer("ab"), ["row-0"])
    >>> made[0]["token_ids"].tolist(), made[0]["loss_mask"].tolist(), made[0]["rollout_id"], made[0]["finish"]
    ([0, 1, 1, 2], [False, True, True, True], 'row-0', 'stop')
    """
    made, faults = list(records), {}
    for place in places_of_texts(records):
        try:
            made[place] = _tokenized(records[place], tokenizer, names[place])
        except RecordError as error:
            faults[place] = error
    return made, faults


def places_of_texts(records: Sequence[Any]) -> list[int]:
    """Which records hold texts and no token ids.

    >>> places_of_texts([{"token_ids": [1]}, {"prompt": "a", "response": "b"}])
    [1]
    """
    return [place for place, record in enumerate(records) if isinstance(record, Mapping) and holds_text(record)]


def _tokenized(record: Mapping[str, Any], tokenizer: Tokenizer | None, name: str) -> dict[str, Any]:
    if tokenizer is None:
        raise RecordError("no token ids", f"{name}: it holds texts, and there is no tokenizer", "pass tokenizer=")
    fields = {ALIASES.get(key, key): value for key, value in record.items() if key not in TEXTS and value is not None}
    fields = {"rollout_id": name, "group_id": group_of_prompt(record["prompt"].encode()), "finish": "stop"} | fields
    try:
        prompt, response = tokenizer.encode_batch([record["prompt"], record["response"]])
    except TokenizerError as error:
        raise RecordError("not encodable", f"{name}: {error.message}", error.hint) from None
    ends_itself = FINISH_WORDS.get(str(fields["finish"])) == "stop" and tokenizer.eos_id is not None
    ids: npt.NDArray[np.uint32] = np.concatenate([prompt, response, [tokenizer.eos_id] if ends_itself else []]).astype(
        np.uint32
    )
    mask = np.arange(len(ids)) >= len(prompt)
    return {**fields, "token_ids": ids, "loss_mask": mask, "prompt_len": len(prompt)}
