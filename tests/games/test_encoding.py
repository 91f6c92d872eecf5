"""Positions come out of frames of any input format, and go into any other, as if the game had been written in it."""

from __future__ import annotations

import numpy as np
import pytest

from games.blocks import game
from games.positions import CASTLING
from millstream.games import InputFormat
from millstream.games.positions import Positions, encode_positions, transforms_of, turn_entries

STARTS = (
    "",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/P6k/8/3pP3/8/8/p6K/8 w - - 0 2",
    "1K6/8/4k3/8/3R4/8/8/8 w - - 3 9",
    "4k3/8/8/8/8/8/8/2BQK3 b - - 0 1",
    "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1",
    "rn2k3/1p1p1p1p/8/P1P1P1P1/1p1p1p1p/8/P1P1P1P1/RN2K3 b - - 0 1",
)
SHOWN = ("input_format", "planes", *CASTLING, "side_to_move_or_enpassant", "invariance_info")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("old", InputFormat)
def test_a_game_in_one_format_becomes_what_it_would_be_in_another(old: InputFormat, start: str) -> None:
    given = game(3, old, 70, start)
    rows = np.repeat(np.arange(len(given)), np.diff(given.ends, prepend=np.uint32(0)))
    for new in InputFormat:
        wanted = game(3, new, 70, start)
        fields = encode_positions(given.fields, Positions.of(given.fields), new)
        for name in SHOWN:
            np.testing.assert_array_equal(fields[name], wanted.fields[name], name)
        entries = turn_entries(given.moves, transforms_of(given.fields)[rows], transforms_of(wanted.fields)[rows])
        assert entries[np.lexsort((entries, rows))].tolist() == wanted.moves.tolist()


def test_a_position_is_repeated_as_soon_as_four_plies_lead_back_to_it() -> None:
    pieces = np.zeros((12, 12), np.uint64)
    pieces[:, 0] = [9, 1, 2, 3, 9, 1, 2, 3, 9, 1, 2, 7]
    game = Positions.of_columns(pieces, rule50=range(12), black=np.arange(12) % 2 == 1)
    assert game.repeats.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 0]
    other = Positions(game.records.copy())
    other.castling[0, 0] = 0
    assert other.repeats.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 0]


def test_games_have_all_transforms_and_pawns_to_take_in_passing() -> None:
    turned = [transforms_of(game(3, InputFormat.CANONICAL, 70, start).fields) for start in STARTS]
    assert set(np.concatenate(turned).tolist()) == set(range(8))
    assert (Positions.of(game(3, InputFormat.CANONICAL, 70, STARTS[-1]).fields).en_passant >= 0).sum() > 1


@pytest.mark.parametrize("start", ["8/P6k/8/3pP3/8/8/p6K/8 w - d6 0 2", "8/7k/8/8/3pP3/8/7K/8 b - e3 0 2"])
@pytest.mark.parametrize("new", [InputFormat.CLASSICAL, InputFormat.CASTLING_PLANE])
def test_a_push_before_the_first_frame_is_shown_in_formats_without_a_byte_for_it(new: InputFormat, start: str) -> None:
    given = Positions.of(game(1, InputFormat.CANONICAL, 12, start).fields)
    assert given.en_passant[0] >= 0
    shown = Positions.of(encode_positions(game(1, InputFormat.CANONICAL, 12, start).fields, given, new))
    assert shown.en_passant.tolist() == given.en_passant.tolist()
    np.testing.assert_array_equal(shown.pieces, given.pieces)
