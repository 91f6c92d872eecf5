"""Laws of the stage around the reservoir."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batches.threads import until
from millstream.errors import LoaderError
from millstream.games import Game
from millstream.selfplay.chunk_feed import FrameShuffler
from millstream.selfplay.chunk_feed.frame_shuffler import TOGETHER
from millstream.stages import Queue, filling
from selfplay.games import a_game


def test_filling_it_with_small_games_takes_few_pieces_and_no_memory() -> None:
    """Whoever waits for its first position holds all that it told before."""
    games = [a_game(chunk, plies=1) for chunk in range(2 * TOGETHER + 5)]
    stage = FrameShuffler(Queue(), frames=len(games) - 1, seed=1)
    pieces = [piece for game in games for piece in stage.process(game)]
    assert [len(piece) for piece in pieces] == [0, 0, 1]
    assert np.concatenate([piece.moves.filled for piece in pieces])["chunk"].tolist() == list(range(len(games) - 1))


def test_it_says_how_full_it_is_until_its_input_ends() -> None:
    games: Queue[Game] = Queue()
    stage = FrameShuffler(games, frames=6)
    stage.start()
    with games.producer() as producer:
        producer.put(a_game(0, plies=4))
        until(lambda: stage.gauges()["frames"] == 4)
        assert filling({"shuffled": stage.gauges()}) == [
            "shuffled holds 4 of 6 frames, and gives none before it is full"
        ]
        producer.put(a_game(1, plies=4))
        until(lambda: stage.gauges()["frames"] == 6)
        assert filling({"shuffled": stage.gauges()}) == []
    assert sum(map(len, stage.output())) == 8
    assert stage.gauges()["frames"] == 0 and filling({"shuffled": stage.gauges()}) == []


@pytest.mark.parametrize("wrong", [{"frames": "x"}, {"frames": None}, {"frames": True}, {"frames": 0}, {"seed": "x"}])
def test_what_counts_nothing_is_refused_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(LoaderError, match=next(iter(wrong))) as refused:
        FrameShuffler(Queue(), **wrong)
    assert refused.value.hint
