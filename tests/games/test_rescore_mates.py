"""How far a mate is changes what the specification says: for invented tables, for real ones, and for one's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product
from pathlib import Path

import chess
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games import endgame_tables
from games.blocks import game
from games.endgames import ENDGAMES, Invented, InventedMates, bare_positions, endgame, knowledge, signs
from games.mates import NEVER, Piece, all_mates, write_table
from games.slow_rescore import Known, slow_plies_left, slow_results, slow_ways_to_mate
from laws import examples
from millstream.errors import RecipeError, SourceError
from millstream.games import FRAME, FrameBlock, InputFormat, Rescorer, RescoreSettings
from millstream.games.board import board_at
from millstream.games.gaviota import GaviotaTables
from millstream.games.positions import Positions
from millstream.games.rescore_steps import count_plies_left, count_to_mates, shorten_to_mates


@given(st.lists(st.tuples(knowledge, signs, st.sampled_from([0, 0, 7, 60])), min_size=1, max_size=12))
@examples(120)
def test_plies_left_are_what_the_specification_says(frames: list[tuple[Known, int, float]]) -> None:
    known, results, left = [one for one, _, _ in frames], [one for _, one, _ in frames], [one for *_, one in frames]
    fields = np.zeros(len(frames), FRAME)
    fields["result_q"], fields["plies_left"] = results, left
    positions, mates = bare_positions(known), InventedMates(known)
    count_plies_left(fields)
    shorten_to_mates(fields, positions, Invented(known), mates)
    count_to_mates(fields, positions, mates)
    by_zeroing = slow_plies_left(left, known, [one.mate is None for one in known])
    assert fields["plies_left"].tolist() == slow_ways_to_mate(by_zeroing, results, known)


@pytest.mark.parametrize(
    ("rule50", "mate", "left", "new"),
    [
        (60, 39, 80, 39),  # 99 plies: in time
        (60, 40, 80, 80),  # 100: perhaps a draw before that, and more is left than it takes
        (60, 40, 40, 40),
        (60, 40, 39, 40),  # whatever the rule does, it cannot take less
        (0, 0, 7, 7),
        (0, None, 7, 7),
    ],
)
def test_a_mate_counts_if_it_comes_in_time_or_is_further_than_the_end(
    rule50: int, mate: int | None, left: int, new: int
) -> None:
    known = [Known(0, False, None, None), Known(rule50, False, None, None, mate)]
    fields = np.zeros(2, FRAME)
    fields["result_q"], fields["plies_left"] = [-1, 1], left
    count_to_mates(fields, bare_positions(known), InventedMates(known))
    assert fields["plies_left"][1] == new


def test_the_way_to_a_mate_is_written_back_to_the_last_one_known() -> None:
    known = [Known(0, False, None, None, mate) for mate in (9, None, 4, None, None, 8, None)]
    fields = np.zeros(7, FRAME)
    fields["result_q"], fields["plies_left"] = 1, 100
    count_to_mates(fields, bare_positions(known), InventedMates(known))
    assert fields["plies_left"].tolist() == [6, 5, 4, 10, 9, 8, 100]


@pytest.mark.parametrize("fen", ENDGAMES)
@pytest.mark.parametrize("layout", [InputFormat.CLASSICAL, InputFormat.CANONICAL_V2])
def test_real_tables_change_what_the_specification_says(fen: str, layout: InputFormat) -> None:
    for seed, beside in product(range(3), (None, endgame_tables.tables())):
        block, known, _ = endgame(seed, fen, layout)
        rescored = Rescorer(tables=beside, mates=endgame_tables.mates()).rescore(block)
        played = block.fields["result_q"].astype(int).tolist()
        results = slow_results(played, known) if beside else played
        counted = slow_plies_left(block.fields["plies_left"].tolist(), known, [False] * len(block))
        wanted = slow_ways_to_mate(counted, results, known)
        np.testing.assert_allclose(rescored.fields["plies_left"], wanted, rtol=1e-6)
        np.testing.assert_array_equal(rescored.fields["result_q"], results)


def decided(fen: str) -> FrameBlock:
    """An endgame that White won."""
    block = game(0, fen=fen)
    block.fields["result_q"], block.fields["result_d"] = np.where(Positions.of(block.fields).black, -1, 1), 0
    return block


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of our own making."""
    made = tmp_path_factory.mktemp("gaviota")
    write_table(made, "q")
    write_table(made, "r")
    return made


def boards(piece: chess.PieceType, every: int) -> Iterator[chess.Board]:
    """Legal positions of the piece and a king against a king, with either color and mover."""
    for number in range(0, 64**3 * 4, every):
        king, square, other = number >> 14, number >> 8 & 63, number >> 2 & 63
        strong, turn = bool(number & 2), bool(number & 1)
        if len({king, square, other}) == 3:
            board = chess.Board(None)
            board.set_piece_map({
                king: chess.Piece(chess.KING, strong),
                square: chess.Piece(piece, strong),
                other: chess.Piece(chess.KING, not strong),
            })  # fmt: skip
            board.turn = turn
            if board.is_valid():
                yield board


def test_what_was_written_down_of_real_tables_is_what_going_back_from_all_mates_gives() -> None:
    asked = [board for fen in ENDGAMES[:3] for seed in range(3) for board in three_pieces(seed, fen)]
    assert len(asked) > 50
    for board in asked:
        mates = all_mates("q" if board.queens else "r")
        assert abs(endgame_tables.matebase().probe_dtm(board)) == mates.of(board), board.fen()


