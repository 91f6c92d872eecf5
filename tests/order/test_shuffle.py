"""The order is a bijection, it is pinned, and it is as random as it claims."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chance import as_even_as_chance, unrelated
from millstream.errors import OrderError
from millstream.order import SampleOrder, source_key


def order_of(samples: int, seed: int, epoch: int = 0) -> npt.NDArray[np.int64]:
    return SampleOrder(samples, seed=seed).at(np.arange(samples), epoch).astype(np.int64)


def test_the_first_positions_of_each_order_are_pinned() -> None:
    """A failure here means that every run in the world would change its order: make a new order version instead."""
    assert source_key(0, "data") == 0xD2A2F97297641791
    pinned = {
        ("global", 1000): [721, 687, 829, 497, 442, 18],
        ("global", 10**6): [420058, 56810, 78455, 493934, 397784, 308352],
        ("global", 10**12): [
            634506931567,
            449024809024,
            797619792320,
            489803035474,
            978834591332,
            577198103623,
        ],
        ("local", 10**6): [359856, 359823, 215580, 359826, 197676, 197667],
        ("none", 10**6): [0, 1, 2, 3, 4, 5],
    }
    for (shuffle, samples), first in pinned.items():
        order = SampleOrder(samples, shuffle=shuffle, seed=1, name="data", block_samples=64, group_blocks=8)  # type: ignore[arg-type]
        assert order.at(range(6), epoch=3).tolist() == first, (shuffle, samples)


@pytest.mark.parametrize("samples", [*range(1, 51), 1023, 1024, 1025, 4095, 4096, 4097])
@pytest.mark.parametrize("shuffle", ["global", "local"])
def test_every_sample_stands_at_exactly_one_position(samples: int, shuffle: str) -> None:
    order = SampleOrder(samples, shuffle=shuffle, seed=5, block_samples=7, group_blocks=3)  # type: ignore[arg-type]
    found = order.at(np.arange(samples), epoch=2)

    assert sorted(found.tolist()) == list(range(samples))
    assert order.inverse(found, epoch=2).tolist() == list(range(samples))


@given(
    samples=st.one_of(
        st.integers(1, 2**63), st.integers(1, 62).flatmap(lambda k: st.integers(max(1, 2**k - 1), 2**k + 1))
    ),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**40),
    shuffle=st.sampled_from(["global", "local", "none"]),
    data=st.data(),
)
def test_the_inverse_inverts_at_any_size(
    samples: int, seed: int, epoch: int, shuffle: str, data: st.DataObject
) -> None:
    order = SampleOrder(samples, shuffle=shuffle, seed=seed, block_samples=1000, group_blocks=9)  # type: ignore[arg-type]
    positions = data.draw(st.lists(st.integers(0, samples - 1), min_size=1, max_size=20))

    found = order.at(np.array(positions, np.uint64), epoch)

    assert all(int(sample) < samples for sample in found)
    assert order.inverse(found, epoch).tolist() == positions


@pytest.mark.parametrize("samples", range(2, 51))
def test_small_orders_put_each_sample_everywhere_equally_often(samples: int) -> None:
    epochs = 2000
    landed = np.zeros((samples, samples))
    for epoch in range(epochs):
        landed[np.arange(samples), order_of(samples, seed=11, epoch=epoch)] += 1

    assert as_even_as_chance(landed, epochs / samples, (samples - 1) ** 2, drawn_from=samples)


def test_all_orders_of_four_are_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(24 * 300):
        found = tuple(order_of(4, seed).tolist())
        counts[found] = counts.get(found, 0) + 1

    assert len(counts) == 24
    assert as_even_as_chance(np.array(list(counts.values())), 300, 23)


@pytest.mark.parametrize("samples", [1025, 4097, 65536, 100_003])
def test_each_part_of_the_data_lands_in_each_part_of_the_epoch(samples: int) -> None:
    parts = 32
    for seed in range(20):
        found = order_of(samples, seed)
        landed = np.zeros((parts, parts))
        np.add.at(landed, (np.arange(samples) * parts // samples, found * parts // samples), 1)
        assert as_even_as_chance(landed, samples / parts**2, (parts - 1) ** 2, drawn_from=samples)


@pytest.mark.parametrize("samples", [1025, 4097, 65536, 100_003])
def test_neighbours_epochs_and_seeds_are_unrelated(samples: int) -> None:
    for seed in range(10):
        found = order_of(samples, seed)
        others = (np.roll(found, 1), order_of(samples, seed, epoch=1), order_of(samples, seed + 1), np.arange(samples))
        for other in others:
            assert unrelated(found, other)
    adjacent = [int((np.abs(np.diff(order_of(samples, seed))) == 1).sum()) for seed in range(40)]
    assert 1.0 < np.mean(adjacent) < 3.2  # two are expected, whatever the size


def test_names_move_each_source_by_itself() -> None:
    web, code = (SampleOrder(1000, seed=0, name=name).at(range(1000)).tolist() for name in ("web", "code"))

    assert web != code


@pytest.mark.parametrize("bad", [[-1], [10], [2**64 - 1], [[0]], [0.5]])
def test_positions_outside_are_refused(bad: list[object]) -> None:
    with pytest.raises((OrderError, OverflowError)):
        SampleOrder(10).at(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [0, -1, 2**63 + 1])
def test_impossible_sizes_are_refused(samples: int) -> None:
    with pytest.raises(OrderError, match="samples"):
        SampleOrder(samples)
