"""The names of a policy are the moves of chess, in the order that the engine gives them."""

from __future__ import annotations

import chess

from millstream.games.frame import POLICY_INDEX, POLICY_MOVES, POLICY_SIZE


def reached(square: chess.Square) -> chess.Bitboard:
    board = chess.Board(None)
    reach = 0
    for piece in (chess.QUEEN, chess.KNIGHT):
        board.set_piece_at(square, chess.Piece(piece, chess.WHITE))
        reach |= board.attacks_mask(square)
    return reach


def test_plain_names_are_what_a_queen_or_a_knight_reaches_in_order_of_squares() -> None:
    names = [
        chess.square_name(start) + chess.square_name(end)
        for start in chess.SQUARES
        for end in chess.scan_forward(reached(start))
    ]
    assert list(POLICY_MOVES[:1792]) == names
    assert len(set(POLICY_MOVES)) == len(POLICY_MOVES) == POLICY_SIZE


def test_promotions_follow_by_file_and_piece() -> None:
    assert POLICY_MOVES[1792:1798] == ("a7a8q", "a7a8r", "a7a8b", "a7b8q", "a7b8r", "a7b8b")
    assert POLICY_MOVES[-1] == "h7h8b"
    assert POLICY_INDEX["e2e4"] == POLICY_MOVES.index("e2e4")
