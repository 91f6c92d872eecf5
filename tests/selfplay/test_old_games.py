"""Games of every version and input format go through the stages as they are read."""

from __future__ import annotations

import random

import numpy as np
import pytest

from games.chunks import KINDS, play
from millstream.games import Game, InputFormat
from millstream.games.codec import read_frames
from millstream.selfplay.chunk_feed import ChunkFilter, ChunkRescorer
from millstream.stages import Queue
from selfplay.games import through


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_games_of_every_version_are_valid_and_can_be_rescored(version: int, layout: InputFormat) -> None:
    frames = read_frames(play(random.Random(1), version, layout, plies=30)[0].tobytes())
    game, queue = Game(0, 0, "a.tar", 0, len(frames), frames), Queue[Game](4)
    assert through(ChunkFilter(queue, rules="legal"), queue, [game]) == [game]
    queue = Queue[Game](4)
    (new,) = through(ChunkRescorer(queue, deblunder_threshold=0.1, deblunder_width=0.06), queue, [game])
    assert (new.frames.fields["plies_left"] > 0).all()
    changed = not np.array_equal(new.frames.fields["result_q"], frames.fields["result_q"])
    assert changed == (version >= 6)
