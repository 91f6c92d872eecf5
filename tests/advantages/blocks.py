"""Blocks of rollouts for tests, made column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.rollouts import RolloutBlock
from millstream.rollouts.block import TOKEN_COLUMNS

GROUPED = ["grpo", "dr_grpo", "rloo", "leave_one_out", "opo", "passk", "reinforce++-baseline"]
"""Estimators that compare rollouts of a group."""


def block_of(
    rewards: Sequence[float] | Any,
    lengths: Sequence[int] | Any,
    groups: Sequence[Any] | Any = None,
    *,
    mask: Any = None,
    **columns: Any,
) -> RolloutBlock:
    """Rollouts with these rewards, and further columns by their names."""
    count, ends = len(rewards), np.cumsum(np.asarray(lengths, np.int64))
    tokens = int(ends[-1]) if count else 0
    given = {name: np.asarray(each) for name, each in columns.items()}
    return RolloutBlock(
        ends,
        {
            "rollout_id": np.array([f"r{row}" for row in range(count)], object),
            "group_id": np.array(["g"] * count if groups is None else list(groups), object),
            "reward": np.asarray(rewards, np.float64),
            "finish": np.zeros(count, np.uint8),
            **{name: each for name, each in given.items() if name not in TOKEN_COLUMNS},
        },
        {
            "loss_mask": np.ones(tokens, bool) if mask is None else np.asarray(mask, bool),
            **{name: each for name, each in given.items() if name in TOKEN_COLUMNS},
        },
    )


def random_block(seed: int, *, groups: int = 5, size: int = 4) -> RolloutBlock:
    """Groups that are not neighbours, tools among tokens, every column that an estimator may read."""
    rng = np.random.default_rng(seed)
    count = groups * size
    lengths = rng.integers(1, 9, count)
    total = int(lengths.sum())
    mask = rng.random(total) < 0.8
    mask[np.cumsum(lengths) - lengths] = True
    return block_of(
        np.round(rng.normal(size=count), 1),
        lengths,
        rng.permutation(np.repeat(np.arange(groups), size)),
        mask=mask,
        values=rng.normal(size=total).astype(np.float32),
        sampling_logprobs=-rng.exponential(size=total).astype(np.float32),
        ref_logprobs=-rng.exponential(size=total).astype(np.float32),
        finish=(rng.random(count) < 0.3).astype(np.uint8),
        bootstrap_value=np.where(rng.random(count) < 0.5, rng.normal(size=count), np.nan),
    )
