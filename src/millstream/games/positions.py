"""Frames -> the positions that they show, whatever their input format: what moves, tables and other formats start from.

Every position is seen by its own mover, who plays up the board. `chess/positions.h` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.bitboards import Boards, count, union
from millstream.games.frame import as_bytes
from millstream.games.input_formats import InputFormat

PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(6)
_TRANSFORM = 0x07
"""Bits of `invariance_info`, in canonical formats."""

POSITION = np.dtype(
    [
        ("pieces", "<u8", (12,)),
        ("castling", "i1", (4,)),
        ("en_passant", "i1"),
        ("rule50", "u1"),
        ("black", "?"),
        ("_padding", "u1"),
    ]
)


@dataclass(frozen=True)
class Positions:
    """The positions of a game.

    Args:
        records: One `POSITION` for each; the properties are its columns.
    """

    records: npt.NDArray[np.void]

    @staticmethod
    def of(fields: npt.NDArray[np.void]) -> Positions:
        """The positions of the frames of a game (`FRAME`), whose input formats are known ones."""
        return Positions(_core.positions_of(as_bytes(fields)).view(POSITION))

    @staticmethod
    def of_columns(
        pieces: npt.ArrayLike,
        *,
        black: npt.ArrayLike,
        castling: npt.ArrayLike = -1,
        en_passant: npt.ArrayLike = -1,
        rule50: npt.ArrayLike = 0,
    ) -> Positions:
        """Positions by the columns that the properties give."""
        records = np.zeros(len(np.asarray(pieces)), POSITION)
        records["pieces"], records["castling"], records["en_passant"] = pieces, castling, en_passant
        records["rule50"], records["black"] = rule50, black
        return Positions(records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """What native functions take."""
        return as_bytes(self.records)

    @property
    def pieces(self) -> Boards:
        """(n, 12) boards: the mover's pawns, knights, bishops, rooks, queens and king, then the other player's."""
        return self.records["pieces"]

    @property
    def castling(self) -> npt.NDArray[np.int8]:
        """(n, 4) files of the rooks that may castle, -1 for none: the mover's a-side and h-side, the other's."""
        return self.records["castling"]

    @property
    def en_passant(self) -> npt.NDArray[np.int8]:
        """The file of a pawn that can be taken so, or -1."""
        return self.records["en_passant"]

    @property
    def rule50(self) -> npt.NDArray[np.uint8]:
        """Plies since a capture or a move of a pawn."""
        return self.records["rule50"]

    @property
    def black(self) -> npt.NDArray[np.bool_]:
        """Whether Black moves."""
        return self.records["black"]

    @cached_property
    def can_castle(self) -> npt.NDArray[np.bool_]:
        """Whether anybody may still castle."""
        somebody: npt.NDArray[np.bool_] = self.castling.max(axis=1) >= 0
        return somebody

    @cached_property
    def men(self) -> npt.NDArray[np.uint8]:
        """Pieces on the board, kings and pawns too."""
        return count(union(self.pieces))

    @cached_property
    def repeats(self) -> npt.NDArray[np.uint32]:
        """How often each position was there before, as far as the game is known."""
        return _core.count_repeats(self.raw)

    def repeated_since_zeroing(self, ply: int) -> bool:
        """Whether this position or one since the last capture or move of a pawn was there before."""
        first = max(0, ply + 1 - int(self.rule50[ply]))
        return bool(self.repeats[first : ply + 1].any())


def transforms_of(fields: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """The transform of each frame; none where the format has none."""
    canonical = fields["input_format"] >= InputFormat.CANONICAL
    transforms: npt.NDArray[np.uint8] = np.where(canonical, fields["invariance_info"] & _TRANSFORM, 0).astype(np.uint8)
    return transforms
