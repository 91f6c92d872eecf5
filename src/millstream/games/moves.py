"""The move between a position and the next, and its entry in a policy.

No move is generated: two positions show what was played.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.policy import FILES
from millstream.games.positions import Positions

Entries = npt.NDArray[np.int16]
Squares = npt.NDArray[np.int8]

_BECOMES = ("", "n", "b", "r", "q")


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves in columns, as their own players see them.

    Args:
        origins: From which square; -1 where there is no move that leads from one position to the next.
        targets: To which square; to castle, the king takes its own rook.
        promotions: The piece that a pawn becomes (1 to 4: knight, bishop, rook, queen), or 0.
    """

    origins: Squares
    targets: Squares
    promotions: Squares

    @staticmethod
    def between(positions: Positions) -> Moves:
        """The moves of a game: one less than positions."""
        return Moves(*_core.moves_between(positions.raw))

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def columns(self) -> tuple[Squares, Squares, Squares]:
        """What native functions take."""
        return self.origins, self.targets, self.promotions

    def entries(self, transforms: npt.NDArray[np.uint8], *, half_turn: bool = False) -> Entries:
        """The entry of each move in the policy of its frame, or -1 if there is none."""
        return _core.move_entries(self.columns, transforms, half_turn)

    def name(self, ply: int, *, black: bool) -> str:
        """A move on the board, as in `e2e4` or `a7b8q`.

        >>> move = Moves(*np.array([[48], [57], [4]], np.int8))
        >>> move.name(0, black=False), move.name(0, black=True)
        ('a7b8q', 'a2b1q')
        """
        squares = (int(column[ply]) ^ (56 if black else 0) for column in (self.origins, self.targets))
        return "".join(f"{FILES[square & 7]}{(square >> 3) + 1}" for square in squares) + _BECOMES[self.promotions[ply]]


def turn_entries(
    entries: npt.NDArray[np.integer], old: npt.NDArray[np.uint8], new: npt.NDArray[np.uint8], *, half_turn: bool = False
) -> Entries:
    """Entries of policies under one transform each -> the same moves under another, or -1 if that names no move.

    `half_turn` says that the old ones are by the later rule (`uses_half_turn`).
    """
    return _core.turn_entries(entries.astype(np.uint16), old, new, half_turn)
