"""Two answers to one prompt -> ids with the prompt on both sides the same, shortened together.

The prompt is cut once for both answers, and first; an answer is cut only if the prompt has no more to give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millstream.chats.supervised import Supervised
from millstream.errors import RecipeError


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
