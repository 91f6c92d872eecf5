"""Rollouts -> what there is of them: counts, lengths, rewards, groups, how they ended and who sampled them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import RolloutBlock
from millstream.rollouts.columns import FINISHES, KINDS
from millstream.rollouts.files import RolloutChunk
from millstream.rollouts.groups import Groups
from millstream.rollouts.lint import sampled_versions


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
    _lengths: list[npt.NDArray[np.int64]] = field(default_factory=list)
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
    def lengths(self) -> npt.NDArray[np.int64]:
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
