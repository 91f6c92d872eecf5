"""Games that are made up for examples are games, and chunks that are written are read as what they were."""

from __future__ import annotations

import numpy as np
import pytest

from games.blocks import game
from millstream.games import FrameBlock, InputFormat, checked
from millstream.games.codec import read_frames, write_frames
from millstream.games.example import example_frames


def same(one: FrameBlock, other: FrameBlock) -> bool:
    return all(
        np.array_equal(getattr(one, name).view(np.uint8), getattr(other, name).view(np.uint8))
        for name in ("fields", "ends", "moves", "probabilities", "origins")
    )


@pytest.mark.parametrize("number", range(6))
def test_games_of_examples_keep_the_strictest_rules(number: int) -> None:
    pytest.importorskip("chess")

    checked(example_frames(number, plies=100), "legal")


@pytest.mark.parametrize("layout", InputFormat)
def test_what_is_written_is_read_as_what_it_was(layout: InputFormat) -> None:
    frames = game(3, layout, 30)
    frames.fields["version"] = 7

    assert same(read_frames(write_frames(frames)), frames)
