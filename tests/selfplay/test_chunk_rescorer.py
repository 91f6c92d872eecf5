"""A rescorer passes on rescored games in their order, and says which ones it could not rescore."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from games import blocks
from games.mates import write_table
from millstream.errors import MissingExtra, RecipeError, StageError
from millstream.games import Game, Rescorer, RescoreSettings
from millstream.selfplay.chunk_feed import ChunkRescorer
from millstream.stages import Queue
from selfplay.games import a_game, through
from unloading import unload


@pytest.mark.parametrize("threads", [1, 3])
def test_games_are_rescored_in_their_order(threads: int) -> None:
    queue = Queue[Game](16)
    settings = RescoreSettings(dist_temp=0.5, new_input_format=3)
    stage = ChunkRescorer(queue, rescore=settings, threads=threads, capacity=16)
    passed = through(stage, queue, map(a_game, range(8)))
    assert [game.chunk for game in passed] == list(range(8))
    for game in passed:
        wanted = Rescorer(settings).rescore(a_game(game.chunk).frames)
        assert game.frames.fields.tobytes() == wanted.fields.tobytes()
        assert game.frames.probabilities.tolist() == wanted.probabilities.tolist()
        assert game.frames.origins.tolist() == wanted.origins.tolist()


def test_a_game_that_cannot_be_rescored_is_dropped_counted_and_listed() -> None:
    queue = Queue[Game](4)
    stage = ChunkRescorer(queue, st_q_theta=0.5)
    cut = replace(a_game(1), frames=a_game(1).frames.select([0, 5]))
    unpacked = replace(cut, unpacked=True)
    assert through(stage, queue, [cut, unpacked]) == [unpacked]
    assert stage.counters()["drops"] == {"no move to the next frame": 1}
    assert [rejection.reason for rejection in stage.rejections] == ["no move to the next frame"]


def test_settings_stand_in_one_place() -> None:
    with pytest.raises(RecipeError, match="dist_temp too"):
        ChunkRescorer(Queue[Game](), rescore=RescoreSettings(), dist_temp=2)
    with pytest.raises(RecipeError, match="rules 'values'"):
        ChunkRescorer(Queue[Game](), rules="values")  # type: ignore[arg-type]


def test_without_the_chess_library_only_what_needs_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chess", None)
    unload(monkeypatch, "millstream.games.board")
    queue = Queue[Game](4)
    stage = ChunkRescorer(queue, rules="legal", new_input_format=5, deblunder_threshold=0.1, deblunder_width=0.06)
    assert len(through(stage, queue, [a_game(1)])) == 1
    unload(monkeypatch, "millstream.games.gaviota")
    with pytest.raises(MissingExtra, match="chess"):
        ChunkRescorer(Queue[Game](), syzygy_paths=["tables"])
    with pytest.raises(MissingExtra, match="chess"):
        ChunkRescorer(Queue[Game](), gaviota_paths=["tables"])


def test_it_says_how_many_tables_of_mates_there_are(tmp_path: Path) -> None:
    write_table(tmp_path, "r")
    stage = ChunkRescorer(Queue[Game](), gaviota_paths=[str(tmp_path)])
    assert stage.gauges() == {"gaviota_tables_3": 1, "gaviota_tables_4": 0, "gaviota_tables_5": 0}
    assert ChunkRescorer(Queue[Game]()).gauges() == {}


def test_a_damaged_table_stops_the_stage_and_is_no_fault_of_a_game(tmp_path: Path) -> None:
    table = write_table(tmp_path, "r")
    table.write_bytes(table.read_bytes()[:60] + bytes(table.stat().st_size - 60))
    block = blocks.game(0, fen="8/8/4k3/8/2KR4/8/8/8 w - - 0 1")
    block.fields["result_q"], block.fields["result_d"] = 1, 0
    queue = Queue[Game](4)
    stage = ChunkRescorer(queue, gaviota_paths=[str(tmp_path)])
    with pytest.raises(StageError, match=r"krk\.gtb\.cp4: this Gaviota table cannot be read"):
        through(stage, queue, [replace(a_game(1), frames=block)])
    assert stage.join(timeout_s=10)
    assert stage.counters()["drops"] == {}
