"""Frames -> the positions that they show, whatever their input format: what moves, tables and other formats start from.

Every position is seen by its own mover, who plays up the board.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream.games.bitboards import (
    FLIP,
    Boards,
    count,
    reverse_file_mask,
    reverse_files,
    square_of,
    undo_transform,
    union,
)
from millstream.games.input_formats import InputFormat

PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(6)
SLOT = 13
"""Planes of one position of the history: six own pieces, six others, and whether it was there before."""
CASTLING = ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo")
BLACK_MOVES, TRANSFORM = 0x80, 0x07
"""Bits of `invariance_info`, in canonical formats."""


@dataclass(frozen=True)
class Positions:
    """The positions of a game, in columns.

    Args:
        pieces: (n, 12) boards: the mover's pawns, knights, bishops, rooks, queens and king, then the other player's.
        castling: (n, 4) files of the rooks that may castle, -1 for none: the mover's a-side and h-side, the other's.
        en_passant: The file of a pawn that can be taken so, or -1.
        rule50: Plies since a capture or a move of a pawn.
        black: Whether Black moves.
    """

    pieces: Boards
    castling: npt.NDArray[np.int8]
    en_passant: npt.NDArray[np.int8]
    rule50: npt.NDArray[np.int64]
    black: npt.NDArray[np.bool_]

    @staticmethod
    def of(fields: npt.NDArray[np.void]) -> Positions:
        """The positions of the frames of a game (`FRAME`), whose input formats are known ones."""
        layouts = fields["input_format"]
        canonical, rook_files = layouts >= InputFormat.CANONICAL, layouts >= InputFormat.CASTLING_PLANE
        transforms = transforms_of(fields)
        shown = undo_transform(reverse_files(fields["planes"][:, : SLOT + 12]), transforms)
        pieces, before = shown[:, :12], shown[:, SLOT:]

        masks = np.stack([fields[name] for name in CASTLING], axis=1)
        files = square_of(masks.astype(np.uint64))
        castling = np.where(rook_files[:, None] | (masks == 0), files, np.array([0, 7, 0, 7], np.int8))

        byte = fields["side_to_move_or_enpassant"]
        mask = np.where(transforms & FLIP, reverse_file_mask(byte), byte)
        pushed = np.where(canonical, square_of(mask.astype(np.uint64)), _pushed_file(pieces[:, 6], before[:, 6]))
        black = np.where(canonical, fields["invariance_info"] & BLACK_MOVES, byte) != 0
        rule50 = fields["rule50_count"].astype(np.int64)
        return Positions(pieces, castling, _takeable(pieces, pushed), rule50, black)

    def __len__(self) -> int:
        return len(self.pieces)

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
    def repeats(self) -> list[int]:
        """How often each position was there before, as far as the game is known."""
        rule50, keys = self.rule50.tolist(), self._keys()
        counts: list[int] = []
        for now in range(len(self)):
            counts.append(0)
            if rule50[now] < 4:
                continue
            for then in range(now - 4, -1, -2):
                if keys[then] == keys[now]:
                    counts[now] = 1 + counts[then]
                    break
                if rule50[then] < 2:
                    break
        return counts

    def repeated_since_zeroing(self, ply: int) -> bool:
        """Whether this position or one since the last capture or move of a pawn was there before."""
        first = max(0, ply + 1 - int(self.rule50[ply]))
        return any(self.repeats[first : ply + 1])

    def _keys(self) -> list[bytes]:
        """Equal for equal positions, of the same mover."""
        columns = self.pieces.view(np.uint8), self.castling.view(np.uint8), self.en_passant.view(np.uint8)[:, None]
        return [row.tobytes() for row in np.concatenate(columns, axis=1)]


def transforms_of(fields: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """The transform of each frame; none where the format has none."""
    canonical = fields["input_format"] >= InputFormat.CANONICAL
    transforms: npt.NDArray[np.uint8] = np.where(canonical, fields["invariance_info"] & TRANSFORM, 0).astype(np.uint8)
    return transforms


def _pushed_file(pawns: Boards, before: Boards) -> npt.NDArray[np.int8]:
    """The file of the other player's pawn that has just gone two ranks, or -1."""
    came, gone = pawns & ~before, before & ~pawns
    square = square_of(came)
    pushed = (gone != 0) & (gone == came << np.uint64(16)) & (count(came) == 1)
    return np.where(pushed, square & 7, np.int8(-1))


def _takeable(pieces: Boards, files: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The same files where a pawn of the mover stands beside the pushed one, else -1."""
    fifth = ((pieces[:, PAWN] >> np.uint64(32)) & np.uint64(0xFF)).astype(np.int64)
    there = np.where(files < 0, 0, 1 << files.astype(np.int64).clip(0))
    beside = (there << 1 | there >> 1) & fifth
    return np.where(beside != 0, files, np.int8(-1))
