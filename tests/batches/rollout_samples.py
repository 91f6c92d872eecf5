"""Blocks of random rollouts for tests of batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.rollouts import FINISHES, RolloutBlock
from rollouts.samples import random_rollouts


def block_of(records: list[dict[str, Any]], *, per_token: bool = True, first: int = 0) -> RolloutBlock:
    """Records in columns, with advantages and returns."""
    rng = np.random.default_rng(first)
    lengths = np.array([len(record["token_ids"]) for record in records])
    names = [name for name, value in records[0].items() if isinstance(value, np.ndarray)]
    rows = {
        "rollout_id": np.array([record["rollout_id"] for record in records], object),
        "group_id": np.array([record["group_id"] for record in records], object),
        "reward": np.array([record["reward"] for record in records], np.float64),
        "finish": np.array([FINISHES.index(record["finish"]) for record in records], np.uint8),
        "weight": np.array([record.get("weight", 1.0) for record in records], np.float64),
    }
    tokens = {name: np.concatenate([record[name] for record in records]) for name in names}
    block = RolloutBlock(np.cumsum(lengths), rows, tokens)
    derived = rng.normal(size=int(lengths.sum()) if per_token else len(records))
    return block.with_columns(advantages=derived, returns=rng.normal(size=int(lengths.sum())))


def random_blocks(seed: int, *, per_token: bool = True, weights: bool = False, **asked: Any) -> list[RolloutBlock]:
    """Two blocks whose rollouts have every kind of column."""
    rng = np.random.default_rng(seed)
    blocks = []
    for number in range(2):
        records = random_rollouts(seed + number, **asked)
        for record in records:
            length = len(record["token_ids"])
            record["rollout_id"] = f"{number}:{record['rollout_id']}"
            record["done"] = rng.random(length) < 0.1
            record["routed_experts"] = rng.integers(0, 60_000, (length, 2, 3)).astype(np.uint16)
            if weights:
                record["weight"] = float(rng.choice([0.5, 1.0, 2.0]))
        blocks.append(block_of(records, per_token=per_token, first=number))
    return blocks


def all_places(blocks: list[RolloutBlock]) -> list[tuple[int, int]]:
    """Every rollout of some blocks."""
    return [(number, row) for number, block in enumerate(blocks) for row in range(len(block))]
