"""The tokens of a rollout as pieces of text: each one token, or a few that only together are letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.stats import counted, visible

Decode: TypeAlias = Callable[[Sequence[int]], str]
MOST_TOKENS = 8
"""So many tokens are looked at together until they end with a whole letter."""
EDGE_TOKENS = 120
"""What is shown of the beginning and of the end of a long stretch that nobody trains on."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text, whether the policy sampled it, and how good that was."""

    text: str
    is_trained: bool
    advantage: float | None = None
    is_note: bool = False
    """It stands for tokens that are not shown."""


def pieces_of(
    ids: Sequence[int],
    mask: npt.NDArray[np.bool_],
    advantages: npt.NDArray[np.float64] | None,
    decode: Decode,
    *,
    whole: bool,
) -> list[Piece]:
    """All tokens; unless the `whole` is asked for, long stretches that are not trained on lose their middle.

    >>> pieces_of([72, 105], np.array([False, True]), None, lambda ids: "".join(map(chr, ids)), whole=True)
    [Piece(text='H', is_trained=False, advantage=None, is_note=False), Piece(text='i', is_trained=True, \
advantage=None, is_note=False)]
    """
    pieces: list[Piece] = []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(ids)]):
        left_out = stop - start - 2 * EDGE_TOKENS
        if whole or mask[start] or left_out <= EDGE_TOKENS:
            pieces += _pieces(ids, start, stop, decode, advantages if mask[start] else None, is_trained=mask[start])
            continue
        pieces += _pieces(ids, start, start + EDGE_TOKENS, decode)
        pieces.append(Piece(f"⋯ {counted(left_out, 'token')} not shown ⋯", is_trained=False, is_note=True))
        pieces += _pieces(ids, stop - EDGE_TOKENS, stop, decode)
    return pieces


def _pieces(
    ids: Sequence[int],
    start: int,
    stop: int,
    decode: Decode,
    advantages: npt.NDArray[np.float64] | None = None,
    *,
    is_trained: bool = False,
) -> Iterator[Piece]:
    for first, last, text in _texts(ids, start, stop, decode):
        advantage = None if advantages is None else float(np.mean(advantages[first:last]))
        yield Piece(visible(text, keep="\n\t"), bool(is_trained), advantage)


def ids_as_text(ids: Sequence[int]) -> str:
    """What is shown where nobody gave a tokenizer.

    >>> ids_as_text([72, 105])
    '72 105 '
    """
    return "".join(f"{each} " for each in ids)


def _texts(ids: Sequence[int], start: int, stop: int, decode: Decode) -> Iterator[tuple[int, int, str]]:
    """What tokens add to the text before them, since tokenizers treat beginnings apart and letters may be split."""
    context, first = max(0, start - 1), start
    for last in range(start + 1, stop + 1):
        before, text = decode(ids[context:first]), decode(ids[context:last])
        added = text[len(before) :] if text.startswith(before) else decode(ids[first:last])
        is_whole = bool(added) and not added.endswith("\N{REPLACEMENT CHARACTER}")
        if is_whole or last == stop or last - first == MOST_TOKENS:
            yield first, last, added
            context, first = first, last
