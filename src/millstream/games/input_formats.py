"""How a frame says castling, en passant and history: the seven input formats of Leela Chess Zero."""

from __future__ import annotations

from enum import IntEnum


class InputFormat(IntEnum):
    """What stands in planes 104 to 110, and how the history was chosen.

    >>> InputFormat(132).name
    'CANONICAL_HECTOPLIES_ARMAGEDDON'
    """

    CLASSICAL = 1
    """Castling as four planes of ones; who moves as a plane of ones."""
    CASTLING_PLANE = 2
    """Castling as the squares of the rooks, as Chess960 needs it."""
    CANONICAL = 3
    """En passant as a square; the board turned so that equal positions look equal."""
    CANONICAL_HECTOPLIES = 4
    """The count of moves without progress in hundredths."""
    CANONICAL_V2 = 5
    """Of the history, only what is repeated."""
    CANONICAL_HECTOPLIES_ARMAGEDDON = 132
    """A plane of ones where Black moves, since a draw is a win for Black."""
    CANONICAL_V2_ARMAGEDDON = 133
