"""Rollouts of a step -> batches of this rank: dealt out to ranks, cut into micro-batches, all with one denominator.

A run over a feed is cut into rollout batches, passes over each, and steps of a pass: `FeedPlace`, `FeedPhase` and
`FeedOrder` say which rollouts each step has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millstream.advantages import AdvantageSettings
from millstream.batches import RolloutFormat, RolloutRows, RolloutStep, RowBuffers, TrainingBatch
from millstream.errors import StateError
from millstream.feeds.admission import AdmittedBatch
from millstream.loaders.rollouts.rollout_set import Rated, rate
from millstream.loaders.rollouts.settings import RolloutTask, StepSettings
from millstream.order import SampleOrder, Shuffle, StepPhase, StepPlan
from millstream.rollouts import RolloutBlock
from millstream.storage import DAMAGED_STATE, read_count

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepSamples:
    """Which samples a step has, on all ranks, and how many of them each rank takes."""

    step: int
    epoch: int
    samples: Numbers
    counts: list[int]
    rank: int | None
    """The rank that asks; None where the number of ranks was another one then."""


@dataclass(frozen=True, eq=False)
class DealtStep:
    """A step: its rollouts on all ranks, and those of this one."""

    rollouts: RolloutStep
    shares: Sequence[Numbers]
    """Rollouts of each rank, as numbers among those of the step."""
    rank: int
    settings: StepSettings
    filled_to: int = 0
    """Rows that a batch has at least: those that are missing are filler."""

    @property
    def own(self) -> Numbers:
        """The rollouts of this rank."""
        return self.shares[self.rank]

    def prepare(self, *, micro: bool) -> None:
        """Make what will be asked for ahead of time; it is given once."""
        self.__dict__["prepared"] = (True, self.micro_batches()) if micro else (False, self.batch())

    def _prepared(self, *, micro: bool) -> Any:
        was_micro, made = self.__dict__.pop("prepared", (None, None))
        return made if was_micro is micro else None

    def batch(self) -> TrainingBatch:
        """All rollouts of this rank in one batch; filler, which is rows without loss, comes last."""
        prepared: TrainingBatch | None = self._prepared(micro=False)
        return self._batch() if prepared is None else prepared

    def _batch(self) -> TrainingBatch:
        if len(self.own) == 0:
            return self.rollouts.batch([]).rows_between(0, 1 if self.filled_to else 0)
        batch = self.rollouts.batch(self.own)
        missing = 0 if self.settings.packing else self.filled_to - len(self.own)
        if missing <= 0:
            return batch
        filler = self.rollouts.batch([], length=batch.metadata["sequence_length"])
        return TrainingBatch.merge([batch, *[filler] * missing])

    @cached_property
    def plan(self) -> StepPlan:
        """Micro-batches of every rank: as many on each."""
        return StepPlan.cut(
            self.shares, self.rollouts.lengths, rule=self.settings.rule, multiple=self.settings.micro_multiple
        )

    def micro_batches(self) -> MicroBatches:
        """The rollouts of this rank in micro-batches."""
        prepared: MicroBatches | None = self._prepared(micro=True)
        if prepared is not None:
            return prepared
        own = self.plan.micro_batches[self.rank]
        return MicroBatches([self.rollouts.batch(rows) for rows in own], np.concatenate([*own, np.empty(0, np.int64)]))


class MicroBatches(list[TrainingBatch]):
    """The micro-batches of one rank in one step; every rank has as many.

    `order` are the numbers, among the rollouts of the step, of those that the micro-batches hold, one after the other.
    """

    def __init__(self, batches: Sequence[TrainingBatch], order: npt.NDArray[Any]) -> None:
        super().__init__(batches)
        self.order: Numbers = order.astype(np.int64)

    @property
    def inverse(self) -> Numbers:
        """Puts what was computed per rollout, micro-batch by micro-batch, into the order of `get_batch`.

        >>> import numpy as np
        >>> step = MicroBatches([], np.array([2, 0, 1]))
        >>> np.array(["c", "a", "b"])[step.inverse].tolist()
        ['a', 'b', 'c']
        """
        return np.argsort(self.order, kind="stable")


def shares_of(
    lengths: Numbers, counts: Sequence[int], settings: StepSettings, groups: Sequence[Any] | None
) -> Sequence[Numbers]:
    """The rollouts of each rank: so many as they come, or in balance, and then groups stay together if they are named.

    >>> [share.tolist() for share in shares_of(np.array([5, 1, 1, 5]), [2, 2], StepSettings(), None)]
    [[0, 1], [2, 3]]
    """
    if settings.balance is None:
        numbers, ends = np.arange(len(lengths), dtype=np.int64), [*accumulate(counts, initial=0)]
        return [numbers[first:stop] for first, stop in pairwise(ends)]
    return StepPlan.share(lengths, ranks=len(counts), cost=settings.cost, groups=groups, equal_sizes=groups is None)


def expanded(groups: Numbers, counts: Sequence[int], members: Sequence[Numbers]) -> tuple[Numbers, list[int]]:
    """Groups of ranks -> their rollouts, and how many of these each rank has.

    >>> numbers, counts = expanded(np.array([1, 0]), [1, 1], [np.array([0, 2]), np.array([1])])
    >>> numbers.tolist(), counts
    ([1, 0, 2], [1, 2])
    """
    found = [members[group] for group in groups]
    sizes = np.cumsum([0, *map(len, found)])
    bounds = sizes[np.cumsum([0, *counts])]
    return np.concatenate([np.empty(0, np.int64), *found]), np.diff(bounds).tolist()


class Grouped(Protocol):
    """Rollouts that belong to groups."""

    @property
    def groups(self) -> Numbers:
        """The number of each rollout's group."""
        ...

    @property
    def group_members(self) -> Sequence[Numbers]:
        """The rollouts of each group."""
        ...


