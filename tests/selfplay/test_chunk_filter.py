"""A filter passes on what is whole and wanted, in its order, and says what became of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.errors import RecipeError
from millstream.games import Game, InputFormat
from millstream.selfplay import PositionSampling
from millstream.selfplay.chunk_feed import ChunkFilter, ChunkReader, ChunkRescorer, ChunkUnpacker
from millstream.selfplay.chunk_feed.game_stage import KEPT, Draw
from millstream.stages import Queue
from selfplay.games import a_game, through


def broken(game: Game) -> Game:
    game.frames.fields["best_q"][4] = 3
    return game


@pytest.mark.parametrize("threads", [1, 3])
def test_broken_games_are_dropped_counted_and_listed(threads: int) -> None:
    queue = Queue[Game](64)
    stage = ChunkFilter(queue, threads=threads, capacity=64)
    games = [a_game(number) if number % 3 else broken(a_game(number)) for number in range(12)]
    passed = through(stage, queue, games)
    assert [game.chunk for game in passed] == [number for number in range(12) if number % 3]
    assert all(game.frames is games[game.chunk].frames for game in passed)
    assert stage.counters()["drops"] == {"best_q out of range": 4}
    first = min(stage.rejections, key=lambda rejection: rejection.index)
    assert (first.source, first.index, first.reason) == ("training-run1.tar", 0, "best_q out of range")
    assert first.found == "ply 4: 3.0"


def test_rules_are_as_strict_as_one_asks() -> None:
    skips = replace(a_game(1), frames=a_game(1).frames.select([0, 1, 2, 9, 10]))
    for rules, passes in (("legal", 0), ("moves", 0), ("values", 1), (None, 1)):
        queue = Queue[Game](4)
        stage = ChunkFilter(queue, rules=rules)  # type: ignore[arg-type]
        assert len(through(stage, queue, [skips])) == passes


def test_what_does_not_match_goes_with_its_game_or_alone() -> None:
    game = a_game(3)
    fits = game.frames.fields["rule50_count"] <= 1
    assert 0 < fits.sum() < len(fits)
    queue = Queue[Game](4)
    whole = ChunkFilter(queue, match={"rule50_count": (0, 1)})
    assert through(whole, queue, [game]) == []
    assert whole.counters()["drops"] == {"rule50_count does not match": 1}

    queue = Queue[Game](4)
    some = ChunkFilter(queue, match={"rule50_count": (0, 1)}, keep="frames")
    (left,) = through(some, queue, [game])
    assert left.frames.origins["ply"].tolist() == np.flatnonzero(fits).tolist()
    assert left.length == len(game.frames)
    assert some.counters()["drops"] == {"frames: rule50_count does not match": (~fits).sum()}


def test_a_game_without_a_matching_frame_is_dropped() -> None:
    queue = Queue[Game](4)
    stage = ChunkFilter(queue, match={"input_format": 3}, keep="frames")
    assert len(through(stage, queue, [a_game(1), a_game(2, InputFormat.CANONICAL)])) == 1
    assert stage.counters()["drops"] == {"input_format does not match": 1}


def test_predicates_name_their_reasons() -> None:
    def even(game: Game) -> bool:
        return game.chunk % 2 == 0

    queue = Queue[Game](8)
    stage = ChunkFilter(queue, predicates=[even, lambda game: "is six" if game.chunk == 6 else True])
    assert [game.chunk for game in through(stage, queue, map(a_game, range(8)))] == [0, 2, 4]
    assert stage.counters()["drops"] == {"even": 4, "is six": 1}


def test_an_unpacked_game_passes_and_only_the_last_rejections_are_kept() -> None:
    queue = Queue[Game](500)
    stage = ChunkFilter(queue, capacity=500)
    unpacked = replace(broken(a_game(1)), unpacked=True)
    bad = broken(a_game(2))
    assert through(stage, queue, [unpacked] + [replace(bad, index=index) for index in range(KEPT + 5)]) == [unpacked]
    assert [rejection.index for rejection in stage.rejections] == list(range(5, KEPT + 5))
    assert stage.counters()["drops"] == {"best_q out of range": KEPT + 5}


@pytest.mark.parametrize("settings", [{"rules": "strict"}, {"keep": "plies"}, {"match": {"q": 1}}])
def test_settings_that_cannot_work_are_told(settings: dict[str, object]) -> None:
    with pytest.raises(RecipeError):
        ChunkFilter(Queue[Game](), **settings)  # type: ignore[arg-type]


def test_games_of_which_positions_were_chosen_are_refused() -> None:
    chosen = PositionSampling(count=1)
    for before in (ChunkReader(Queue[Draw](), sampling=chosen), ChunkUnpacker(Queue[Game](), sampling=chosen)):
        for behind in (ChunkFilter, ChunkRescorer):
            with pytest.raises(RecipeError, match=f"whole games, and {before.name} leaves"):
                behind(before)
    whole = ChunkFilter(ChunkReader(Queue[Draw]()))
    assert list(ChunkUnpacker(whole).upstream()) == [whole, *whole.upstream()]


def test_games_of_which_frames_were_dropped_are_refused_where_frames_must_follow_each_other() -> None:
    dropping = ChunkFilter(Queue[Game](), match={"visits": (1, None)}, keep="frames")
    with pytest.raises(RecipeError, match="chunk_rescorer looks at whole games, and chunk_filter"):
        ChunkRescorer(dropping)
    with pytest.raises(RecipeError, match="looks at whole games"):
        ChunkFilter(dropping, rules="legal")
    ChunkFilter(dropping, rules=None, match={"version": {6, 7}})
    ChunkRescorer(ChunkFilter(Queue[Game](), keep="frames"))  # nothing to drop them by
