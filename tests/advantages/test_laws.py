"""Laws of the estimators: shifts, scales, permutations, sums, equal rewards, and what stands at other tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advantages.blocks import GROUPED, random_block
from millstream.advantages import AdvantageSettings, compute_advantages
from millstream.advantages.baselines import dr_grpo, grpo, leave_one_out, opo, passk, reinforce_baseline, rloo
from millstream.rollouts import RolloutBlock

EXACT = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo, "leave_one_out": leave_one_out, "passk": passk}
seeds = st.integers(0, 10_000)


def advantages(block: RolloutBlock, estimator: str, **settings: Any) -> Any:
    return compute_advantages(block, AdvantageSettings(estimator, **settings)).token_advantages()


def near(found: Any, wanted: Any, tolerance: float = 1e-5) -> bool:
    return bool(np.allclose(found, wanted, rtol=0, atol=tolerance))


@pytest.mark.parametrize("estimator", [*GROUPED, "reinforce++"])
@given(seed=seeds, shift=st.floats(-5, 5))
def test_a_reward_for_everybody_changes_nothing(estimator: str, seed: int, shift: float) -> None:
    block = random_block(seed)
    shifted = block.with_columns(reward=block["reward"] + shift)
    assert near(advantages(shifted, estimator), advantages(block, estimator))


@pytest.mark.parametrize("estimator", ["grpo", "reinforce++-baseline", "reinforce++"])
@given(seed=seeds, factor=st.floats(0.1, 10))
def test_the_unit_of_rewards_means_nothing_to_whoever_divides_by_deviation(
    estimator: str, seed: int, factor: float
) -> None:
    block = random_block(seed)
    scaled = block.with_columns(reward=block["reward"] * factor)
    found, wanted = advantages(scaled, estimator), advantages(block, estimator)
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3)  # epsilon has a unit


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
@given(seed=seeds)
def test_advantages_of_a_group_add_up_to_nothing(estimator: str, seed: int) -> None:
    found = compute_advantages(random_block(seed), AdvantageSettings(estimator))
    assert found.per_rollout is not None
    assert near(np.bincount(found.groups, found.per_rollout), 0, 1e-12)


@pytest.mark.parametrize("estimator", [*GROUPED, "reinforce++", "gae"])
@given(seed=seeds)
def test_the_order_of_rollouts_means_nothing(estimator: str, seed: int) -> None:
    block = random_block(seed)
    order = np.random.default_rng(seed).permutation(len(block))
    there = block.with_columns(wanted=advantages(block, estimator)).select(order)
    assert near(advantages(there, estimator), there["wanted"])


@pytest.mark.parametrize("size", [3, 5, 6, 7, 8, 16])
def test_equal_rewards_teach_exactly_nothing(size: int) -> None:
    """Whatever rounding makes of their mean: float32 rewards from 0.01 to 0.99."""
    rewards = np.repeat(np.arange(1, 100, dtype=np.float32) / np.float32(100), size)
    groups = np.repeat(np.arange(99), size)
    found = [estimator(rewards, groups) for estimator in EXACT.values()]
    found.append(opo(rewards, groups, np.arange(len(rewards)) + 1))
    found.append(grpo(rewards, groups, scale="batch"))
    found.append(reinforce_baseline(rewards, groups, np.ones(len(rewards))))
    assert all(not each.any() for each in found)


@pytest.mark.parametrize("estimator", [*GROUPED, "reinforce++", "gae"])
@given(seed=seeds)
def test_what_stands_at_other_tokens_changes_nothing(estimator: str, seed: int) -> None:
    block = random_block(seed)
    mask, rng = block["loss_mask"], np.random.default_rng(seed)
    garbage = rng.choice(np.array([np.nan, np.inf, -np.inf, 1e30], np.float32), len(mask))
    columns = {name: np.where(mask, block[name], garbage) for name in ("values", "sampling_logprobs", "ref_logprobs")}
    rewards = rng.normal(size=len(mask)).astype(np.float32)
    clean = block.with_columns(token_rewards=np.where(mask, rewards, np.float32(0)))
    dirty = block.with_columns(token_rewards=np.where(mask, rewards, garbage), **columns)
    found = advantages(dirty, estimator, kl_beta=0.1, kl_kind="k3")
    assert near(found, advantages(clean, estimator, kl_beta=0.1, kl_kind="k3"), 0)
    assert not found[~mask].any()