class Dealer:
    """Deals the rollouts of steps out to ranks, in memory that all batches of a loader share."""

    def __init__(self, task: RolloutTask) -> None:
        settings, steps = task.settings, task.steps
        self.task, self._pad_last = task, settings.pad_last
        self._format = RolloutFormat(
            labels=settings.labels,
            pad_id=task.pad_id,
            framework=settings.framework,
            packed=steps.packing,
            pad_to_multiple_of=steps.pad_to_multiple_of,
        )
        half = None if settings.memory_budget is None else settings.memory_budget // 2  # the other is for rollouts
        self.buffers = RowBuffers(half)

    def rows(self, block: RolloutBlock) -> RolloutRows:
        """What makes batches of some rollouts."""
        return RolloutRows([block], self._format, self.buffers)

    def dealt(
        self,
        rows: RolloutRows,
        found: StepSamples,
        grouped: Grouped,
        facts: Mapping[str, Any],
        filled_to: int = 0,
    ) -> DealtStep:
        """The rollouts of a step on every rank; where the number of ranks was another one, as if there were one.

        Args:
            rows: Makes the batches.
            found: The samples of the step.
            grouped: Which rollouts belong together; asked only where they stay together.
            facts: What else batches say.
            filled_to: Rows that a batch has at least, where the last one is padded.
        """
        steps, numbers, counts = self.task.steps, found.samples, found.counts
        if steps.keep_groups:
            numbers, counts = expanded(numbers, counts, grouped.group_members)
        if found.rank is None:
            counts = [len(numbers)]
        places = np.zeros((len(numbers), 2), np.int64)
        places[:, 1] = numbers
        step = rows.step(
            places,
            mean_of=steps.loss,
            constant=steps.loss_constant or 1.0,
            facts={"epoch": found.epoch, "step": found.step, **facts},
        )
        shares = shares_of(step.lengths, counts, steps, grouped.groups[numbers].tolist() if steps.keep_groups else None)
        return DealtStep(step, shares, found.rank or 0, steps, filled_to if self._pad_last else 0)


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
        """The place after so many samples; a step never straddles passes.

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
    """Of this process."""
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
