"""Which rollout a row is, and what its record says beside the columns.

A row is one rollout, or a part of one that an engine gave in several samples: these share its id and differ in
`sample_idx`, and the rollout counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts import KINDS, Id, RolloutBlock

Key: TypeAlias = tuple[Id, int]
"""A rollout's id and its `sample_idx`, -1 where there is none."""
Name: TypeAlias = tuple[Key, int]
"""A key and the hash of the content: two records that claim one key have two names."""

BASELINE = KINDS.index("baseline")


@dataclass(frozen=True)
class Drop:
    """Rollouts of a group that no batch gets, and the reason."""

    reason: str
    group: Id
    names: tuple[Name, ...]
    tokens: int


def keys(block: RolloutBlock) -> list[Key]:
    """Who the rows are."""
    ids = block.rows["rollout_id"].tolist()
    samples = block.rows["sample_idx"].tolist() if "sample_idx" in block.rows else [-1] * len(ids)
    return list(zip(ids, samples, strict=True))


def is_baseline(block: RolloutBlock, row: int) -> bool:
    """Whether a row is only compared with, and not trained on."""
    return "kind" in block.rows and bool(block.rows["kind"][row] == BASELINE)


def are_baselines(block: RolloutBlock) -> npt.NDArray[np.bool_]:
    """Which rows are only compared with."""
    return block.rows["kind"] == BASELINE if "kind" in block.rows else np.zeros(len(block), bool)


def said(block: RolloutBlock, row: int, name: str) -> int | None:
    """A whole number that a record gives as a column or in its `extra`, or None.

    >>> rows = {"rollout_id": np.array(["a", "b"], object), "extra": np.array([{"target_step": 4}, None], object)}
    >>> block = RolloutBlock(np.array([1, 2]), rows, {})
    >>> said(block, 0, "target_step"), said(block, 1, "target_step")
    (4, None)
    """
    extra = block.rows["extra"][row] if "extra" in block.rows else None
    value = block.rows[name][row] if name in block.rows else extra.get(name) if isinstance(extra, Mapping) else None
    number = value.item() if isinstance(value, np.generic) else value
    return int(number) if isinstance(number, int | float) and number % 1 == 0 else None


def name_to_json(name: Name) -> list[Any]:
    """Write a name down: the id, the content's hash, and the part where there are several."""
    (rollout, sample), content = name
    return [rollout, f"{content:016x}", *([] if sample < 0 else [sample])]


def name_from_json(saved: list[Any]) -> Name:
    """Read a name back.

    >>> name_from_json(name_to_json((("r1", 2), 255)))
    (('r1', 2), 255)
    """
    rollout, content, *sample = saved
    return (rollout, sample[0] if sample else -1), int(content, 16)


def drop_to_json(drop: Drop) -> list[Any]:
    """Write a drop down."""
    return [drop.reason, drop.group, drop.tokens, [name_to_json(name) for name in drop.names]]


def drop_from_json(saved: list[Any]) -> Drop:
    """Read a drop back."""
    reason, group, tokens, names = saved
    return Drop(reason, group, tuple(name_from_json(name) for name in names), tokens)
