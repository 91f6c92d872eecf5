"""A position as text."""

from __future__ import annotations

import re

import numpy as np

from millstream.games.policy import FILES
from millstream.games.positions import Positions

_LETTERS = "PNBRQKpnbrqk"


def fen_of(positions: Positions, ply: int) -> str:
    """A position in Forsyth-Edwards notation; moves are counted from the first frame of the game."""
    board = draw_board(positions, ply).splitlines()[:8]
    ranks = "/".join(re.sub(r"\.+", lambda free: str(len(free[0])), line[3:].replace(" ", "")) for line in board)
    black, passed = bool(positions.black[ply]), int(positions.en_passant[ply])
    en_passant = f"{FILES[passed]}{3 if black else 6}" if passed >= 0 else "-"
    mover, quiet = "b" if black else "w", int(positions.rule50[ply])
    return f"{ranks} {mover} {castling_of(positions, ply)} {en_passant} {quiet} {ply // 2 + 1}"


def draw_board(positions: Positions, ply: int) -> str:
    """The board as text, White below."""
    squares = np.full(64, ".")
    for letter, board in zip(_LETTERS, positions.pieces[ply].tolist(), strict=True):
        squares[[square for square in range(64) if board >> square & 1]] = letter
    ranks = squares.reshape(8, 8)
    if positions.black[ply]:
        ranks = np.char.swapcase(ranks[::-1])
    lines = [f"{rank + 1}  {' '.join(ranks[rank])}" for rank in range(7, -1, -1)]
    return "\n".join([*lines, f"   {' '.join(FILES)}", ""])


def castling_of(positions: Positions, ply: int) -> str:
    """The rights as in a FEN, or the files of the rooks where they do not stand in the corners."""
    files = positions.castling[ply].tolist()
    own = {("q", 0): "q", ("k", 7): "k"}
    said = [own.get((side, file), FILES[file]) if file >= 0 else "" for side, file in zip("qkqk", files, strict=True)]
    mover, other = said[1] + said[0], said[3] + said[2]
    white, black = (other, mover) if positions.black[ply] else (mover, other)
    return white.upper() + black or "-"
