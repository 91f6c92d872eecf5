"""How a run over a feed is cut into steps: rollout batches, passes over each, and steps of a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.advantages import AdvantageSettings
from millstream.errors import StateError
from millstream.feeds.admission import AdmittedBatch
from millstream.loaders.rollout_rated import Rated, rate
from millstream.loaders.rollout_steps import StepSamples
from millstream.order import SampleOrder, Shuffle, StepPhase
from millstream.rollouts import RolloutBlock
from millstream.storage import DAMAGED_STATE, read_count

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FeedPlace:
    """A place in a run: the rollout batch, the pass over it, and the samples of that pass before."""

    batch: int = 0
    number: int = 0
    """Of the pass."""
    offset: int = 0

    @property
    def begins_batch(self) -> bool:
        """Whether nothing of the rollout batch was delivered yet."""
        return self.number == 0 == self.offset

    def after(self, rows: int, total: int, passes: int) -> FeedPlace:
        """The place behind so many samples; a step never straddles passes.

        >>> FeedPlace(7, 0, 2).after(4, total=5, passes=2), FeedPlace(7, 1, 4).after(4, total=5, passes=2)
        (FeedPlace(batch=7, number=1, offset=0), FeedPlace(batch=8, number=0, offset=0))
        """
        if self.offset + rows < total:
            return replace(self, offset=self.offset + rows)
        if self.number + 1 < passes:
            return FeedPlace(self.batch, self.number + 1)
        return FeedPlace(self.batch + 1)

    def to_json(self) -> dict[str, int]:
        """As a state says it."""
        return {"batch": self.batch, "pass": self.number, "offset": self.offset}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> FeedPlace:
        """Read it back."""
        return cls(*(read_count(state.get(key), key) for key in ("batch", "pass", "offset")))


class FeedPhase(StepPhase[FeedPlace]):
    """A stretch of steps of one size."""

    __slots__ = ()

    def to_json(self) -> list[int]:
        """As a state says it."""
        return [self.step, *asdict(self.place).values(), self.rows, self.ranks]

    @classmethod
    def from_json(cls, saved: Any) -> FeedPhase:
        """Read it back; nothing in a state is trusted."""
        if not isinstance(saved, Sequence) or len(saved) != 6:
            raise StateError("the state has phases that cannot be read", hint=DAMAGED_STATE)
        step, batch, number, offset, rows, ranks = (read_count(each, "a phase") for each in saved)
        if rows < 1 or ranks < 1:
            raise StateError("the state has a phase without rows", hint=DAMAGED_STATE)
        return cls(step, FeedPlace(batch, number, offset), rows, ranks)


@dataclass(frozen=True)
class FeedOrder:
    """What decides, with the size of a step, which samples of a rollout batch it has."""

    name: str
    seed: int
    shuffle: Shuffle
    rank: int
    """Of who asks."""
    ranks: int
    passes: int

    def samples_of(self, total: int, step: int, place: FeedPlace, phase: FeedPhase) -> StepSamples:
        """The samples of a step that begins at a place of a rollout batch of so many."""
        order = SampleOrder(total, shuffle=self.shuffle, seed=self.seed, name=f"{self.name}\0{place.batch}")
        rows = min(phase.rows, total - place.offset)
        samples = order.at(range(place.offset, place.offset + rows), epoch=place.number).astype("int64")
        size = phase.rows // phase.ranks
        counts = [min(size, max(0, rows - rank * size)) for rank in range(phase.ranks)]
        rank = self.rank if phase.ranks == self.ranks else None
        return StepSamples(step, place.batch * self.passes + place.number, samples, counts, rank)


def step_places(phase: FeedPhase, totals: Mapping[int, int], passes: int) -> dict[int, FeedPlace]:
    """The place of each step from the beginning of a phase on, as far as the sizes of rollout batches are known.

    >>> phase = FeedPhase(3, FeedPlace(0, 0, 4), rows=4, ranks=1)
    >>> step_places(phase, {0: 6}, passes=2)
    {3: FeedPlace(batch=0, number=0, offset=4), 4: FeedPlace(batch=0, number=1, offset=0), \
5: FeedPlace(batch=0, number=1, offset=4)}
    """
    places, place, step = {}, phase.place, phase.step
    while place.batch in totals:
        places[step] = place
        step, place = step + 1, place.after(phase.rows, totals[place.batch], passes)
    return places


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """What a cut gave: rollouts with their advantages, groups next to each other."""

    policy_version: int
    rated: Rated
    groups: Numbers
    """The number of each rollout's group in the cut."""
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, cut: AdmittedBatch, rating: AdvantageSettings | None) -> RolloutBatch:
        """Rate a cut; its facts are part of every batch that is made of it."""
        rated = rate(cut.block, rating)
        sizes = np.diff(cut.group_ends, prepend=0)
        groups = np.repeat(np.arange(len(sizes)), sizes)[rated.rows]
        drops = Counter[str]()
        for drop in cut.drops:
            drops[drop.reason] += len(drop.names)
        rows = {**rated.block.rows, "replayed": np.array(cut.replayed)[groups]}
        block = RolloutBlock(rated.block.ends, rows, rated.block.tokens, rated.block.kept_ids)
        facts = {"statistics": rated.facts, "policy_version_trained": cut.policy_version, "dropped": dict(drops)}
        return cls(cut.policy_version, replace(rated, block=block), groups, facts)

    @property
    def group_members(self) -> list[Numbers]:
        """The rollouts of each group that has any to train on."""
        return np.split(np.arange(len(self.groups)), np.flatnonzero(np.diff(self.groups)) + 1)

    def samples(self, *, keep_groups: bool) -> int:
        """Rollouts, or groups where these stay together."""
        return len(self.group_members) if keep_groups else len(self.groups)
