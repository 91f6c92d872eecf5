"""Blocks of rollouts: what is selected, joined or put in is what was there."""

from __future__ import annotations

import numpy as np

from millstream.rollouts import RolloutBlock


def block_of(lengths: list[int], first: int = 0) -> RolloutBlock:
    tokens = sum(lengths)
    counts = np.arange(tokens, dtype=np.uint32) % 3
    return RolloutBlock(
        np.cumsum(lengths),
        {
            "rollout_id": np.array([f"r{first + i}" for i in range(len(lengths))], object),
            "reward": np.zeros(len(lengths)),
        },
        {"token_ids": np.arange(tokens, dtype=np.uint32) + 10 * first, "kept_count": counts},
        np.arange(counts.sum(), dtype=np.uint32),
    )


def test_selecting_from_a_joined_block_gives_the_rollouts_of_the_parts() -> None:
    parts = [block_of([3, 1, 4]), block_of([2], first=3)]
    joined = RolloutBlock.concat(parts)
    assert joined["rollout_id"].tolist() == ["r0", "r1", "r2", "r3"]
    again = joined.select([3]), joined.select([0, 1, 2])
    for found, part in zip(again, reversed(parts), strict=True):
        assert found.lengths.tolist() == part.lengths.tolist()
        for name in part.tokens:
            assert found[name].tolist() == part[name].tolist()
        assert found.kept_ids.tolist() == part.kept_ids.tolist()
