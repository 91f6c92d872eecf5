"""Groups: the groups of rollouts that were read, how large each is, and between which rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from millstream.rollouts.columns import EQUAL_WITHIN, KINDS, Id
from millstream.rollouts.files import RolloutChunk


@dataclass(slots=True)
class Group:
    """What is known of a group."""

    where: str
    """Where its first rollout stands."""
    rollouts: int = 0
    """One in several parts counts once."""
    scored: int = 0
    least: float = math.inf
    most: float = -math.inf
    in_parts: set[Id] | None = None
    """Rollouts that may have further parts, if there are any."""

    @property
    def is_alone(self) -> bool:
        """Whether it is one rollout with nothing to compare it with: estimators that compare refuse it."""
        return self.rollouts == 1 and self.scored > 0

    @property
    def is_constant(self) -> bool:
        """Whether all its rewards are the same, so that it teaches nothing."""
        return self.scored > 1 and self.most - self.least <= EQUAL_WITHIN


class Groups(dict[Id, Group]):
    """Groups by their names.

    >>> from millstream.rollouts.files import read_rollouts
    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> groups = Groups()
    >>> for chunk in read_rollouts([{"rollout_id": id, **said} for id in "ab"]):
    ...     groups.take(chunk)
    >>> groups["g"].rollouts, groups["g"].is_constant
    (2, True)
    """

    def take(self, chunk: RolloutChunk) -> None:
        """Put rollouts into their groups; a baseline is what a group is compared with, and no part of it."""
        names, rewards = chunk.block.rows["group_id"].tolist(), chunk.block.rows["reward"].tolist()
        ids, parts = chunk.block.rows["rollout_id"].tolist(), chunk.block.filled("sample_idx").tolist()
        for row in np.flatnonzero(chunk.block.filled("kind") == KINDS.index("sample")).tolist():
            group = self.setdefault(names[row], Group(chunk.where(row)))
            group.rollouts += ids[row] not in (group.in_parts or ())
            if parts[row] >= 0:
                group.in_parts = group.in_parts or set()
                group.in_parts.add(ids[row])
            if not math.isnan(rewards[row]):
                group.scored += 1
                group.least, group.most = min(group.least, rewards[row]), max(group.most, rewards[row])
