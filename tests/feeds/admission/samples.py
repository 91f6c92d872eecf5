"""Rollouts for tests of admission: small, and all of them different."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.feeds.admission import AdmissionState, AdmittedBatch
from millstream.rollouts import FINISHES, RolloutBlock, decode, encode


def row(
    rollout: str | int,
    group: str | int,
    *,
    reward: float = 0.0,
    versions: tuple[int, ...] = (0,),
    finish: str = "stop",
    mask: tuple[int, ...] | None = None,
    **further: Any,
) -> RolloutBlock:
    """One rollout with as many tokens as versions."""
    tokens = len(versions)
    return RolloutBlock(
        np.array([tokens]),
        {
            "rollout_id": np.array([rollout], object),
            "group_id": np.array([group], object),
            "reward": np.array([reward]),
            "finish": np.array([list[str](FINISHES).index(finish)], np.uint8),
            **{
                name: np.array([value], object if isinstance(value, str | dict) else None)
                for name, value in further.items()
            },
        },
        {
            "token_ids": np.arange(tokens, dtype=np.uint32) + abs(hash(reward)) % 1000,
            "loss_mask": np.ones(tokens, bool) if mask is None else np.array(mask, bool),
            "policy_version": np.array(versions, np.uint32),
        },
    )


def rows(*blocks: RolloutBlock) -> RolloutBlock:
    return RolloutBlock.concat(blocks)


def group(name: str | int, rewards: Sequence[float], **further: Any) -> RolloutBlock:
    """All rollouts of a group, `name-0`, `name-1`, …"""
    return rows(*(row(f"{name}-{i}", name, reward=reward, **further) for i, reward in enumerate(rewards)))


def saved(state: AdmissionState) -> AdmissionState:
    """A state as it comes back from a disk."""
    return AdmissionState(json.loads(json.dumps(state.fields)), [decode(encode(block)) for block in state.blocks])


def assert_same_block(one: RolloutBlock, other: RolloutBlock) -> None:
    assert one.ends.tolist() == other.ends.tolist()
    for columns, others in ((one.rows, other.rows), (one.tokens, other.tokens)):
        assert sorted(columns) == sorted(others)
        for name in columns:
            assert columns[name].dtype == others[name].dtype
            np.testing.assert_array_equal(columns[name], others[name])


def assert_same_cut(one: AdmittedBatch | None, other: AdmittedBatch | None) -> None:
    """Equal bit for bit."""
    if one is None or other is None:
        assert one is other
        return
    assert_same_block(one.block, other.block)
    for name in ("step", "policy_version", "group_ids", "group_ends", "replayed", "names", "drops", "stale_masked"):
        assert getattr(one, name) == getattr(other, name)
