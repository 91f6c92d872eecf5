"""(step) -> the rollouts it had, and (rollout) -> the steps it was in: read from the journal, not replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError
from millstream.feeds.admission import JournalReader
from millstream.loaders import RowOrigin, Span
from millstream.loaders.rollouts.settings import StepSettings
from millstream.loaders.rollouts.steps import FeedOrder, FeedPhase, FeedPlace, expanded, shares_of, step_places
from millstream.rollouts import Id

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A rollout batch as the journal knows it: what was trained on, in its order."""

    source: str
    rollout_ids: list[Id]
    groups: Numbers
    tokens: Numbers
    group_ids: list[Id]
    """The name of each group, by its number."""
    policy_version: int
    dropped: dict[str, int]
    """Rollouts that were dropped since the batch before, by reason."""

    def origins(self, number: int) -> list[RowOrigin]:
        """Name a rollout by its number in the batch."""
        rollout = self.rollout_ids[number]
        span = Span(self.source, number, 0, int(self.tokens[number]), "", id=rollout)
        return [RowOrigin(0, self.source, number, (span,))]

    @property
    def group_members(self) -> list[Numbers]:
        """The rollouts of each group."""
        return np.split(np.arange(len(self.groups)), np.flatnonzero(np.diff(self.groups)) + 1)

    def samples(self, *, keep_groups: bool) -> int:
        """Rollouts, or groups where these stay together."""
        return len(self.group_members) if keep_groups else len(self.groups)


def recorded(journal: Path, source: str) -> dict[int, Recorded]:
    """All rollout batches that a journal knows."""
    batches: dict[int, Recorded] = {}
    members: dict[Id, list[Id]] = {}
    for entry in (each for each in JournalReader(journal) if not each.is_end):
        if entry.withdrawn:
            batches = {step: batch for step, batch in batches.items() if step < entry.step}
            continue
        ids: list[Id] = []
        groups: list[int] = []
        for number, group in enumerate(entry.groups):
            if not group.replayed:
                members[group.id] = [rollout for (rollout, _), _ in group.names]
            ids += members[group.id]
            groups += [number] * len(members[group.id])
        trained = [row for row, tokens in enumerate(entry.tokens) if tokens]
        dropped = Counter[str]()
        for drop in entry.drops:
            dropped[drop.reason] += len(drop.names)
        batches[entry.step] = Recorded(
            source,
            [ids[row] for row in trained],
            np.array(groups)[trained],
            np.array(entry.tokens)[trained],
            [group.id for group in entry.groups],
            entry.policy_version,
            dict(dropped),
        )
    return batches


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run over a feed: its journal, and how its rollout batches were cut into steps."""

    journal: Path
    phases: Sequence[FeedPhase]
    order: FeedOrder
    steps: StepSettings

    @cached_property
    def batches(self) -> dict[int, Recorded]:
        """Its rollout batches."""
        return recorded(self.journal, self.order.name)

    @cached_property
    def places(self) -> dict[int, tuple[FeedPhase, FeedPlace]]:
        """Where each step begins, as far back as the sizes of steps are known."""
        totals = {number: batch.samples(keep_groups=self.steps.keep_groups) for number, batch in self.batches.items()}
        found: dict[int, tuple[FeedPhase, FeedPlace]] = {}
        for phase in self.phases:
            found = {step: place for step, place in found.items() if step < phase.step}
            places = step_places(phase, totals, self.order.passes)
            found |= {step: (phase, place) for step, place in places.items()}
        return found

    def batch_of(self, step: int) -> tuple[FeedPlace, Recorded]:
        """Where a step begins, and the rollout batch that it is a part of."""
        if 0 <= step < self.phases[0].step:
            raise LoaderError(
                f"what step {step} had is not known any more: the size of steps has changed {len(self.phases)} times "
                "since",
                hint=f"the first that is known is step {self.phases[0].step}",
            )
        if step not in self.places:
            raise LoaderError(
                f"the journal does not know step {step}", hint="it knows steps that were delivered; see cache_dir="
            )
        place = self.places[step][1]
        return place, self.batches[place.batch]

    def numbers_of(self, step: int) -> list[Numbers]:
        """The rows of the rollout batch that each rank had in a step."""
        phase, place = self.places[step]
        batch, keep_groups = self.batches[place.batch], self.steps.keep_groups
        found = self.order.samples_of(batch.samples(keep_groups=keep_groups), step, place, phase)
        numbers, counts = found.samples, found.counts
        if keep_groups:
            numbers, counts = expanded(numbers, counts, batch.group_members)
        groups = batch.groups[numbers].tolist() if keep_groups else None
        return [numbers[share] for share in shares_of(batch.tokens[numbers], counts, self.steps, groups)]

    def rows(self, step: int) -> list[tuple[Recorded, int]]:
        """The rollout of each row of this rank in a step; of all ranks where their number was another one then."""
        _, batch = self.batch_of(step)
        ranks = self.numbers_of(step)
        own = ranks[self.order.rank] if len(ranks) == self.order.ranks else np.concatenate(ranks)
        return [(batch, number) for number in own.tolist()]

    def steps_of(self, rollout: Id, source: str | None = None) -> list[int]:
        """The steps that a rollout was in, on any rank, as far back as the sizes of steps are known."""
        if source not in (None, self.order.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.order.name!r}")
        found = []
        for step, (_, place) in sorted(self.places.items()):
            batch = self.batches[place.batch]
            if rollout in batch.rollout_ids:
                numbers = np.concatenate(self.numbers_of(step))
                found += [step] if rollout in [batch.rollout_ids[number] for number in numbers] else []
        return found
