"""What tables change, is what the specification says: for invented tables and for real ones."""

from __future__ import annotations

import random

import chess
import chess.syzygy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games import endgame_tables
from games.blocks import block_of, game
from games.chunks import play
from games.endgame_tables import tables
from games.endgames import ENDGAMES, Invented, bare_positions, endgame, knowledge, signs
from games.positions import CANONICAL, move_index
from games.slow_rescore import Known, slow_plies_left, slow_results
from laws import examples
from millstream.errors import RecipeError, RecordError
from millstream.games import FRAME, InputFormat, Rescorer, RescoreSettings
from millstream.games.positions import Positions
from millstream.games.rescore_steps import count_plies_left, rescore_results, shorten_to_mates

MATE_OR_CAPTURE = "k7/8/1K6/8/8/8/8/2R4b w - - 0 1"


@given(st.lists(st.tuples(knowledge, signs, st.sampled_from([0, 0, 7])), min_size=1, max_size=12))
@examples(120)
def test_results_and_plies_left_are_what_the_specification_says(frames: list[tuple[Known, int, float]]) -> None:
    known, results, left = [one for one, _, _ in frames], [one for _, one, _ in frames], [one for *_, one in frames]
    fields = np.zeros(len(frames), FRAME)
    fields["result_q"], fields["plies_left"] = results, left
    positions, probe = bare_positions(known), Invented(known)
    rescore_results(fields, positions, probe)
    assert fields["result_q"].tolist() == slow_results(results, known)
    assert fields["result_d"].tolist() == [float(result == 0) for result in fields["result_q"]]
    count_plies_left(fields)
    shorten_to_mates(fields, positions, probe)
    assert fields["plies_left"].tolist() == slow_plies_left(left, known, [True] * len(known))


@pytest.mark.parametrize(
    ("stored", "wdl", "rule50", "dtz", "new"),
    [
        (0, 1, 60, 38, 1),  # 98 plies: in time
        (0, 1, 60, 39, 0),  # 99: perhaps not
        (-1, 1, 60, 38, 1),
        (-1, 1, 60, 39, 0),
        (1, 1, 60, 41, 1),  # 101: perhaps still
        (1, 1, 60, 42, 0),  # 102: never
        (-1, -1, 60, -42, 0),
        (1, 0, 1, 0, 0),
        (1, 1, 1, None, 1),
        (0, 1, 1, None, 0),
    ],
)
def test_a_win_counts_if_it_comes_in_time(stored: int, wdl: int, rule50: int, dtz: int | None, new: int) -> None:
    known = [Known(0, False, None, None), Known(rule50, False, wdl, dtz)]
    fields = np.zeros(2, FRAME)
    fields["result_q"] = [-stored, stored]
    rescore_results(fields, bare_positions(known), Invented(known))
    assert fields["result_q"].tolist() == [-stored, new]


def test_a_repetition_since_the_last_zeroing_move_spoils_a_proof_and_one_before_does_not() -> None:
    for repeated_at, new in ((1, 1), (2, 0), (3, 0)):
        known = [Known(at, at == repeated_at, None, None) for at in range(2)]
        known += [Known(at - 1, at == repeated_at, 1 if at == 3 else None, 5) for at in (2, 3)]
        fields = np.zeros(4, FRAME)
        rescore_results(fields, bare_positions(known), Invented(known))
        assert fields["result_q"].tolist() == [0, 0, 0, new]


@pytest.mark.parametrize("fen", ENDGAMES)
@pytest.mark.parametrize("layout", [InputFormat.CLASSICAL, InputFormat.CANONICAL_V2])
def test_real_tables_change_what_the_specification_says(fen: str, layout: InputFormat) -> None:
    changed = 0
    for seed in range(3):
        block, known, bare = endgame(seed, fen, layout)
        rescored = Rescorer(tables=tables()).rescore(block)
        results = block.fields["result_q"].astype(int).tolist()
        assert rescored.fields["result_q"].tolist() == slow_results(results, known)
        wanted = slow_plies_left(block.fields["plies_left"].tolist(), known, bare)
        np.testing.assert_allclose(rescored.fields["plies_left"], wanted, rtol=1e-6)
        changed += int((rescored.fields["result_q"] != block.fields["result_q"]).sum())
    assert changed > 0


