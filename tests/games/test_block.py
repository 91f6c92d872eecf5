"""Frames in columns say what a list of frames would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.games import FRAME, ORIGIN, FrameBlock


@st.composite
def blocks(draw: st.DrawFn) -> FrameBlock:
    sizes = draw(st.lists(st.integers(0, 5), max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    fields, origins = np.zeros(len(sizes), FRAME), np.zeros(len(sizes), ORIGIN)
    fields["root_q"] = rng.random(len(sizes))
    origins["ply"] = np.arange(len(sizes))
    moves = [np.sort(rng.choice(1858, size, replace=False)) for size in sizes]
    return FrameBlock(
        fields,
        np.cumsum(sizes, dtype=np.uint32),
        np.concatenate([*moves, []]).astype(np.uint16),
        rng.random(sum(sizes)).astype(np.float32),
        origins,
    )


@given(blocks(), st.data())
def test_chosen_frames_are_those_of_the_dense_policy(block: FrameBlock, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(block) - 1))) if len(block) else []
    chosen = block.select(rows)
    assert np.array_equal(chosen.policy(), block.policy()[rows])
    assert np.array_equal(chosen.fields["root_q"], block.fields["root_q"][rows])
    assert np.array_equal(chosen.origins, block.origins[rows])


@given(st.lists(blocks(), max_size=4))
def test_blocks_behind_one_another_hold_all_frames(many: list[FrameBlock]) -> None:
    joined = FrameBlock.concat(many)
    assert np.array_equal(joined.policy(), np.concatenate([np.zeros((0, 1858)), *(each.policy() for each in many)]))
    assert joined.nbytes == sum(each.nbytes for each in many)
    assert FRAME.itemsize == 968
