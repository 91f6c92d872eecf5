"""Rollouts -> their groups and what there is of them: counts, lengths, rewards, versions and how they ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import EQUAL_WITHIN, FINISHES, KINDS, Id, RolloutBlock
from millstream.rollouts.files import RolloutChunk

Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class GroupSummary:
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


class Groups(dict[Id, GroupSummary]):
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
            group = self.setdefault(names[row], GroupSummary(chunk.where(row)))
            group.rollouts += ids[row] not in (group.in_parts or ())
            if parts[row] >= 0:
                group.in_parts = group.in_parts or set()
                group.in_parts.add(ids[row])
            if not math.isnan(rewards[row]):
                group.scored += 1
                group.least, group.most = min(group.least, rewards[row]), max(group.most, rewards[row])


@dataclass
class RolloutSummary:
    """What was counted. Memory grows by some 20 bytes a rollout, and with the number of groups.

    >>> from millstream.rollouts.files import read_rollouts
    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> summary = RolloutSummary.of(read_rollouts([{"rollout_id": id, **said} for id in "ab"]))
    >>> summary.rollouts, summary.tokens, summary.trained_tokens, summary.constant_groups, summary.finishes
    (2, 4, 2, 1, Counter({'stop': 2}))
    """

    files: set[str] = field(default_factory=set)
    tokens: int = 0
    trained_tokens: int = 0
    largest_id: int = -1
    """-1: there is none."""
    baselines: int = 0
    groups: Groups = field(default_factory=Groups)
    finishes: Counter[str] = field(default_factory=Counter)
    versions: Counter[int] = field(default_factory=Counter)
    """Rollouts by the version of the policy that sampled their last tokens."""
    mixed_versions: int = 0
    """Rollouts that several versions sampled."""
    columns: list[str] = field(default_factory=list)
    """What is known of each token."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Records that cannot be used, by reason, and those that came again."""
    _lengths: list[Numbers] = field(default_factory=list)
    _rewards: list[npt.NDArray[np.float64]] = field(default_factory=list)

    @classmethod
    def of(cls, chunks: Iterable[RolloutChunk]) -> RolloutSummary:
        """Count what is in some chunks."""
        summary = cls()
        for chunk in chunks:
            summary.take(chunk)
        return summary

    def take(self, chunk: RolloutChunk) -> None:
        """Count some more."""
        self.files.add(chunk.file)
        self.left_out.update(bad.error.reason for bad in chunk.bad)
        if chunk.repeated:
            self.left_out["repeated"] += chunk.repeated
        if len(chunk.block):
            self.groups.take(chunk)
            self._count(chunk.block)

    def _count(self, block: RolloutBlock) -> None:
        self.columns = self.columns or [*block.tokens]
        self.tokens += int(block.ends[-1])
        self.trained_tokens += int(block["loss_mask"].sum())
        self.largest_id = max(self.largest_id, int(block["token_ids"].max()))
        self.baselines += int((block.filled("kind") == KINDS.index("baseline")).sum())
        self.finishes.update(FINISHES[number] for number in block["finish"].tolist())
        if "policy_version" in block:
            oldest, youngest = sampled_versions(block)
            self.versions.update(youngest[youngest >= 0].tolist())
            self.mixed_versions += int((oldest < youngest).sum())
        self._lengths.append(block.lengths)
        self._rewards.append(np.asarray(block["reward"], np.float64))

    @property
    def rollouts(self) -> int:
        """How many there are."""
        return sum(map(len, self._lengths))

    @property
    def lengths(self) -> Numbers:
        """Tokens of each."""
        return np.concatenate(self._lengths) if self._lengths else np.empty(0, np.int64)

    @property
    def rewards(self) -> npt.NDArray[np.float64]:
        """The rewards of those that were scored."""
        known = np.concatenate(self._rewards) if self._rewards else np.empty(0)
        return known[~np.isnan(known)]

    @property
    def group_sizes(self) -> Counter[int]:
        """How many groups are of which size."""
        return Counter(group.rollouts for group in self.groups.values())

    @property
    def constant_groups(self) -> int:
        """Groups whose rewards are all the same: they teach nothing."""
        return sum(group.is_constant for group in self.groups.values())


def sampled_versions(block: RolloutBlock) -> tuple[Numbers, Numbers]:
    """The oldest and the youngest version that sampled a token of each rollout; -1 as the youngest: none did."""
    versions, mask = block.tokens["policy_version"].astype(np.int64), block.tokens["loss_mask"]
    oldest: Numbers = np.minimum.reduceat(np.where(mask, versions, np.iinfo(np.int64).max), block.starts)
    youngest: Numbers = np.maximum.reduceat(np.where(mask, versions, -1), block.starts)
    return oldest, youngest
