"""Two answers to one prompt -> ids with the prompt on both sides the same, shortened together.

The prompt is cut once for both answers, and first; an answer is cut only if the prompt has no more to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from millstream.chats.encode import Encoder
from millstream.chats.masks import Policy
from millstream.chats.supervised import Supervised
from millstream.chats.truncate import Limit
from millstream.errors import RecipeError, RecordError
from millstream.records.chat.conversation import Completion, Conversation, Preference, Side


class Pair(NamedTuple):
    """A prompt, and the better and the worse answer to it."""

    prompt: Supervised
    chosen: Supervised
    rejected: Supervised


@dataclass(frozen=True, slots=True)
class PairLimit:
    """How many tokens a prompt and one answer may have together, and how many of the prompt stay at the least."""

    max_length: int
    min_prompt: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.min_prompt < self.max_length:
            raise RecipeError(
                f"min_prompt={self.min_prompt} leaves no room for an answer in max_length={self.max_length}",
                hint="make min_prompt smaller, or allow longer pairs",
            )


def fit_pair(pair: Pair, limit: PairLimit) -> Pair | None:
    """The pair under the limit: the end of the prompt, then the beginning of each answer. None: an answer is empty.

    >>> import numpy as np
    >>> def row(n): return Supervised(np.arange(n, dtype=np.uint32), np.ones(n, np.float32), np.zeros(n, np.int32))
    >>> [len(part) for part in fit_pair(Pair(row(300), row(20), row(30)), PairLimit(100))]
    [70, 20, 30]
    >>> [len(part) for part in fit_pair(Pair(row(50), row(20), row(300)), PairLimit(100, min_prompt=10))]
    [10, 20, 90]
    """
    longest = max(len(pair.chosen), len(pair.rejected))
    budget = max(limit.min_prompt, limit.max_length - longest)
    prompt = pair.prompt
    if len(prompt) > budget:
        prompt = prompt.cut(len(prompt) - budget, len(prompt))
    room = limit.max_length - len(prompt)
    answers = [side if len(side) <= room else side.cut(0, room) for side in (pair.chosen, pair.rejected)]
    if not all(map(len, answers)):
        return None
    return Pair(prompt, *answers)


class Pairs(NamedTuple):
    """What became of preferences: a pair for each, or None with its fault, or without one if it was too long."""

    pairs: list[Pair | None]
    faults: dict[int, RecordError]
    dropped: int  # too long: an answer would be empty
    truncated: int


def encode_pairs(encoder: Encoder, rows: Sequence[Preference], limit: PairLimit | None = None) -> Pairs:
    """Encode preferences. The encoder has to split at boundaries, or a merge could make the two prompts differ."""
    if encoder.boundary != "split":
        raise RecipeError('pairs need an encoder with boundary="split"', hint='pass boundary="split" to the encoder')
    sides = [_side(row, answer) for row in rows for answer in (row.chosen, row.rejected)]
    encoded = encoder.encode(sides, Limit(untrained="keep"), policy=Policy("completion"))
    made = Pairs([None] * len(rows), {}, 0, 0)
    dropped = truncated = 0
    for at in range(len(rows)):
        fault = encoded.faults.get(2 * at) or encoded.faults.get(2 * at + 1)
        if fault is not None:
            made.faults[at] = fault
            continue
        try:
            whole = _pair(encoded.rows[2 * at][0], encoded.rows[2 * at + 1][0])
        except RecordError as unequal:
            made.faults[at] = unequal
            continue
        fitting = whole if limit is None else fit_pair(whole, limit)
        dropped += fitting is None
        truncated += fitting is not None and fitting != whole
        made.pairs[at] = fitting
    return made._replace(dropped=dropped, truncated=truncated)


def _side(row: Preference, answer: Side) -> Conversation | Completion:
    if isinstance(row.prompt, str) and isinstance(answer, str):
        return Completion(row.prompt, answer)
    if isinstance(row.prompt, str) or isinstance(answer, str):
        raise RecordError("mixed pair", "one part is a string, another a list of messages", hint="use one form for all")
    messages = (*row.prompt, *answer)
    return Conversation(messages, row.tools, row.template_kwargs, row.media, prompt_messages=len(row.prompt))


def _pair(chosen: Supervised, rejected: Supervised) -> Pair:
    """Part both rows where the answer begins; before that they have to be equal."""
    borders = [int(np.argmax(row.weights > 0)) if row.weights.any() else len(row) for row in (chosen, rejected)]
    first = borders[0]
    if first != borders[1] or not np.array_equal(chosen.ids[:first], rejected.ids[:first]):
        raise RecordError(
            "prompts differ",
            "the two answers do not follow the same prompt once they are rendered",
            hint="give both answers reasoning, or neither, and let both begin with the assistant",
        )
    answers = [row.part(first, len(row)) for row in (chosen, rejected)]
    if not all(map(len, answers)):
        raise RecordError("empty answer", "an answer has no token", hint="drop pairs with an empty answer")
    return Pair(chosen.part(0, first), *answers)
