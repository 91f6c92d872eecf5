"""Two frames show the move between them, and what it is called in the policy of the first."""

from __future__ import annotations

import chess
import numpy as np
import pytest

from games.blocks import game
from games.positions import Position
from games.test_encoding import STARTS
from millstream.games import InputFormat
from millstream.games.board import board_at
from millstream.games.frame import POLICY_INDEX
from millstream.games.positions import ROOK, Moves, Positions, transforms_of, turn_entries


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("layout", InputFormat)
def test_the_move_between_two_frames_is_the_one_that_was_played(layout: InputFormat, start: str) -> None:
    block = game(3, layout, 70, start)
    moves = Moves.between(Positions.of(block.fields))
    assert moves.entries(transforms_of(block.fields)[:-1]).tolist() == block.fields["played_idx"][:-1].tolist()


def test_castling_in_chess960_is_seen_even_if_the_king_or_the_rook_stays() -> None:
    castled, stayed = 0, 0
    for number in range(0, 960, 48):
        board = chess.Board.from_chess960_pos(number)
        for square, piece in board.piece_map().items():
            if piece.piece_type in (chess.KNIGHT, chess.BISHOP, chess.QUEEN):
                board.remove_piece_at(square)
        block = game(number, InputFormat.CANONICAL, 40, board.shredder_fen())
        positions = Positions.of(block.fields)
        moves = Moves.between(positions)
        assert moves.entries(transforms_of(block.fields)[:-1]).tolist() == block.fields["played_idx"][:-1].tolist()
        for ply in range(len(moves)):
            if int(positions.pieces[ply, ROOK]) >> int(moves.targets[ply]) & 1:
                castled += 1
                stayed += int(moves.origins[ply]) in (2, 6) or int(moves.targets[ply]) in (3, 5)
    assert castled > 5
    assert stayed > 1


def test_frames_that_do_not_follow_have_no_move_between_them() -> None:
    positions = Positions.of(game(2).select([0, 5, 6, 3]).fields)
    assert (Moves.between(positions).origins >= 0).tolist() == [False, True, False]


@pytest.mark.parametrize("layout", [InputFormat.CLASSICAL, InputFormat.CANONICAL])
def test_boards_are_those_of_the_game(layout: InputFormat) -> None:
    for start in STARTS:
        positions = Positions.of(game(3, layout, 70, start).fields)
        moves = Moves.between(positions)
        board = board_at(positions, 0)
        for ply in range(len(moves)):
            board.push_uci(moves.name(ply, black=bool(positions.black[ply])))
            shown = board_at(positions, ply + 1)
            assert shown.fen(en_passant="legal").split()[:5] == board.fen(en_passant="legal").split()[:5]


def test_entries_turn_there_and_back() -> None:
    entries = np.arange(1792)
    for how in range(8):
        there, back = np.zeros(1792, np.uint8), np.full(1792, how, np.uint8)
        assert turn_entries(turn_entries(entries, there, back), back, there).tolist() == entries.tolist()


def test_the_later_rule_for_transposed_policies_is_a_half_turn() -> None:
    move = Moves(*np.array([[0], [1], [0]], np.int8))  # a1b1
    transposed = np.array([4], np.uint8)
    names = {half_turn: move.entries(transposed, half_turn=half_turn)[0] for half_turn in (False, True)}
    assert names == {False: POLICY_INDEX["h8h7"], True: POLICY_INDEX["h8g8"]}


def positions_of(*fens: str) -> Positions:
    boards = [Position.of(chess.Board(fen)) for fen in fens]
    pieces = np.array([board.ours + board.theirs for board in boards], np.uint64)
    return Positions.of_columns(pieces, black=[board.black for board in boards])


@pytest.mark.parametrize(
    ("before", "after", "move"),
    [
        ("4k3/8/8/3pP3/8/8/8/4K3 w", "4k3/8/3P4/8/8/8/8/4K3 b", (36, 43, 0)),
        ("4k3/8/8/3nP3/8/8/8/4K3 w", "4k3/8/3P4/8/8/8/8/4K3 b", None),  # only pawns are taken in passing
        ("4k3/8/8/8/8/8/4P3/4K3 w", "4k3/8/8/8/8/4P3/8/4K3 b", (12, 20, 0)),
        ("4k3/8/8/8/8/8/4P3/4K3 w", "4k2r/8/8/8/8/4P3/8/4K3 b", None),  # a rook from nowhere
        ("4k2r/8/8/8/8/8/4P3/4K3 w", "4k3/8/8/8/8/4P3/8/4K3 b", None),  # a rook that nobody took
        ("4k3/P7/8/8/8/8/8/4K3 w", "N3k3/8/8/8/8/8/8/4K3 b", (48, 56, 1)),
        ("1r2k3/P7/8/8/8/8/8/4K3 w", "1Q2k3/8/8/8/8/8/8/4K3 b", (48, 57, 4)),
        ("4k3/P7/8/8/8/8/8/4K3 w", "4k3/8/8/8/8/8/8/4K3 b", None),
        ("4k3/8/8/8/8/8/8/R3K2R w", "4k3/8/8/8/8/8/8/R4RK1 b", (4, 7, 0)),
        ("4k3/8/8/8/8/8/8/R3K2R w", "4k3/8/8/8/8/8/8/2KR3R b", (4, 0, 0)),
        ("4k3/8/8/8/8/8/8/6KR w", "4k3/8/8/8/8/8/8/5RK1 b", (6, 7, 0)),
        ("4k3/8/8/8/8/8/8/4KR2 w", "4k3/8/8/8/8/8/8/5RK1 b", (4, 5, 0)),
        ("r3k3/8/8/8/8/8/8/4K3 b", "2kr4/8/8/8/8/8/8/4K3 w", (4, 0, 0)),
        ("4k3/8/8/8/8/8/8/4K2R w", "4k3/8/8/8/8/8/8/5KR1 b", None),  # king and rook moved, but not to where they castle
        ("4k3/8/8/8/8/8/8/4K2R w", "4k3/8/8/8/6K1/8/8/5R2 b", None),
        ("4k3/8/8/8/8/8/8/R3K3 w", "4k3/8/8/8/8/8/8/1K1R4 b", None),
        ("4k3/8/8/8/8/8/8/R3K3 w", "4k3/8/8/8/8/8/8/4KR2 b", (0, 5, 0)),  # over its king: no castling, and not legal
        ("4k3/8/8/8/8/8/8/3K1R2 w", "4k3/8/8/8/8/8/8/5RK1 b", (3, 5, 0)),  # in Chess960
        ("4k3/8/8/8/8/8/8/1K1R4 w", "4k3/8/8/8/8/8/8/2KR4 b", (1, 2, 0)),  # a step, though it ends as castling does
    ],
)
def test_two_positions_have_one_move_or_none_between_them(
    before: str, after: str, move: tuple[int, int, int] | None
) -> None:
    moves = Moves.between(positions_of(f"{before} - - 0 1", f"{after} - - 0 1"))
    found = int(moves.origins[0]), int(moves.targets[0]), int(moves.promotions[0])
    assert found == (move or (-1, -1, 0))
