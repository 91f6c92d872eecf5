"""What endgame tables must answer, so that rescoring does not care whose they are."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from millstream.games import Moves, Positions


class TableProbe(Protocol):
    """What tables say of the positions of one game."""

    @property
    def in_reach(self) -> npt.NDArray[np.bool_]:
        """Which positions have few enough pieces, and no castling."""

    def wdl(self, ply: int) -> int | None:
        """1, 0 or -1 for the mover; what the rule of 50 moves spoils is a draw. None if no table says."""

    def dtz(self, ply: int) -> int | None:
        """Plies to the next capture or move of a pawn in best play, negative for the loser. None if no table says."""

    def best_moves(self, ply: int) -> Moves:
        """The moves that win soonest, else draw, else lose latest; none if no table says."""


class Tables(Protocol):
    """Endgame tables."""

    def of(self, positions: Positions) -> TableProbe:
        """What they say of the positions of a game."""

    def close(self) -> None:
        """Close their files."""


class MateProbe(Protocol):
    """What tables of mates say of the positions of one game."""

    @property
    def in_reach(self) -> npt.NDArray[np.bool_]:
        """Which positions there is a table for."""

    def plies_to_mate(self, ply: int) -> int | None:
        """Plies to mate in best play, whoever gives it; 0 in a draw. None if no table says."""


class MateTables(Protocol):
    """Tables of mates."""

    @property
    def coverage(self) -> dict[int, tuple[int, int]]:
        """For each number of pieces, how many tables there are, and how many there could be."""

    def of(self, positions: Positions) -> MateProbe:
        """What they say of the positions of a game."""

    def close(self) -> None:
        """Close their files."""
