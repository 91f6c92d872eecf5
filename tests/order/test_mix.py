"""Quotas share out a block exactly, and a mixture deals its places as randomly as it claims."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chance import DEVIATIONS, as_even_as_chance
from millstream.errors import OrderError
from millstream.order import MOST_PLACES, PhaseSettings, Schedule, Share, quotas

weights_of_sources = st.lists(st.one_of(st.integers(1, 10**6), st.floats(1e-3, 1e9)), min_size=1, max_size=12).map(
    lambda weights: {f"s{number}": weight for number, weight in enumerate(weights)}
)


def shared_out(weights: dict[str, Any], places: int) -> dict[str, int]:
    try:
        return quotas(weights, places)
    except OrderError:
        assume(False)
        raise


@given(weights=weights_of_sources, places=st.integers(1, 5000))
def test_quotas_fill_the_block_and_are_off_by_less_than_a_place(weights: dict[str, Any], places: int) -> None:
    shares = shared_out(weights, places)

    total = sum(map(Fraction, weights.values()))
    assert sum(shares.values()) == places
    assert list(shares) == list(weights)
    for name, weight in weights.items():
        assert shares[name] >= 1
        assert abs(shares[name] - Fraction(weight) / total * places) < 1 + Fraction(1, 10**6)


@given(weights=weights_of_sources, places=st.integers(1, 5000), power=st.integers(-20, 20))
def test_only_proportions_count_and_a_larger_weight_never_gets_less(
    weights: dict[str, Any], places: int, power: int
) -> None:
    shares = shared_out(weights, places)

    assert shares == quotas({name: weight * 2.0**power for name, weight in weights.items()}, places)
    by_weight = sorted(weights, key=lambda name: weights[name])
    for less, more in itertools.pairwise(by_weight):
        assert shares[less] <= shares[more] or weights[less] == weights[more]


@given(counts=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_weights_that_fit_the_block_are_exact(counts: list[int]) -> None:
    assert list(quotas({str(n): count / sum(counts) for n, count in enumerate(counts)}, sum(counts)).values()) == counts


@given(rare=st.floats(0, 0.0004), places=st.sampled_from([10, 100, 1000]))
def test_a_weight_that_rounds_to_no_place_is_an_error_that_names_it(rare: float, places: int) -> None:
    with pytest.raises(OrderError, match=r"'rare'.*none of") as caught:
        quotas({"rare": rare, "web": 1.0}, places)

    assert "mix_block" in str(caught.value.hint)


@pytest.mark.parametrize(
    "weights",
    [{}, {"a": 0}, {"a": -1, "b": 2}, {"a": float("nan")}, {"a": float("inf")}, {"a": "1"}, {"a": 1e308, "b": 1e308}],
)
def test_weights_that_are_no_shares_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(OrderError, match="finite numbers"):
        quotas(weights)


@pytest.mark.parametrize("places", [0, -1, MOST_PLACES + 1])
def test_impossible_blocks_are_refused(places: int) -> None:
    with pytest.raises(OrderError, match="places"):
        quotas({"a": 1}, places)


# The places of a block

SHARES = {"web": 25, "code": 10, "math": 5}
PLACES = sum(SHARES.values())
BLOCKS = 3000
expected_shares = np.array(list(SHARES.values())) / PLACES


def mixture(seed: int, blocks: int = BLOCKS) -> npt.NDArray[np.int64]:
    """The number of the source at each place of each block."""
    sources = {name: Share(10**6, quota=quota) for name, quota in SHARES.items()}
    recipe = PhaseSettings(seed=seed, row_length=8, global_rows=blocks * PLACES, sources=sources, epoch_size=10**9)
    names, _ = Schedule.start(recipe).rows(0)
    number = {name: place for place, name in enumerate(SHARES)}
    return np.array([number[name] for name in names]).reshape(blocks, PLACES)


def met(ones: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each source meets each other one."""
    table = np.zeros((len(SHARES), len(SHARES)), np.int64)
    np.add.at(table, (ones.ravel(), others.ravel()), 1)
    return table


def test_the_first_places_of_a_mixture_are_pinned() -> None:
    """A failure here means that every mixture in the world would change: make a new order version instead."""
    assert (
        "".join("wcm"[source] for source in mixture(seed=1, blocks=1)[0]) == "wcwccwwwwwccwwwwcwwwwwmcwwwwwwwmwwmmcmcc"
    )


@pytest.mark.parametrize("seed", range(3))
def test_each_source_stands_at_each_place_of_a_block_equally_often(seed: int) -> None:
    found = mixture(seed)
    landed = np.stack([(found == source).sum(axis=0) for source in range(len(SHARES))])

    assert (np.stack([(found == source).sum(axis=1) for source in range(len(SHARES))], 1) == [*SHARES.values()]).all()
    freedom = (PLACES - 1) * (len(SHARES) - 1)
    assert as_even_as_chance(landed, BLOCKS * expected_shares[:, None], freedom, drawn_from=PLACES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("apart", [1, 2, 64])
def test_blocks_and_seeds_know_nothing_of_each_other(seed: int, apart: int) -> None:
    found = mixture(seed)
    freedom = (len(SHARES) - 1) ** 2
    pairs = (found[apart:], found[:-apart]), (found, mixture(seed + apart))

    for ones, others in pairs:
        expected = ones.size * np.outer(expected_shares, expected_shares)
        assert as_even_as_chance(met(ones, others), expected, freedom, drawn_from=PLACES)


def test_neighbouring_places_name_the_same_source_as_often_as_chance() -> None:
    same = (np.diff(mixture(seed=7)) == 0).sum(axis=1)
    expected = sum(quota * (quota - 1) for quota in SHARES.values()) / PLACES

    assert abs(same.mean() - expected) < DEVIATIONS * same.std() / len(same) ** 0.5
