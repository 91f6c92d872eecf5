"""Laws of the stage around the reservoir."""

from __future__ import annotations

import numpy as np

from live.games import a_game
from millstream.live.frame_shuffler import TOGETHER, FrameShuffler
from millstream.stages import Queue


def test_filling_it_with_small_games_takes_few_pieces_and_no_memory() -> None:
    """Whoever waits for its first position holds all that it told before."""
    games = [a_game(chunk, plies=1) for chunk in range(2 * TOGETHER + 5)]
    stage = FrameShuffler(Queue(), frames=len(games) - 1, seed=1)
    pieces = [piece for game in games for piece in stage.process(game)]
    assert [len(piece) for piece in pieces] == [0, 0, 1]
    assert np.concatenate([piece.moves.filled for piece in pieces])["chunk"].tolist() == list(range(len(games) - 1))
