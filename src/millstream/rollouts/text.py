"""Rollouts that are texts -> rollouts of tokens. The ids may not be those that were sampled: this is never silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millstream.errors import RecordError, TokenizerError
from millstream.rollouts.collect import group_of_prompt
from millstream.rollouts.fields import ALIASES, FINISH_WORDS, TEXTS, holds_text
from millstream.tokens import Ids, Tokenizer

_NO_TOKENIZER = RecordError("no token ids", "it holds texts, and there is no tokenizer", "pass tokenizer=")
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
    made, faults = list(records), dict[int, RecordError]()
    places = places_of_texts(records)
    texts = [records[place][side] for place in places for side in TEXTS]
    ids = _encoded(texts, tokenizer)
    for number, place in enumerate(places):
        sides = ids[2 * number : 2 * number + 2]
        wrong = next((side for side in sides if isinstance(side, RecordError)), None)
        if wrong is not None or tokenizer is None:
            faults[place] = wrong or _NO_TOKENIZER
        else:
            made[place] = _record(records[place], names[place], sides[0], sides[1], tokenizer.eos_id)
    return made, faults


def places_of_texts(records: Sequence[Any]) -> list[int]:
    """Which records hold texts and no token ids.

    >>> places_of_texts([{"token_ids": [1]}, {"prompt": "a", "response": "b"}])
    [1]
    """
    return [place for place, record in enumerate(records) if isinstance(record, Mapping) and holds_text(record)]


def _encoded(texts: list[str], tokenizer: Tokenizer | None) -> list[Any]:
    """The ids of each text, or why it has none."""
    if tokenizer is None:
        return [_NO_TOKENIZER] * len(texts)
    try:
        return list(tokenizer.encode_batch(texts))
    except (TokenizerError, UnicodeError):
        return [_encoded_alone(text, tokenizer) for text in texts]


def _encoded_alone(text: str, tokenizer: Tokenizer) -> Any:
    try:
        return np.array(tokenizer.encode(text), np.uint32)
    except TokenizerError as error:
        return RecordError("not encodable", error.message, error.hint)
    except UnicodeError:
        return RecordError("not Unicode", "half of a surrogate pair is no character", "take it out of the text")


def _record(record: Mapping[str, Any], name: str, prompt: Ids, response: Ids, eos: int | None) -> dict[str, Any]:
    """A record of tokens in the place of one of texts."""
    said = {ALIASES.get(key, key): value for key, value in record.items() if key not in TEXTS}
    absent = {"rollout_id": name, "group_id": group_of_prompt(record["prompt"].encode()), "finish": "stop"}
    fields = said | {field: value for field, value in absent.items() if said.get(field) is None}
    ended = FINISH_WORDS.get(str(fields["finish"])) == "stop"
    ids = np.concatenate([prompt, response, np.array([eos] if ended and eos is not None else [], np.uint32)])
    mask = np.arange(len(ids)) >= len(prompt)
    return {**fields, "token_ids": ids, "loss_mask": mask, "prompt_len": len(prompt)}
