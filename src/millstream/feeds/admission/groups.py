"""Rollouts of one prompt -> a group: gathered until all are there or a timeout ends the wait; and how old they are.

Staleness is the number of versions between the policy that made the trained tokens and the one that is trained: step 5
trains version 4, so what version 3 made has a staleness of 1. Rollouts age while they wait: staleness is checked when
they arrive, and again when a batch is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.seen import Key, are_baselines, keys
from millstream.rollouts import Id, RolloutBlock

Numbers = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
"""The version of rollouts that no loss is taken from: they cannot be too old."""


@dataclass
class OpenGroup:
    """A group that is not complete."""

    id: Id
    began: float
    """When its first rollout came."""
    place: int = 0
    """Its target step or its index, where groups are taken in that order."""
    size: int | None = None
    """How many rollouts the whole group has, if it is known."""
    prompt: Id | None = None
    arrived: dict[Id, None] = field(default_factory=dict)
    """Rollouts that came, those that were dropped at once too: they are not waited for."""
    awaited: dict[Id, int] = field(default_factory=dict)
    """Rollouts of which something came, and how many of their parts did not."""
    baselines: int = 0
    parts: list[RolloutBlock] = field(default_factory=list)

    def copy(self) -> OpenGroup:
        """The same, to be changed apart."""
        return replace(self, arrived=dict(self.arrived), awaited=dict(self.awaited), parts=list(self.parts))

    def has_room_for(self, rollout: Id, *, baseline: bool) -> bool:
        """Whether a rollout may still come in; another part of one that is there always may."""
        return baseline or rollout in self.arrived or self.size is None or len(self.arrived) < self.size

    def arrive(self, rollout: Id, parts: int = 1, *, baseline: bool) -> None:
        """A rollout of so many parts, or a further part of one, has come, to stay or not."""
        if baseline:
            self.baselines += rollout not in self.awaited
        left = self.awaited.pop(rollout, 1 if rollout in self.arrived else parts) - 1
        if left > 0:
            self.awaited[rollout] = left
        if not baseline:
            self.arrived[rollout] = None

    def is_complete(self, rules: AdmissionRules) -> bool:
        """Whether all rollouts are there, and all their parts."""
        is_full = self.size is not None and len(self.arrived) >= self.size
        return is_full and not self.awaited and self.baselines >= rules.baselines

    def is_overdue(self, rules: AdmissionRules, now: float) -> bool:
        """Whether the rest was waited for long enough."""
        return rules.group_timeout_s is not None and now - self.began >= rules.group_timeout_s

    @property
    def tokens(self) -> int:
        """Tokens that are held."""
        return sum(int(part.ends[-1]) for part in self.parts if len(part))

    def missing(self) -> str:
        """What is waited for, in words."""
        if self.size is None:
            return "its end"
        missing = max(0, self.size - len(self.arrived))
        if self.awaited and not missing:
            return f"parts of {', '.join(map(repr, self.awaited))}"
        return f"{missing} of {self.size}"

    def gathered(self) -> RolloutBlock | None:
        """All rollouts that stayed, by `sample_idx` where they have one."""
        if not self.parts:
            return None
        block = RolloutBlock.concat(self.parts)
        if "sample_idx" not in block.rows:
            return block
        return block.select(np.argsort(block.rows["sample_idx"], kind="stable"))


@dataclass(frozen=True, eq=False)
class CompleteGroup:
    """A group that is closed: no further rollout joins it."""

    id: Id
    number: int
    """How many groups were completed before it."""
    began: float
    place: int
    block: RolloutBlock

    @cached_property
    def keys(self) -> list[Key]:
        """The keys of its rollouts."""
        return keys(self.block)

    @property
    def tokens(self) -> int:
        """Tokens of all rollouts."""
        return int(self.block.ends[-1])

    @cached_property
    def rollouts(self) -> int:
        """Rollouts that are trained on; one in several parts counts once."""
        return samples_of(self.block)


def samples_of(block: RolloutBlock) -> int:
    """Different rollouts that are not baselines.

    >>> rows = {"rollout_id": np.array(["a", "a", "b"], object), "kind": np.array([0, 0, 1], np.uint8)}
    >>> samples_of(RolloutBlock(np.arange(3), rows, {}))
    1
    """
    return len(set(block.rows["rollout_id"][~are_baselines(block)].tolist()))


def held_tokens(groups: Iterable[OpenGroup | CompleteGroup]) -> int:
    """Tokens of some groups."""
    return sum(group.tokens for group in groups)


def trained_versions(block: RolloutBlock) -> tuple[Numbers, Numbers]:
    """The oldest and the newest version among the trained tokens of each rollout.

    >>> tokens = {"loss_mask": np.array([0, 1, 1, 0], bool), "policy_version": np.array([0, 3, 4, 9], np.uint32)}
    >>> [ends.tolist() for ends in trained_versions(RolloutBlock(np.array([3, 4]), {}, tokens))]
    [[3, 9223372036854775807], [4, -1]]
    """
    trained, versions = _trained(block), block.tokens["policy_version"].astype(np.int64)
    if not len(block):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    oldest: Numbers = np.minimum.reduceat(np.where(trained, versions, NEVER), block.starts)
    newest: Numbers = np.maximum.reduceat(np.where(trained, versions, -1), block.starts)
    return oldest, newest


def is_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Which rollouts have a trained token that is too old.

    >>> tokens = {"loss_mask": np.array([True]), "policy_version": np.array([3], np.uint32)}
    >>> block = RolloutBlock(np.array([1]), {}, tokens)
    >>> bool(is_stale(block, 4, max_staleness=1)), bool(is_stale(block, 4, max_staleness=0))
    (False, True)
    """
    return trained_versions(block)[0] < policy_version - max_staleness


def is_wholly_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Which rollouts have trained tokens, all of them too old."""
    newest = trained_versions(block)[1]
    return (newest >= 0) & (newest < policy_version - max_staleness)


def mask_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> tuple[RolloutBlock, int]:
    """Take the loss from tokens that are too old; gives how many these are, too."""
    stale = _trained(block) & (block.tokens["policy_version"].astype(np.int64) < policy_version - max_staleness)
    count = int(stale.sum())
    return (block.with_columns(loss_mask=block.tokens["loss_mask"] & ~stale) if count else block), count


def _trained(block: RolloutBlock) -> npt.NDArray[np.bool_]:
    compared = np.repeat(are_baselines(block), block.lengths)
    trained: npt.NDArray[np.bool_] = block.tokens["loss_mask"] & ~compared
    return trained
