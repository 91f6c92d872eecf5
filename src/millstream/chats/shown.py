"""A row as people read it: decoded, what is learned between ⟦ and ⟧, and notes where something begins or is lost.

What is shown is made of styled parts. Joined, they are the text, which says everything; styles only add colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from millstream.chats.supervised import Supervised
from millstream.stats import Shown, Styled, counted, share, visible

Decode: TypeAlias = Callable[[Sequence[int]], str]


def show_row(row: Supervised, decode: Decode, title: str = "", roles: Sequence[str] = ()) -> list[Styled]:
    """A row under a line that counts its tokens. With `roles`, those of its messages, each begins with a note.

    >>> row = Supervised(np.array([72, 105, 33], np.uint32), np.array([0, 1, 0.5], np.float32), np.zeros(3, np.int32))
    >>> Shown(show_row(row, lambda ids: "".join(map(chr, ids)), "a.jsonl:1"))
    a.jsonl:1  3 tokens, 2 trained (66.7 %)
    H⟦i⟧⟦!⟧×0.5
    >>> Shown(show_row(row, lambda ids: "".join(map(chr, ids)), roles=["user"])[1:])
    ── 0 user
    H⟦i⟧⟦!⟧×0.5
    """
    body = list(_body(row, decode, roles))
    end = "" if body and body[-1].text.endswith("\n") else "\n"
    return [Styled(f"{_counts(row, title)}\n", "heading"), *body, Styled(end, "plain")]


def show(row: Supervised, decode: Decode) -> Shown:
    """The row alone, with its marks.

    >>> row = Supervised(np.array([72, 105], np.uint32), np.array([0, 1], np.float32), np.zeros(2, np.int32))
    >>> show(row, lambda ids: "".join(map(chr, ids)))
    H⟦i⟧
    """
    return Shown(_body(row, decode, ()))


def _counts(row: Supervised, title: str) -> str:
    told = [f"{counted(len(row), 'token')}, {row.trained:,} trained ({share(row.trained, len(row))})"]
    if row.truncated:
        told.append("shortened: tokens of the conversation are missing")
    if row.straddlers:
        told.append(f"{counted(row.straddlers, 'token')} half in what is learned: learned at the smaller weight")
    return f"{title}  {'; '.join(told)}" if title else "; ".join(told)


def _body(row: Supervised, decode: Decode, roles: Sequence[str]) -> Iterator[Styled]:
    weights = row.weights.copy()
    weights[:1] = 0  # nothing comes before it, so it is never a target
    changes = np.diff(weights) != 0
    if roles:
        changes |= np.diff(row.messages) != 0
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(row) else []
    texts = _decoded(row.ids.tolist(), starts, decode)
    message, at_line_start = -1, True
    for start, text in zip(starts, texts, strict=True):
        if roles and row.messages[start] not in (message, -1):
            message = int(row.messages[start])
            yield Styled(f"{'' if at_line_start else chr(10)}── {message} {roles[message]}\n", "note")
            at_line_start = True
        shown, weight = visible(text, keep="\n\t"), float(weights[start])
        if weight:
            yield Styled(f"⟦{shown}⟧" + ("" if weight == 1 else f"×{weight:g}"), "trained")
        elif shown:
            yield Styled(shown, "plain")
        at_line_start = shown.endswith("\n") and not weight


def _decoded(ids: list[int], starts: list[int], decode: Decode) -> Iterator[str]:
    """The text of each stretch: what it adds to the text before it, since a tokenizer may treat beginnings apart."""
    before = ""
    for start, stop in pairwise([*starts, len(ids)]):
        whole = decode(ids[:stop])
        yield whole[len(before) :] if whole.startswith(before) else decode(ids[start:stop])
        before = whole
