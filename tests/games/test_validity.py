"""Every rule is broken by some frame, is told by its own reason, and is kept by every game of the engine's kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.blocks import as_later_engines, game
from games.positions import CASTLING
from games.test_encoding import STARTS
from laws import examples
from millstream.games import FrameBlock, InputFormat
from millstream.games.positions import QUEEN, Moves, Positions, transforms_of, union
from millstream.games.validity import FrameFault, legality_faults, look_at, uses_half_turn

PLY = 3
NAN = float("nan")


def faults(block: FrameBlock) -> list[FrameFault]:
    found, positions, moves = look_at(block)
    return found or legality_faults(positions, moves)


def value_faults(block: FrameBlock) -> list[FrameFault]:
    return look_at(block, follow=False).faults


@pytest.mark.parametrize("layout", InputFormat)
def test_games_of_the_engine_are_valid(layout: InputFormat) -> None:
    for start in STARTS:
        assert faults(game(3, layout, 70, start)) == []


FIELDS = [
    ("input_format", 0, "unknown input_format"),
    ("input_format", 6, "unknown input_format"),
    *((f"{which}_q", value, f"{which}_q out of range") for which in ("root", "best", "played") for value in (1.1, NAN)),
    *(
        (f"{which}_d", value, f"{which}_d out of range")
        for which in ("root", "best", "played")
        for value in (-0.1, 1.1)
    ),
    *((f"{which}_m", value, f"{which}_m out of range") for which in ("root", "best", "played") for value in (-1, NAN)),
    ("orig_q", -1.5, "orig_q out of range"),
    ("orig_d", 2, "orig_d out of range"),
    ("orig_m", -1, "orig_m out of range"),
    ("plies_left", -1, "plies_left out of range"),
    ("result_q", 2, "result_q out of range"),
    ("result_d", -1, "result_d out of range"),
    ("rule50_count", 101, "rule50_count out of range"),
    ("played_idx", 1858, "played_idx out of range"),
    ("best_idx", 1858, "best_idx out of range"),
    *((name, 2, "bad castling") for name in CASTLING),
    ("side_to_move_or_enpassant", 2, "bad side_to_move_or_enpassant"),
]


@pytest.mark.parametrize(("name", "value", "reason"), FIELDS)
def test_a_field_out_of_its_range_is_a_fault(name: str, value: float, reason: str) -> None:
    block = game()
    block.fields[name][PLY] = value
    assert (PLY, reason) in [fault[:2] for fault in value_faults(block)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [*((name, "bad castling") for name in CASTLING), ("side_to_move_or_enpassant", "bad side_to_move_or_enpassant")],
)
def test_a_mask_of_two_files_is_a_fault(name: str, reason: str) -> None:
    block = game(layout=InputFormat.CANONICAL)
    block.fields[name][PLY] = 0b100
    assert value_faults(block) == []
    block.fields[name][PLY] = 0b101
    assert [fault[:2] for fault in value_faults(block)] == [(PLY, reason)]


def test_what_an_older_engine_does_not_know_is_no_fault() -> None:
    block = game()
    for name in ("orig_q", "orig_d", "orig_m"):
        block.fields[name] = NAN
    block.fields["visits"] = block.fields["played_idx"] = block.fields["best_idx"] = 0
    assert faults(block) == []


def first_entry(block: FrameBlock) -> int:
    return int(block.starts[PLY])


def set_probability(value: float, name: str = "") -> Callable[[FrameBlock], FrameBlock]:
    """Change the first entry of a policy, or that of a move."""

    def change(block: FrameBlock) -> FrameBlock:
        entry = first_entry(block)
        while name and block.moves[entry] != block.fields[name][PLY]:
            entry += 1
        block.probabilities[entry] = value
        return block

    return change


def without_entry(name: str) -> Callable[[FrameBlock], FrameBlock]:
    """Mark a move illegal, and give its share to another one."""

    def change(block: FrameBlock) -> FrameBlock:
        first, last = first_entry(block), int(block.ends[PLY])
        at = first + int(np.flatnonzero(block.moves[first:last] == block.fields[name][PLY])[0])
        block.probabilities[first if at > first else first + 1] += block.probabilities[at]
        ends = block.ends - (np.arange(len(block)) >= PLY).astype(np.uint32)
        return replace(
            block, ends=ends, moves=np.delete(block.moves, at), probabilities=np.delete(block.probabilities, at)
        )

    return change


def set_kings(value: int) -> Callable[[FrameBlock], FrameBlock]:
    def change(block: FrameBlock) -> FrameBlock:
        block.fields["planes"][PLY, 5] = value
        return block

    return change


def overlap(block: FrameBlock) -> FrameBlock:
    block.fields["planes"][PLY, 1] |= block.fields["planes"][PLY, 5]
    return block


def skip(block: FrameBlock) -> FrameBlock:
    return block.select([*range(PLY + 1), *range(PLY + 3, len(block))])


def play_another(block: FrameBlock) -> FrameBlock:
    others = block.moves[block.starts[PLY] : block.ends[PLY]]
    block.fields["played_idx"][PLY] = others[others != block.fields["played_idx"][PLY]][0]
    return block


def hop(block: FrameBlock) -> FrameBlock:
    """A knight goes where no policy has a name for it."""
    block.fields["planes"][PLY, :12], block.fields["planes"][PLY + 1, :12] = 0, 0
    for plane, square in ((1, 8), (5, 0), (11, 63)):
        block.fields["planes"][PLY, plane] = 1 << (square ^ 7)
    for plane, square in ((7, 51 ^ 56), (11, 56), (5, 7)):
        block.fields["planes"][PLY + 1, plane] = 1 << (square ^ 7)
    return block


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_probability(-0.5), "probability out of range"),
        (set_probability(1.5), "probability out of range"),
        (set_probability(float("inf")), "probability out of range"),
        (set_probability(NAN, "best_idx"), "best_idx marked illegal"),
        (set_probability(0.9), "policy does not sum to 1"),
        (without_entry("played_idx"), "played_idx marked illegal"),
        (without_entry("best_idx"), "best_idx marked illegal"),
        (set_kings(0), "not one king each"),
        (set_kings(3), "not one king each"),
        (overlap, "two pieces on a square"),
        (skip, "no move to the next frame"),
        (play_another, "move is not played_idx"),
        (hop, "move without an entry"),
    ],
)
def test_a_broken_rule_is_told_by_its_reason(change: Callable[[FrameBlock], FrameBlock], reason: str) -> None:
    assert (PLY, reason) in [fault[:2] for fault in faults(change(game(8)))]


@pytest.mark.parametrize(("total", "fine"), [(0.985, False), (0.992, True), (1.008, True), (1.015, False)])
def test_a_policy_sums_to_1_up_to_a_hundredth(total: float, fine: bool) -> None:
    block = game(8)
    block.probabilities[:] *= total
    assert (value_faults(block) == []) == fine


def test_a_move_marked_illegal_is_a_fault_unless_the_frame_only_tells_the_history() -> None:
    block = without_entry("played_idx")(game(8))
    block.fields["visits"] = 0
    assert [fault[:2] for fault in faults(block)] == [(PLY, "move marked illegal")]
    block.fields["invariance_info"][PLY] |= 0x40
    assert faults(block) == []


def test_a_move_that_leaves_the_king_in_check_is_illegal() -> None:
    block = game(1, plies=30, fen="8/3k4/8/8/8/8/2KR4/8 w - - 0 1")
    positions = Positions.of(block.fields)
    moves = Moves.between(positions)
    assert legality_faults(positions, moves) == []
    positions.pieces[PLY, 6 + QUEEN] = ~union(positions.pieces[PLY])  # wherever the king goes, there is a queen
    assert [fault[:2] for fault in legality_faults(positions, moves)] == [(PLY, "illegal move")]


def told(change: Callable[[FrameBlock], None]) -> list[tuple[int, str]]:
    """What is said of a game in which nobody has castled yet."""
    block = game(8, InputFormat.CASTLING_PLANE, 8, "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/R3K2R w KQkq - 0 1")
    assert faults(block) == []
    assert (Positions.of(block.fields).castling >= 0).all()
    change(block)
    return [fault[:2] for fault in faults(block)]


def test_what_a_frame_says_follows_from_the_move_before() -> None:
    def count_on(block: FrameBlock) -> None:
        block.fields["rule50_count"][PLY] += 1

    def stay(block: FrameBlock) -> None:
        block.fields["side_to_move_or_enpassant"][PLY] ^= 1

    def castle_again(block: FrameBlock) -> None:
        block.fields["castling_us_oo"][PLY] = 0  # lost, which nobody minds, and then there again

    def another_rook(block: FrameBlock) -> None:
        block.fields["castling_us_oo"][PLY] = 1 << 6

    assert told(count_on) == [(PLY - 1, "rule50_count does not follow")]
    assert told(stay) == [(PLY - 1, "the same side moves next")]
    assert told(castle_again) == [(PLY, "right to castle from nowhere")]
    assert told(another_rook) == [(PLY - 1, "right to castle from nowhere")]


def test_who_moved_a_king_or_a_rook_cannot_castle_any_more() -> None:
    kings = Positions.of(game(1, InputFormat.CANONICAL, 60, "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1").fields)
    moves = Moves.between(kings)
    assert legality_faults(kings, moves) == []
    before = kings.castling[:-1, [2, 3, 0, 1]]
    lost = np.flatnonzero((before != kings.castling[1:]).any(axis=1)).tolist()
    assert len(lost) > 1
    for ply in lost:
        there = Positions(kings.records.copy())
        there.castling[ply + 1] = before[ply]
        assert [fault[:2] for fault in legality_faults(there, moves)] == [(ply, "right to castle from nowhere")]


def test_a_pawn_is_taken_in_passing_only_behind_its_push() -> None:
    given = Positions.of(game(3, InputFormat.CANONICAL, 70, STARTS[-1]).fields)
    moves = Moves.between(given)
    pushed = int(np.flatnonzero(given.en_passant[1:] >= 0)[0])
    assert legality_faults(given, moves) == []
    given.en_passant[pushed + 1] ^= 1
    assert [fault[:2] for fault in legality_faults(given, moves)] == [(pushed, "en passant without a push")]


def test_where_no_move_leads_on_the_position_is_told() -> None:
    block = skip(game(8))
    (fault,) = [each for each in faults(block) if each.reason == "no move to the next frame"]
    assert re.fullmatch(r"from [1-8a-zA-Z/]+ b .* 2", fault.found)


def test_a_probability_of_any_size_is_a_fault_and_no_warning() -> None:
    block = game(8)
    block.probabilities[block.starts[PLY] : block.ends[PLY]] = 3e38
    assert {"probability out of range", "policy does not sum to 1"} <= {fault.reason for fault in value_faults(block)}


def test_games_of_later_engines_with_their_own_rule_for_policies_are_valid() -> None:
    block = as_later_engines(game(1, InputFormat.CANONICAL, 60, "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1"))
    assert faults(block) == []
    positions = Positions.of(block.fields)
    assert uses_half_turn(block, positions, Moves.between(positions))


def test_a_frame_that_only_tells_the_history_does_not_hide_the_rule_of_the_others() -> None:
    block = as_later_engines(game(1, InputFormat.CANONICAL, 60, "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1"))
    positions = Positions.of(block.fields)
    ply = int(np.flatnonzero(transforms_of(block.fields) & 4)[0])
    block.fields["invariance_info"][ply] |= 0x40
    block.probabilities[block.starts[ply] : block.ends[ply]] = NAN
    assert uses_half_turn(block, positions, Moves.between(positions))


def test_where_only_the_last_frame_is_transposed_its_policy_tells_the_rule() -> None:
    whole = as_later_engines(game(1, InputFormat.CANONICAL, 60, "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1"))
    plain = game(1, InputFormat.CANONICAL, 60, "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1")
    last = int(np.flatnonzero(transforms_of(whole.fields) & 4)[0])
    for block, later in ((whole.part(last, last + 1), True), (plain.part(last, last + 1), False)):
        positions = Positions.of(block.fields)
        assert uses_half_turn(block, positions, Moves.between(positions)) == later


@given(st.data())
@examples(150)
def test_a_damaged_game_gives_faults_or_none_but_never_an_error(data: st.DataObject) -> None:
    block = game(
        data.draw(st.integers(0, 3)), data.draw(st.sampled_from(InputFormat)), 8, data.draw(st.sampled_from(STARTS))
    )
    raw = block.fields.view(np.uint8)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[at] ^= data.draw(st.integers(1, 255))
    for at in data.draw(st.lists(st.integers(0, len(block.moves) - 1), max_size=3)):
        block.probabilities[at] = data.draw(st.floats(width=32))
    assert all(0 <= fault.ply < len(block) for fault in faults(block))


def test_a_probability_that_is_out_of_range_is_named() -> None:
    (fault,) = [each for each in value_faults(set_probability(7.0)(game(8))) if "probability" in each.reason]
    assert fault == (PLY, "probability out of range", "7.0")
