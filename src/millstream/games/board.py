"""Boards of the package `chess`, and what its Syzygy tables say. Only this and `gaviota.py` know that package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from millstream.errors import MissingExtra, RecipeError
from millstream.games.positions import Moves, Positions, flip_ranks

try:
    import chess
    import chess.syzygy
except ImportError as error:
    raise MissingExtra.of("chess", "chess") from error

_PIECES = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN, chess.KING)
_AFTER_ZEROING = {-2: -1.0, -1: -1 / 101, 0: 0.0, 1: 1 / 101, 2: 1.0}
_MATE = 1.0
_TOP = 56
"""What turns a square of White's view into that of Black's, and back."""


def board_at(positions: Positions, ply: int) -> chess.Board:
    """The board of a position."""
    black = bool(positions.black[ply])
    board = chess.Board(None, chess960=True)
    pieces = positions.pieces[ply]
    for number, mask in enumerate((flip_ranks(pieces) if black else pieces).tolist()):
        color = (number < 6) != black
        for square in chess.scan_forward(mask):
            board.set_piece_at(square, chess.Piece(_PIECES[number % 6], color))
    board.turn = not black
    for number, file in enumerate(positions.castling[ply].tolist()):
        if file >= 0:
            board.castling_rights |= chess.BB_SQUARES[file if (number < 2) != black else file + _TOP]
    if (file := int(positions.en_passant[ply])) >= 0:
        board.ep_square = chess.square(file, 2 if black else 5)
    board.halfmove_clock = int(positions.rule50[ply])
    return board


def folders_of(paths: Sequence[str | Path], kind: str) -> list[str]:
    """The paths of tables, all of which must be folders."""
    for path in paths:
        if not Path(path).is_dir():
            raise RecipeError(f"{path}: there is no such folder of tables", hint=f"give the folder of {kind} files")
    return list(map(str, paths))


class SyzygyTables:
    """Syzygy endgame tables.

    Args:
        tables: What looks them up.
        largest: The most pieces of a position that they know.
    """

    def __init__(self, tables: chess.syzygy.Tablebase, largest: int) -> None:
        self._tables, self.largest = tables, largest

    @classmethod
    def open(cls, paths: Sequence[str | Path]) -> SyzygyTables:
        """The tables in some folders."""
        tables = chess.syzygy.Tablebase()
        for folder in folders_of(paths, ".rtbw"):
            tables.add_directory(folder)
        if not tables.wdl:
            raise RecipeError(f"there are no Syzygy tables in {list(map(str, paths))}", hint="look for .rtbw files")
        return cls(tables, max(len(name) - 1 for name in tables.wdl))

    def of(self, positions: Positions) -> SyzygyProbe:
        """What they say of the positions of a game."""
        return SyzygyProbe(self._tables, self.largest, positions)

    def close(self) -> None:
        """Close their files."""
        self._tables.close()


class SyzygyProbe:
    """What tables say of the positions of one game; only what is wanted is looked up."""

    def __init__(self, tables: chess.syzygy.Tablebase, largest: int, positions: Positions) -> None:
        self._tables, self._positions = tables, positions
        self.in_reach = ~positions.can_castle & (positions.men <= largest)

    def wdl(self, ply: int) -> int | None:
        """1, 0 or -1 for the mover; what the rule of 50 moves spoils is a draw. None if no table says."""
        if not self.in_reach[ply]:
            return None
        value = self._tables.get_wdl(board_at(self._positions, ply))
        return None if value is None else int(value / 2)

    def dtz(self, ply: int) -> int | None:
        """Plies to the next capture or move of a pawn in best play, negative for the loser."""
        return self._tables.get_dtz(board_at(self._positions, ply)) if self.in_reach[ply] else None

    def best_moves(self, ply: int) -> Moves:
        """The moves that win soonest, else draw, else lose latest, counted to the next capture or move of a pawn."""
        board = board_at(self._positions, ply)
        ranked = self._ranked(board) if self.in_reach[ply] else []
        best = max((rank for rank, _ in ranked), default=0.0)
        turn = _TOP if self._positions.black[ply] else 0
        chosen = [move for rank, move in ranked if rank == best]
        return Moves(
            np.array([move.from_square ^ turn for move in chosen], np.int8),
            np.array([move.to_square ^ turn for move in chosen], np.int8),
            np.array([_PIECES.index(move.promotion) if move.promotion else 0 for move in chosen], np.int8),
        )

    def _ranked(self, board: chess.Board) -> list[tuple[float, chess.Move]]:
        """Each move with a rank that is higher for a better one; nothing if one of them leads out of the tables."""
        ranked = []
        for move in list(board.legal_moves):
            zeroes = board.is_zeroing(move)
            board.push(move)
            rank = _MATE if board.is_checkmate() else self._rank(board, zeroes=zeroes)
            board.pop()
            if rank is None:
                return []
            ranked.append((rank, move))
        return ranked

    def _rank(self, board: chess.Board, *, zeroes: bool) -> float | None:
        """1/n for a win that zeroes in n plies, -1/n for a loss; after a zeroing move, n is 1 or, if cursed, 101."""
        if zeroes:
            wdl = self._tables.get_wdl(board)
            return None if wdl is None else _AFTER_ZEROING[-wdl]
        dtz = self._tables.get_dtz(board)
        if dtz is None:
            return None
        return -1 / (dtz + (1 if dtz > 0 else -1)) if dtz else 0.0
