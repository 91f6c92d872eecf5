"""Texts as people read them: made of parts that have styles. Joined, they are the text; styles only add colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

Style: TypeAlias = Literal[
    "heading",
    "note",
    "plain",
    "trained",
    "much better",
    "better",
    "neutral",
    "worse",
    "much worse",
    "error",
    "warning",
]


class Styled(NamedTuple):
    """A part of a text."""

    text: str
    style: Style


class Shown(str):
    """A text that knows the style of its parts; notebooks display it as it is printed.

    >>> Shown([Styled("row 0\\n", "heading"), Styled("⟦4⟧", "trained")])
    row 0
    ⟦4⟧
    """

    parts: tuple[Styled, ...]

    def __new__(cls, parts: Iterable[Styled]) -> Shown:
        """Join the parts."""
        kept = tuple(parts)
        text = super().__new__(cls, "".join(part.text for part in kept))
        text.parts = kept
        return text

    def __repr__(self) -> str:
        return str(self)
