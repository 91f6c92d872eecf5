"""ReplayBuffer: groups that were trained on, and may be again, while they are fresh and not used up.

Deterministic: which ones come again is a function of (seed, step) and of what is in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from millstream.feeds.admission.batch import BatchSize
from millstream.feeds.admission.groups import NEVER, CompleteGroup, held_tokens, trained_versions
from millstream.feeds.admission.rules import ReplayRules
from millstream.order import SampleOrder
from millstream.stats import Ledger


@dataclass(eq=False)
class ReplayedGroup:
    """A group and how often it was trained on."""

    group: CompleteGroup
    uses: int = 1

    @cached_property
    def oldest_version(self) -> int:
        """The oldest policy that any of its trained tokens is from."""
        block = self.group.block
        return int(trained_versions(block)[0].min()) if "policy_version" in block.tokens else NEVER


class ReplayBuffer:
    """Groups in the order in which they came in."""

    def __init__(self, rules: ReplayRules, seed: int, kept: Iterable[ReplayedGroup] = ()) -> None:
        self.rules, self.seed = rules, seed
        self.kept = list(kept)
        self.counts = Ledger()
        """How often a group came again, and why groups are not kept any more."""

    def copy(self) -> ReplayBuffer:
        """The same, to be changed apart."""
        buffer = ReplayBuffer(self.rules, self.seed, (ReplayedGroup(kept.group, kept.uses) for kept in self.kept))
        buffer.counts = self.counts.copy()
        return buffer

    def expire(self, oldest_version: int) -> None:
        """Give up groups with a trained token from before a version."""
        self._give_up([kept for kept in self.kept if kept.oldest_version < oldest_version], "stale")

    def draw(self, step: int, size: BatchSize) -> list[CompleteGroup]:
        """The groups that come again in a step, each once; nothing is changed by looking."""
        room = int(size.room * self.rules.share)
        if not self.kept or not room:
            return []
        order = SampleOrder(len(self.kept), seed=self.seed, name="replay").at(range(len(self.kept)), epoch=step)
        return size.fit((self.kept[place].group for place in order.tolist()), room)

    def use(self, groups: Iterable[CompleteGroup]) -> None:
        """Groups were drawn and are trained on once more."""
        for group in groups:
            kept = next(kept for kept in self.kept if kept.group is group)
            kept.uses += 1
            self.counts.add("uses")
        self._give_up([kept for kept in self.kept if kept.uses >= self.rules.max_uses], "used_up")

    def add(self, groups: Iterable[CompleteGroup]) -> None:
        """Keep groups that were trained on for the first time; those that are stalest, then oldest, make room."""
        if self.rules.max_uses == 1:
            return
        self.kept += [ReplayedGroup(group) for group in groups]
        while self._is_over_full():
            self._give_up([min(self.kept, key=lambda kept: kept.oldest_version)], "evicted")

    def _is_over_full(self) -> bool:
        tokens = held_tokens(kept.group for kept in self.kept)
        limit = self.rules.capacity_tokens
        return len(self.kept) > self.rules.capacity_groups or (limit is not None and tokens > limit)

    def _give_up(self, gone: list[ReplayedGroup], reason: str) -> None:
        if gone:
            self.counts.add(reason, count=len(gone))
            self.kept = [kept for kept in self.kept if kept not in gone]
