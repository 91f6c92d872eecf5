"""verl's own functions give what ours give, to 1e-6 on 10 000 random rollouts each; and where they are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from advantages.blocks import block_of
from advantages.compared import OURS, close, compared_block
from millstream.advantages import AdvantageSettings, adapt_beta, compute_advantages
from millstream.advantages.baselines import grpo
from millstream.errors import RecordError
from oracles.asked import asked
from oracles.rl import THEIRS, Padded

pytestmark = pytest.mark.oracle
torch = asked("torch")
algorithms = asked("verl.trainer.ppo.core_algos")
BATCHES = 500
"""Of 20 rollouts each."""


@pytest.mark.parametrize("name", OURS)
def test_ours_is_theirs(name: str) -> None:
    for seed in range(BATCHES):
        block = compared_block(seed)
        assert close(OURS[name](block), THEIRS[name](Padded(block))), seed


def test_the_weight_of_the_penalty_adapts_as_theirs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(BATCHES):
        beta, kl, target = rng.random(3) * [1, 10, 10] + 0.01
        theirs = algorithms.AdaptiveKLController(beta, target, 10_000)
        theirs.update(kl, 256)
        assert close(adapt_beta(beta, kl, target=target, steps=256, horizon=10_000), theirs.value)


def test_equal_rewards_give_nothing_where_theirs_give_noise() -> None:
    """Groups of identical float32 rewards: rounding of the mean over a tiny deviation."""
    noisy = 0
    for size in (3, 5, 6, 7, 8, 16):
        for step in range(1, 100):
            rewards = np.full(size, step / 100, np.float32)
            theirs = algorithms.compute_grpo_outcome_advantage(
                torch.from_numpy(rewards[:, None].copy()), torch.ones(size, 1), np.zeros(size, np.int64)
            )[0]
            noisy += bool(theirs.abs().max() > 1e-3)
            assert not grpo(rewards, np.zeros(size)).any()
    assert noisy > 100


def test_a_group_of_one_is_refused_where_theirs_gives_the_raw_reward() -> None:
    theirs = algorithms.compute_grpo_outcome_advantage(torch.tensor([[0.7]]), torch.ones(1, 1), np.zeros(1, np.int64))[
        0
    ]
    assert theirs.item() == pytest.approx(0.7)
    with pytest.raises(RecordError, match="group of one"):
        compute_advantages(block_of([0.7], [1]))


def test_padding_is_zero_where_theirs_is_garbage() -> None:
    rewards = torch.tensor([[0, 0, 0, 1], [0.1, 0, 0.5, 0]])
    values = torch.tensor([[0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.4, 9]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    theirs = algorithms.compute_gae_advantage_return(rewards, values, mask, 0.99, 0.95)[0]
    block = block_of([1, 0.6], [4, 4], mask=mask.flatten(), values=values.flatten().numpy())
    block = block.with_columns(token_rewards=rewards.flatten().numpy())
    ours = compute_advantages(block, AdvantageSettings("gae", gamma=0.99, lam=0.95)).token_advantages()
    assert close(ours[:7], theirs.flatten()[:7])
    assert abs(theirs[1, 3].item()) > 1
    assert ours[7] == 0
