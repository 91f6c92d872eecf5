"""Made chunks say what was on the board."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest

from games.chunks import KINDS, LAYOUTS, play, zipped
from games.positions import CANONICAL, move_index, transform_square
from millstream.games import InputFormat

STARTS = ("", "4k3/8/8/8/8/8/8/2BQK3 b - - 0 1", "8/8/3k4/8/2KR4/8/8/8 w - - 3 9", "8/P6k/8/3pP3/8/8/p6K/8 w - d6 0 2")


def test_versions_have_the_sizes_that_the_engine_gives_them() -> None:
    assert [layout.itemsize for layout in LAYOUTS.values()] == [8276, 8292, 8308, 8356, 8396]


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_kings_and_legal_moves_stand_where_the_board_has_them(version: int, layout: InputFormat) -> None:
    for fen in STARTS:
        frames, fens = play(random.Random(version), version, layout, plies=30, fen=fen)
        assert len(frames) == len(fens) > 0
        for frame, fen in zip(frames, fens, strict=True):
            board = chess.Board(fen)
            transform = int(frame["invariance_info"]) & 7 if layout in CANONICAL else 0
            legal = {move_index(board, move, transform) for move in board.legal_moves}
            assert set(np.flatnonzero(frame["probabilities"] >= 0)) == legal
            king = (board.king(board.turn) or 0) ^ (0 if board.turn else 56)
            planes = np.unpackbits(np.frombuffer(frame["planes"].tobytes(), np.uint8)).reshape(104, 64)
            assert np.flatnonzero(planes[5]).tolist() == [transform_square(king, transform)]


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert zipped(play(random.Random(5), plies=9)[0]) == zipped(play(random.Random(5), plies=9)[0])
