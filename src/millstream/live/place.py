"""How far a run is in the game that its positions come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A game: which draw it was, and how many of its chosen positions are used up."""

    draw: int
    chunk: int
    use: int
    source: str
    index: int
    used: int
    of: int
    """How many positions of it were chosen."""
