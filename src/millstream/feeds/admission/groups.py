"""Rollouts of one prompt -> a group: gathered until all are there, or until waiting for the rest took too long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from millstream.feeds.admission.identity import Key, are_baselines, keys
from millstream.feeds.admission.rules import AdmissionRules
from millstream.rollouts import Id, RolloutBlock


@dataclass
class Gathering:
    """A group that is not complete."""

    id: Id
    began: float
    """When its first rollout came."""
    place: int = 0
    """Its target step or its index, where groups are taken in that order."""
    size: int | None = None
    """How many rollouts the whole group has, if somebody said it."""
    prompt: Id | None = None
    arrived: dict[Id, None] = field(default_factory=dict)
    """Rollouts that came, those that were dropped at once too: nobody has to wait for them."""
    awaited: dict[Id, int] = field(default_factory=dict)
    """Rollouts of which something came, and how many of their parts did not."""
    baselines: int = 0
    parts: list[RolloutBlock] = field(default_factory=list)

    def copy(self) -> Gathering:
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
        """Whether nobody is missing, and no part of anybody."""
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
        """Who is waited for, in words."""
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
class Group:
    """A group that takes nobody any more."""

    id: Id
    number: int
    """How many groups were completed before it."""
    began: float
    place: int
    block: RolloutBlock

    @cached_property
    def keys(self) -> list[Key]:
        """Who is in it."""
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


def held_tokens(groups: Iterable[Gathering | Group]) -> int:
    """Tokens of some groups."""
    return sum(group.tokens for group in groups)