def three_pieces(seed: int, fen: str) -> Iterator[chess.Board]:
    """The boards of an endgame with a queen or a rook and the kings."""
    positions = Positions.of(endgame(seed, fen)[0].fields)
    for ply in range(len(positions)):
        board = board_at(positions, ply)
        if chess.popcount(board.occupied) == 3 and board.queens | board.rooks:
            yield board


@pytest.mark.oracle
@pytest.mark.parametrize("piece", ["q", "r"])
def test_real_tables_have_the_mates_that_going_back_from_all_mates_gives(piece: Piece) -> None:
    mates = all_mates(piece)
    with closing(GaviotaTables.open([endgame_tables.gaviota_folder()])) as tables:
        for board in boards(chess.PIECE_SYMBOLS.index(piece), 3):
            assert tables.plies_to_mate(board) == mates.of(board), board.fen()


def test_the_longest_mates_take_10_moves_with_a_queen_and_16_with_a_rook() -> None:
    assert all_mates("q").white_moves.max() == 19
    assert all_mates("r").white_moves.max() == 31
    assert all_mates("q").black_moves[8 * 5 + 2, 8 * 6 + 1, 8 * 7] == 0  # Kc6, Qb7; the king is on a8
    assert all_mates("r").black_moves[8 * 5 + 1, 8 * 6 + 1, 8 * 7] == NEVER  # Kb6, Rb7: stalemate


def test_tables_are_read_as_they_were_written_by_any_number_of_threads(folder: Path) -> None:
    asked = [board for piece in (chess.QUEEN, chess.ROOK) for board in boards(piece, 997)]
    with closing(GaviotaTables.open([folder])) as tables, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(tables.plies_to_mate, asked))
    assert found == [all_mates("q" if board.queens else "r").of(board) for board in asked]
    assert max(plies or 0 for plies in found) > 20


def test_a_position_whose_table_is_missing_is_left_to_syzygy_and_it_is_said_which_there_are(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(tmp_path, "q")
    (tmp_path / "notes.gtb.cp4").write_bytes(b"no table")
    with caplog.at_level(logging.WARNING, "millstream.games"):
        queens = GaviotaTables.open([tmp_path])
    assert "1 of 5 with 3 pieces, 0 of 30 with 4 pieces, 0 of 110 with 5 pieces" in caplog.text
    assert queens.coverage == {3: (1, 5), 4: (0, 30), 5: (0, 110)}
    beside, all_of_them = endgame_tables.tables(), GaviotaTables.open([folder])
    with closing(queens), closing(all_of_them):
        for fen, others in ((ENDGAMES[0], None), (ENDGAMES[1], all_of_them)):
            block = decided(fen)
            found = Rescorer(tables=beside, mates=queens).rescore(block).fields["plies_left"]
            wanted = Rescorer(tables=beside, mates=others).rescore(block).fields["plies_left"]
            np.testing.assert_array_equal(found, wanted)
            assert (found != block.fields["plies_left"]).any()


@pytest.mark.parametrize("damage", ["empty", "short", "cut", "index", "blocks", "folder"])
def test_a_damaged_table_is_an_error_that_names_it(folder: Path, tmp_path: Path, damage: str) -> None:
    data = (folder / "krk.gtb.cp4").read_bytes()
    broken = tmp_path / "krk.gtb.cp4"
    if damage == "folder":
        broken.mkdir()
    else:
        broken.write_bytes({
            "empty": b"",
            "short": data[:35],
            "cut": data[:-1],
            "index": data[:32] + b"\xff" * 4 + data[36:],
            "blocks": data[:60] + bytes(len(data) - 60),
        }[damage])  # fmt: skip
    said = pytest.raises(SourceError, match=r"krk\.gtb\.cp4: this Gaviota table cannot be read")
    with said as error, closing(GaviotaTables.open([tmp_path])) as tables:
        tables.plies_to_mate(chess.Board(ENDGAMES[0]))
    assert error.value.hint


@given(st.data())
@examples(40)
def test_whatever_stands_in_a_table_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, data: st.DataObject
) -> None:
    table = bytearray((folder / "krk.gtb.cp4").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        table[data.draw(st.integers(0, 90) | st.integers(0, len(table) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path := tmp_path_factory.mktemp("changed")).joinpath("krk.gtb.cp4").write_bytes(table)
    try:
        with closing(GaviotaTables.open([tmp_path])) as tables:
            answers = [tables.plies_to_mate(board) for board in boards(chess.ROOK, 90_001)]
    except SourceError as error:
        assert "krk.gtb.cp4" in error.message
    else:
        assert all(answer is not None for answer in answers)


def test_a_position_that_cannot_be_is_not_looked_up(folder: Path) -> None:
    with closing(GaviotaTables.open([folder])) as tables:
        assert tables.plies_to_mate(chess.Board("8/8/8/3kK3/8/8/8/R7 w - - 0 1")) is None
        assert tables.plies_to_mate(chess.Board("8/8/8/3k4/8/8/8/KR6 w - - 0 1")) is not None


def test_missing_tables_are_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nowhere: there is no such folder of tables"):
        Rescorer(RescoreSettings(gaviota_paths="nowhere:neither"))
    with pytest.raises(RecipeError, match="no Gaviota tables"):
        Rescorer(RescoreSettings(gaviota_paths=[str(tmp_path)]))


def test_settings_name_the_folders(folder: Path) -> None:
    block = decided(ENDGAMES[0])
    with (
        Rescorer(RescoreSettings(gaviota_paths=str(folder))) as named,
        Rescorer(mates=GaviotaTables.open([folder])) as given,
    ):
        assert named.mate_coverage == given.mate_coverage
        found = named.rescore(block).fields["plies_left"]
        np.testing.assert_array_equal(found, given.rescore(block).fields["plies_left"])
    assert (found != block.fields["plies_left"]).any()