@pytest.mark.parametrize("layout", [InputFormat.CLASSICAL, InputFormat.CANONICAL])
def test_a_boost_goes_to_the_moves_with_the_best_way_to_the_next_zeroing_move(layout: InputFormat) -> None:
    settings, base = RescoreSettings(syzygy_paths=["given"], dtz_boost=0.5), endgame_tables.tablebase()
    rescorer = Rescorer(settings, tables=tables())
    for fen in (ENDGAMES[0], ENDGAMES[2], MATE_OR_CAPTURE):
        frames, fens = play(random.Random(1), 6, layout, 4, fen)
        new = rescorer.rescore(block_of(frames)).policy()
        for ply, text in enumerate(fens):
            board = chess.Board(text)
            transform = int(frames["invariance_info"][ply]) & 7 if layout in CANONICAL else 0
            wanted = np.where(frames["probabilities"][ply] < 0, 0, frames["probabilities"][ply]).astype(float)
            best = best_by_dtz(board, base)
            for move in best:
                wanted[move_index(board, move, transform)] += 0.5 / len(best)
            np.testing.assert_allclose(np.maximum(new[ply], 0), wanted / wanted.sum(), atol=1e-6)


def best_by_dtz(board: chess.Board, base: chess.syzygy.Tablebase) -> list[chess.Move]:
    """Wins by the shortest way to a zeroing move, then draws, then losses by the longest."""

    def quality(move: chess.Move) -> tuple[int, int]:
        zeroing = board.is_zeroing(move)
        board.push(move)
        wdl, dtz, mate = -base.probe_wdl(board), abs(base.probe_dtz(board)) + 1, board.is_checkmate()
        board.pop()
        way = 1 if zeroing or mate else dtz
        return (1, -way) if wdl > 0 else (0, 0) if wdl == 0 else (-1, way)

    legal = list(board.legal_moves)
    best = max(map(quality, legal))
    return [move for move in legal if quality(move) == best]


@pytest.mark.parametrize("own_result", [False, True])
def test_blunders_count_only_before_the_first_position_of_the_tables(own_result: bool) -> None:
    block = game(4, fen="8/8/3k1p2/4P3/2K5/8/1Q6/8 w - - 0 1")
    tabled = (Positions.of(block.fields).men <= 4).argmax()
    assert 0 < tabled < len(block) - 1
    block.fields["best_q"], block.fields["played_q"], block.fields["best_d"] = 0.5, 0.45, 0.25
    by_tables = Rescorer(tables=tables()).rescore(block).fields
    settings = RescoreSettings(deblunder_threshold=0.05, deblunder_width=0.2, deblunder_own_result=own_result)
    found = Rescorer(settings, tables=tables()).rescore(block).fields
    np.testing.assert_array_equal(found["result_q"][tabled:], by_tables["result_q"][tabled:])
    first = by_tables["result_q"][tabled - 1 if own_result else -1]
    assert found["result_q"][tabled - 1] == pytest.approx(first / 2 + 0.25)


def test_a_deblundered_game_is_refused_by_tables() -> None:
    block = game(1, fen=ENDGAMES[0])
    block.fields["result_q"][2] = 0.25
    with pytest.raises(RecordError, match="result is not -1, 0 or 1"):
        Rescorer(tables=tables()).rescore(block)


def test_missing_tables_are_an_error_at_the_start(tmp_path: object) -> None:
    with pytest.raises(RecipeError, match="no such folder"):
        Rescorer(RescoreSettings(syzygy_paths="nowhere:neither"))
    with pytest.raises(RecipeError, match="no Syzygy tables"):
        Rescorer(RescoreSettings(syzygy_paths=[str(tmp_path)]))
