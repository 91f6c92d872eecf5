"""Known values of every estimator: three groups of four rollouts, and a few rows of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millstream.advantages import Overlong, adapt_beta, correction_weights
from millstream.advantages.baselines import dr_grpo, grpo, leave_one_out, opo, passk, reinforce_baseline, rloo
from millstream.advantages.correction import ratios, sequence_ratios
from millstream.advantages.masked import whiten
from millstream.advantages.returns import discounted_returns, gae, remax
from millstream.advantages.rewards import kl_divergence

REWARDS = np.array([1, 0, 0, 1, 0.5, 0.5, 0.5, 0.5, 2, 1, 0, -1])
GROUPS = np.repeat([0, 1, 2], 4)
LENGTHS = np.array([3, 2, 4, 1, 2, 2, 2, 2, 3, 1, 2, 4])
ENDS = np.cumsum(LENGTHS)


def near(found: Any, wanted: Any) -> bool:
    return bool(np.allclose(found, wanted, rtol=0, atol=1e-6))


@pytest.mark.parametrize(
    ("estimator", "first", "third"),
    [
        (grpo, [0.866024, -0.866024, -0.866024, 0.866024], [1.161894, 0.387298, -0.387298, -1.161894]),
        (
            lambda rewards, groups: grpo(rewards, groups, epsilon=1e-4),
            [0.865875, -0.865875, -0.865875, 0.865875],
            [1.161805, 0.387268, -0.387268, -1.161805],
        ),
        (
            lambda rewards, groups: grpo(rewards, groups, epsilon=1e-4, scale="batch"),
            [0.676912, -0.676912, -0.676912, 0.676912],
            [2.030735, 0.676912, -0.676912, -2.030735],
        ),
        (dr_grpo, [0.5, -0.5, -0.5, 0.5], [1.5, 0.5, -0.5, -1.5]),
        (rloo, [0.666667, -0.666667, -0.666667, 0.666667], [2, 0.666667, -0.666667, -2]),
        (leave_one_out, None, [1.999998, 0.436435, -0.436435, -1.999998]),
        (lambda rewards, groups: opo(rewards, groups, LENGTHS), [0.6, -0.4, -0.4, 0.6], [1.7, 0.7, -0.3, -1.3]),
        (passk, [0, 0, 0, 0], [1, 0, 0, 0]),
    ],
    ids=["grpo", "grpo of trl", "grpo by batch", "dr_grpo", "rloo", "leave_one_out", "opo", "passk"],
)
def test_advantages_of_groups(
    estimator: Callable[[Any, Any], Any], first: list[float] | None, third: list[float]
) -> None:
    found = estimator(REWARDS, GROUPS)
    assert first is None or near(found[:4], first)
    assert found[4:8].tolist() == [0, 0, 0, 0]
    assert near(found[8:], third)


def test_reinforce_with_a_baseline_whitens_over_tokens() -> None:
    found = reinforce_baseline(REWARDS, GROUPS, LENGTHS)
    assert near(found[:4], [0.729963, -0.472329, -0.472329, 0.729963])
    assert near(found[4:8], 0.128817)
    assert near(found[8:], [1.932255, 0.729963, -0.472329, -1.674621])


def test_reinforce_discounts_and_whitens() -> None:
    mask, ends = np.ones(10), ENDS[:4]
    returns = discounted_returns(REWARDS[:4], mask, ends, gamma=0.9)
    assert near(returns, [0.81, 0.9, 1, 0, 0, 0, 0, 0, 0, 1])
    assert near(whiten(returns, mask), [0.911055, 1.097832, 1.305362, *[-0.769935] * 6, 1.305362])


def test_remax_subtracts_the_greedy_reward() -> None:
    advantages, _ = remax(REWARDS[:4], np.full(4, 0.25), np.ones(10), ENDS[:4])
    assert near(advantages, [0.75] * 3 + [-0.25] * 6 + [0.75])


def test_generalised_advantages_and_returns() -> None:
    values = np.array([0.5, 0.6, 0.7, 0.8, 0.2, 0.3, 0.4, 9])
    rewards = np.array([0, 0, 0, 1, 0.1, 0, 0.5, np.nan])
    mask = np.array([1, 1, 1, 1, 1, 1, 1, 0])
    advantages, returns = gae(np.zeros(2), values, mask, np.array([4, 8]), token_rewards=rewards, gamma=0.99, lam=0.95)
    assert near(advantages, [0.429226, 0.356434, 0.2801, 0.2, 0.375742, 0.19005, 0.1, 0])
    assert near(returns[:4], [0.929226, 0.956434, 0.9801, 1.0])
    whitened = [1.295133, 0.680119, 0.035181, -0.641576, 0.84325, -0.725642, -1.486465, 0]
    assert near(whiten(advantages, mask), whitened)


@pytest.mark.parametrize(
    ("rewards", "values", "mask", "more", "wanted"),
    [
        ([1], [0.5, 0.6, 0.7, 0.8], [1] * 4, {"bootstrap": [0.9]}, [1.170458, 1.14456, 1.118086, 1.091]),
        ([1], [0.5, 0.6, 7, 7, 0.8], [1, 1, 0, 0, 1], {}, [0.451484, 0.3801, 0, 0, 0.2]),
        (
            [0],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            [1] * 6,
            {"token_rewards": [1, 0, 2, 0, 0, 3], "done": [0, 0, 1, 0, 0, 1], "gamma": 0.9, "lam": 0.8},
            [2.01168, 1.294, 1.7, 1.32296, 1.768, 2.4],
        ),
    ],
    ids=["cut off", "tool tokens", "two episodes"],
)
def test_generalised_advantages_of_one_row(
    rewards: list[float], values: list[float], mask: list[int], more: dict[str, Any], wanted: list[float]
) -> None:
    columns = {name: np.array(each) if isinstance(each, list) else each for name, each in more.items()}
    settings: dict[str, Any] = {"gamma": 0.99, "lam": 0.95, **columns}
    found, _ = gae(np.array(rewards), np.array(values), np.array(mask), np.array([len(mask)]), **settings)
    assert near(found, wanted)


def test_whitening_leaves_out_what_is_not_masked() -> None:
    values, mask = np.array([1.0, 2, 3, 4, 100]), np.array([1, 1, 1, 1, 0])
    wanted = np.array([-1.161895, -0.387298, 0.387298, 1.161895, 0])
    assert near(whiten(values, mask), wanted)
    assert near(whiten(values, mask, shift_mean=False), wanted + 2.5 * mask)
    assert near(whiten(values, mask, whitening="biased"), wanted * np.sqrt(4 / 3))


def test_estimates_of_the_divergence() -> None:
    logprobs, reference = np.array([-1, -0.5, -2]), np.array([-1.2, -0.5, -1])
    k1, k2, k3 = (kl_divergence(logprobs, reference, np.ones(3), kind) for kind in ("k1", "k2", "k3"))
    assert near(k1, [0.2, 0, -1])
    assert near(k2, [0.02, 0, 0.5])
    assert near(k3, [0.018731, 0, 0.718282])
    assert near(np.array([0, 0, 1]) - 0.1 * k1, [-0.02, 0, 1.1])
    assert near(kl_divergence(np.array([-40.0]), np.zeros(1), np.ones(1), "k3", clamp=True), [10])
    assert near(adapt_beta(0.2, 8, target=6, steps=256, horizon=10_000), 0.201024)


def test_long_rollouts_lose_reward() -> None:
    lengths = np.array([16000, 16384, 18432, 20480])
    assert near(Overlong(20480, 4096).penalty(lengths), [0, 0, -0.5, -1])


def test_behaviour_is_corrected() -> None:
    train, sampling, mask, ends = np.array([-1, -0.2, -3]), np.array([-1.1, -0.9, -1.5]), np.ones(3), np.array([3])
    assert near(ratios(train, sampling, mask), [1.105171, 2.013753, 0.22313])
    assert near(correction_weights(train, sampling, mask, ends, cap=2), [1.105171, 2, 0.22313])
    assert near(sequence_ratios(train, sampling, mask, ends, "sequence"), [0.496585])
    assert near(sequence_ratios(train, sampling, mask, ends, "geometric"), [0.79189])
