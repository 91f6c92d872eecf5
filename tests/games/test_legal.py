"""A move is legal exactly if the package `chess` generates it."""

from __future__ import annotations

import os
import random

import chess
import numpy as np
import pytest

from games.positions import Position
from millstream import _core
from millstream.games.positions import Moves, Positions

ILLEGAL = 1
GAMES = 400 if "MILLSTREAM_FUZZ" in os.environ else 8
CASTLES = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
STARTS = (
    chess.STARTING_FEN,
    CASTLES,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/8/8/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",  # a pawn that may not be taken in passing, since the king would stand open
    "4k3/8/8/8/8/8/8/3r2KR w H - 0 1",  # no castling out of check, though the rook would come between
    "1k6/8/8/8/8/8/8/rR2K3 w B - 0 1",  # nor into one, from behind the rook
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
    "8/8/4k3/8/2pPp3/8/B7/4K3 b - d3 0 1",
)
PAIRS = np.array([(origin, target) for origin in range(64) for target in range(64)], np.int8)
ORIGINS, TARGETS = np.ascontiguousarray(PAIRS[:, 0]), np.ascontiguousarray(PAIRS[:, 1])


def legal_moves(board: chess.Board) -> set[tuple[int, int, int]]:
    """(origin, target, promotion) as the mover sees them; to castle, the king takes its rook."""
    turn = 0 if board.turn else 56
    return {
        (move.from_square ^ turn, move.to_square ^ turn, move.promotion - 1 if move.promotion else 0)
        for move in board.legal_moves
    }


def found_legal(board: chess.Board) -> set[tuple[int, int, int]]:
    """All that could be a move, tried."""
    now = Position.of(board)
    files = [-1 if file is None else file for file in now.castling]
    passed = -1 if now.en_passant is None else now.en_passant
    legal = set()
    for promotion in range(5):
        positions = Positions.of_columns(
            np.tile(np.array([now.ours + now.theirs], np.uint64), (len(PAIRS), 1)),
            castling=files,
            en_passant=passed,
            black=now.black,
        )
        moves = Moves(ORIGINS, TARGETS, np.full(len(PAIRS), promotion, np.int8))
        wrong = _core.wrong_moves(positions.raw, moves.columns)
        legal |= {(int(origin), int(target), promotion) for origin, target in PAIRS[wrong != ILLEGAL]}
    return legal


def boards(start: chess.Board, seed: int, plies: int = 60) -> list[chess.Board]:
    dice, board, found = random.Random(seed), start, [start.copy()]
    while len(found) < plies and (moves := list(board.legal_moves)):
        castling = [move for move in moves if board.is_castling(move) or board.is_en_passant(move) or move.promotion]
        board.push(dice.choice(castling if castling and dice.random() < 0.3 else moves))
        found.append(board.copy())
    return found


@pytest.mark.parametrize("start", STARTS)
def test_moves_are_legal_that_a_chess_library_generates_and_no_others(start: str) -> None:
    for seed in range(max(1, GAMES // 8)):
        for board in boards(chess.Board(start, chess960=True), seed):
            assert found_legal(board) == legal_moves(board), board.fen()


def test_castling_is_legal_in_chess960_where_nothing_is_in_the_way_and_nobody_looks() -> None:
    castled = 0
    for seed in range(GAMES):
        board = chess.Board.from_chess960_pos(seed * 97 % 960)
        for square, piece in board.piece_map().items():
            if piece.piece_type in (chess.KNIGHT, chess.BISHOP, chess.QUEEN, chess.PAWN) and (square + seed) % 3:
                board.remove_piece_at(square)
        if not board.is_valid():
            continue
        for each in boards(board, seed, 30):
            assert found_legal(each) == legal_moves(each), each.fen()
            castled += any(each.is_castling(move) for move in each.legal_moves)
    assert castled > 5
