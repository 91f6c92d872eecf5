"""A local shuffle reads inside its group, and is otherwise as random as a global one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chance import DEVIATIONS, as_even_as_chance, unrelated
from millstream.order import SampleOrder

Places = npt.NDArray[np.int64]
BLOCK, GROUP, BLOCKS = 16, 8, 64
WINDOW, SAMPLES = BLOCK * GROUP, BLOCK * BLOCKS
RUNS = [(seed, epoch) for seed in range(12) for epoch in range(25)]


def order_of(seed: int, epoch: int) -> Places:
    order = SampleOrder(SAMPLES, shuffle="local", seed=seed, block_samples=BLOCK, group_blocks=GROUP)
    return order.at(np.arange(SAMPLES), epoch).astype(np.int64)


def positions_of(seed: int, epoch: int) -> Places:
    """The position of each sample, by block."""
    return np.argsort(order_of(seed, epoch)).reshape(BLOCKS, BLOCK)


@given(
    blocks=st.integers(1, 40),
    rest=st.integers(0, 6),
    group=st.integers(1, 9),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
)
def test_every_group_of_positions_holds_whole_blocks_of_its_own(
    blocks: int, rest: int, group: int, seed: int, epoch: int
) -> None:
    """The one short block stands anywhere, so a group's length says whether it holds it."""
    samples, short = (blocks - 1) * 7 + 7 - rest, 7 - rest
    order = SampleOrder(samples, shuffle="local", seed=seed, block_samples=7, group_blocks=group)
    found = order.at(np.arange(samples), epoch).astype(np.int64)
    block_of = found // 7
    seen: set[int] = set()
    start, slot = 0, 0
    while start < samples:
        held = min(group, blocks - slot)
        length = held * 7
        if blocks - 1 in block_of[start : start + length - (7 - short)]:
            length -= 7 - short
        inside = set(block_of[start : start + length].tolist())
        assert len(inside) == held
        assert not inside & seen
        seen |= inside
        start, slot = start + length, slot + held
    assert start == samples


def test_each_block_lands_in_each_group_equally_often() -> None:
    landed = np.zeros((BLOCKS, BLOCKS // GROUP))
    for seed, epoch in RUNS:
        np.add.at(landed, (np.arange(BLOCKS), positions_of(seed, epoch)[:, 0] // WINDOW), 1)

    freedom = (BLOCKS - 1) * (BLOCKS // GROUP - 1)
    assert as_even_as_chance(landed, len(RUNS) / (BLOCKS // GROUP), freedom, drawn_from=BLOCKS)


def test_each_place_of_a_block_lands_in_each_part_of_its_group_equally_often() -> None:
    parts = 16
    landed = np.zeros((BLOCK, parts))
    for seed, epoch in RUNS:
        part = positions_of(seed, epoch) % WINDOW * parts // WINDOW
        np.add.at(landed, (np.broadcast_to(np.arange(BLOCK), part.shape), part), 1)

    expected = len(RUNS) * BLOCKS / parts
    assert as_even_as_chance(landed, expected, (BLOCK - 1) * (parts - 1), drawn_from=WINDOW)


def test_neighbours_are_as_far_apart_as_two_places_of_a_group() -> None:
    """Of two of n places the mean distance is (n + 1) / 3 and its variance (n + 1)(n - 2) / 18."""
    distances = np.concatenate(
        [np.abs(np.diff(positions_of(seed, epoch).reshape(-1, 2), axis=1)).ravel() for seed, epoch in RUNS]
    )
    deviation = math.sqrt((WINDOW + 1) * (WINDOW - 2) / 18 / len(distances))

    assert abs(distances.mean() - (WINDOW + 1) / 3) < DEVIATIONS * deviation


def test_neighbours_of_the_data_meet_no_more_often_than_chance() -> None:
    """Two samples of a group stand side by side with probability 2 / n; few enough that they count as rare events."""
    met = sum(int((np.abs(np.diff(positions_of(seed, epoch), axis=1)) == 1).sum()) for seed, epoch in RUNS)
    expected = len(RUNS) * BLOCKS * (BLOCK - 1) * 2 / WINDOW

    assert abs(met - expected) < DEVIATIONS * math.sqrt(expected)


@pytest.mark.parametrize("seed", range(10))
def test_groups_epochs_and_seeds_are_unrelated(seed: int) -> None:
    found = positions_of(seed, 0)
    inside = found % WINDOW
    for other in (positions_of(seed, 1), positions_of(seed + 1, 0), positions_of(seed, 2**40)):
        assert unrelated(found[:, 0] // WINDOW, other[:, 0] // WINDOW)
        assert unrelated(inside.ravel(), (other % WINDOW).ravel())
    order = order_of(seed, 0).reshape(-1, WINDOW) % BLOCK  # the place in its block that each group reads in turn
    assert all(unrelated(one, other) for one, other in itertools.pairwise(order))
    assert unrelated(np.arange(SAMPLES) % BLOCK, inside.ravel())
