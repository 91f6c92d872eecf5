"""Uses of a game give other positions each time, until all were used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LoaderError
from millstream.games import FRAME, ORIGIN, FrameBlock
from millstream.order import derive_key, draw_uniform
from millstream.selfplay import PositionSampling, PositionWeights
from millstream.selfplay.sampling import ROUND, ROW, plies_at_rate, plies_by_count

KEYS = st.integers(0, 2**64 - 1)


@given(KEYS, st.integers(1, 60), st.integers(1, 40))
def test_uses_at_a_rate_give_each_position_once_in_a_round(key: int, length: int, parts: int) -> None:
    rate = 1 / parts
    used = np.concatenate([plies_at_rate(key, use, length, rate) for use in range(parts)])
    assert sorted(used) == list(range(length))


def _slow_plies_at_rate(key: int, use: int, length: int, rate: float) -> list[int]:
    carry, absent, taken = rate, np.zeros(length, bool), np.zeros(length, bool)
    for number in range(use + 2):
        whole = int((1 - carry) / rate + 1)
        rest = 1 - (carry + (whole - 1) * rate)
        thrown = draw_uniform(derive_key(key, ROUND, number), np.arange(length))
        interval = np.trunc((thrown - carry) / rate + 1).astype(np.int64)
        interval[thrown < carry] = 0
        taken |= ~absent & (interval == use)
        if use < whole:
            break
        use, carry, absent = use - whole, rate - rest, ~absent & (interval >= whole)
    return list(map(int, np.flatnonzero(taken)))


@given(KEYS, st.integers(0, 200), st.integers(0, 200), st.floats(0.01, 1))
def test_uses_at_a_rate_are_those_of_the_formula(key: int, use: int, length: int, rate: float) -> None:
    assert plies_at_rate(key, use, length, rate).tolist() == _slow_plies_at_rate(key, use, length, rate)


@given(KEYS, st.integers(1, 60), st.floats(0.1, 1))
def test_uses_at_any_rate_cover_every_position_as_often_as_any_other(key: int, length: int, rate: float) -> None:
    uses = [plies_at_rate(key, use, length, rate) for use in range(int(3 / rate) + 1)]
    times = np.bincount(np.concatenate(uses), minlength=length)
    assert times.min() >= 2
    assert times.max() <= np.ceil(len(uses) * rate) + 1
    assert all(len(set(use)) == len(use) for use in uses)


def test_a_rate_takes_its_share() -> None:
    found = [len(plies_at_rate(key, key % 7, 150, 1 / 32)) for key in range(3000)]
    assert np.mean(found) == pytest.approx(150 / 32, rel=0.05)


@given(KEYS, st.integers(1, 30), st.integers(1, 8))
def test_uses_by_count_go_through_whole_rounds(key: int, length: int, count: int) -> None:
    given_out = np.concatenate([plies_by_count(key, use, length, count) for use in range(2 * length)])
    rounds = given_out.reshape(-1, length)
    assert all(sorted(each) == list(range(length)) for each in rounds)


@given(KEYS, st.integers(0, 5))
def test_a_use_does_not_depend_on_which_others_were_asked_for(key: int, use: int) -> None:
    weights = np.array([0.0, 1.0, 0.5, 0.1])
    whole = plies_by_count(key, 0, 4, 6 * 3, weights)
    assert plies_by_count(key, use, 4, 3, weights).tolist() == whole[3 * use : 3 * use + 3].tolist()
    assert 0 not in whole


def test_weights_follow_the_formula() -> None:
    fields, origins = np.zeros(4, FRAME), np.zeros(4, ORIGIN)
    fields["orig_q"] = [np.nan, 0.5, 0.0, -1.0]
    fields["best_q"] = [0.0, 0.5, 0.25, 1.0]
    fields["policy_kld"] = [1.0, 0.5, 0.0, 3.0]
    nothing = np.zeros(0, np.uint16), np.zeros(0, np.float32)
    block = FrameBlock(fields, np.zeros(4, np.uint32), *nothing, origins)
    weights = PositionWeights(q_weight=6, policy_scale=3.5, alpha=2, beta=0.1, gamma=0.5, most=1.2)
    expected = [1, (2 * 0.5 / 9.5 + 0.1) ** 0.5, (2 * 1.5 / 9.5 + 0.1) ** 0.5, 1.2]
    assert weights.of(block) == pytest.approx(expected)
    assert PositionWeights().of(block).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "settings", [{"rate": 0.0}, {"rate": 1.5}, {"count": 0}, {"count": 1.0}, {"count": 2049}, {"rate": 0.5, "count": 1}]
)
def test_settings_that_choose_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(LoaderError, match="hint"):
        PositionSampling(**settings)  # type: ignore[arg-type]


def test_a_game_that_was_used_very_often_is_used_on_as_soon() -> None:
    """Whoever went through all rounds before would be at it for hours."""
    weights = np.full(40, 1e-3)
    weights[7] = 1.0
    used = [plies_by_count(3, use, 40, 1, weights).tolist() for use in (10**12, 10**12 + 1)]
    assert all(0 <= ply < 40 for (ply,) in used)
    assert used == [plies_by_count(3, use, 40, 1, weights).tolist() for use in (10**12, 10**12 + 1)]


def test_heavy_positions_come_more_often_in_every_row_of_rounds() -> None:
    weights = np.array([1.0, 0.25, 0.25, 0.25])
    for first in (0, ROW // 64, 5 * ROW // 64):
        used = np.concatenate([plies_by_count(3, use, 4, 64, weights) for use in range(first, first + ROW // 64)])
        assert 0.5 < (used == 0).mean() < 0.65  # 1 of 1.75
