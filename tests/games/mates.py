"""King and queen, or king and rook, against king: all mates, by going back from them. No library of chess is asked.

`Mates` says what tables should; `write_table` makes a table of it, in the layout of Gaviota's.
"""

from __future__ import annotations

import lzma
import struct
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import chess
import numpy as np
import numpy.typing as npt
from chess.gaviota import EGKEY, ENTRIES_PER_BLOCK, Request

Piece = Literal["q", "r"]
NEVER = -1
_LONGEST = 32
"""Plies of the longest mate with a rook."""
_WHITE_MATES = 1
_RANKS, _FILES = np.divmod(np.arange(64), 8)


class Mates(NamedTuple):
    """Plies to mate by [White's king, its piece, Black's king], or NEVER; of illegal positions, anything."""

    white_moves: npt.NDArray[np.int64]
    black_moves: npt.NDArray[np.int64]

    def of(self, board: chess.Board) -> int:
        """The same of a board where one side has a king and a piece, and the other a king; 0 for NEVER."""
        strong = chess.WHITE if chess.popcount(board.occupied_co[chess.WHITE]) == 2 else chess.BLACK
        piece = chess.msb(board.occupied_co[strong] & ~board.kings)
        kings = [board.king(strong), board.king(not strong)]
        table = self.white_moves if board.turn == strong else self.black_moves
        return max(0, int(table[kings[0], piece, kings[1]]))


@cache
def all_mates(piece: Piece) -> Mates:
    """Ply by ply: White mates if one move leads to where it does so in less, Black is mated if all its moves do."""
    steps = _steps()
    apart = ~steps & ~np.eye(64, dtype=bool)
    clear = _lines(piece) & ~_in_the_way()  # [blocker, from, to]
    slides = (clear[:, None] & clear).astype(np.float32)  # [king, other king, from, to]
    king, square, other = np.ogrid[:64, :64, :64]
    stands = apart[:, None] & (king != square) & (square != other)
    allowed = apart[:, None] & ~clear  # where Black's king may go, also onto the piece
    stalemate = ~_any(allowed, steps) & ~clear
    white, black = np.full((2, 64, 64, 64), NEVER)
    for plies in range(_LONGEST + 1):
        if plies % 2:
            goal = (black == plies - 1).astype(np.float32)
            by_king = (steps @ goal.reshape(64, -1)).reshape(goal.shape) > 0
            by_piece = np.swapaxes((slides @ np.swapaxes(goal, 1, 2)[..., None])[..., 0], 1, 2) > 0
            white[(by_king | by_piece) & stands & (white == NEVER)] = plies
        else:
            caught = ~_any(allowed & (white == NEVER), steps) & ~stalemate
            black[caught & stands & (black == NEVER)] = plies
    return Mates(white, black)


def write_table(folder: Path, piece: Piece) -> Path:
    """A table of the mates with a piece, as Gaviota's are: header, index, compressed bytes, one for a position."""
    name, kind, mates = f"k{piece}k", {"q": chess.QUEEN, "r": chess.ROOK}[piece], all_mates(piece)
    key = EGKEY[name]
    entries = np.zeros((2, key.maxindex), np.uint8)
    corner = [square for square in range(64) if _RANKS[square] <= _FILES[square] < 4]
    for king, other, square in product(range(64), corner, range(64)):
        request = Request([king, square], [chess.KING, kind], [other], [chess.KING], 0)
        request.white_piece_squares, request.black_piece_squares = request.white_squares, request.black_squares
        if (index := key.pctoi(request)) >= 0:
            for side, table in enumerate(mates):
                if (plies := int(table[king, square, other])) != NEVER:
                    entries[side, index] = plies // 2 << 2 | _WHITE_MATES
    blocks = [
        b"\0\0" + lzma.compress(side[start : start + ENTRIES_PER_BLOCK].tobytes(), lzma.FORMAT_ALONE)
        for side in entries
        for start in range(0, key.maxindex, ENTRIES_PER_BLOCK)
    ]
    begin = 40 + 4 * (len(blocks) + 1)
    ends = np.cumsum([begin, *map(len, blocks)]).tolist()
    header = struct.pack("<10I", 0, 0, ENTRIES_PER_BLOCK, 0, 0, 0, 0, 0, begin, 4)
    path = folder / f"{name}.gtb.cp4"
    path.write_bytes(header + struct.pack(f"<{len(ends)}I", *ends) + b"".join(blocks))
    return path


def _any(squares: npt.NDArray[np.bool_], steps: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether the last king of a position can step onto one of some squares."""
    found: npt.NDArray[np.bool_] = squares.astype(np.float32) @ steps.astype(np.float32) > 0
    return found


def _steps() -> npt.NDArray[np.bool_]:
    """[from, to]: the moves of a king."""
    steps: npt.NDArray[np.bool_] = np.maximum(*(abs(axis[:, None] - axis) for axis in (_FILES, _RANKS))) == 1
    return steps


def _lines(piece: Piece) -> npt.NDArray[np.bool_]:
    """[from, to]: the moves of the piece on an empty board."""
    across, up = (abs(axis[:, None] - axis) for axis in (_FILES, _RANKS))
    straight, diagonal = (across == 0) != (up == 0), (across == up) & (across != 0)
    lines: npt.NDArray[np.bool_] = straight | diagonal if piece == "q" else straight
    return lines


def _in_the_way() -> npt.NDArray[np.bool_]:
    """[blocker, from, to]: whether what stands there keeps a piece from going so, along a line."""
    found = np.zeros((64, 64, 64), bool)
    for square, across, up in product(range(64), (-1, 0, 1), (-1, 0, 1)):
        passed = list[int]()
        file, rank = square % 8 + across, square // 8 + up
        while (across or up) and 0 <= file < 8 and 0 <= rank < 8:
            passed.append(8 * rank + file)
            found[passed, square, passed[-1]] = True
            file, rank = file + across, rank + up
    return found
