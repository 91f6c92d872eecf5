"""(step) -> the rollouts it had, and (rollout) -> the steps it was in: read from the journal, not replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.admission import JournalReader
from millstream.errors import LoaderError
from millstream.loaders.feed_run import FeedRun
from millstream.loaders.feed_steps import FeedPhase, FeedPlace, step_places
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.rollout_settings import StepSettings
from millstream.loaders.rollout_steps import expanded, shares_of
from millstream.rollouts import Id

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """A rollout batch as the journal knows it: what was trained on, in its order."""

    rollout_ids: list[Id]
    groups: Numbers
    tokens: Numbers

    @property
    def group_members(self) -> list[Numbers]:
        """The rollouts of each group."""
        return np.split(np.arange(len(self.groups)), np.flatnonzero(np.diff(self.groups)) + 1)

    def samples(self, *, keep_groups: bool) -> int:
        """Rollouts, or groups where these stay together."""
        return len(self.group_members) if keep_groups else len(self.groups)


def recorded(run: FeedRun) -> dict[int, Recorded]:
    """All rollout batches that the journal knows."""
    path = run.frontier.journal_path
    if path is None:
        raise LoaderError(
            "nobody wrote down what was trained on", hint="pass cache_dir=: the journal of admissions is kept there"
        )
    batches: dict[int, Recorded] = {}
    members: dict[Id, list[Id]] = {}
    for entry in (each for each in JournalReader(path) if not each.is_end):
        ids: list[Id] = []
        groups: list[int] = []
        for number, group in enumerate(entry.groups):
            if not group.replayed:
                members[group.id] = [rollout for (rollout, _), _ in group.names]
            ids += members[group.id]
            groups += [number] * len(members[group.id])
        trained = [row for row, tokens in enumerate(entry.tokens) if tokens]
        batches[entry.step] = Recorded(
            [ids[row] for row in trained], np.array(groups)[trained], np.array(entry.tokens)[trained]
        )
    return batches


def _places(
    run: FeedRun, batches: Mapping[int, Recorded], steps: StepSettings
) -> dict[int, tuple[FeedPhase, FeedPlace]]:
    totals = {number: batch.samples(keep_groups=steps.keep_groups) for number, batch in batches.items()}
    found: dict[int, tuple[FeedPhase, FeedPlace]] = {}
    for phase in run.phases:
        found = {step: place for step, place in found.items() if step < phase.step}
        found |= {step: (phase, place) for step, place in step_places(phase, totals, run.passes).items()}
    return found


def _numbers(
    run: FeedRun, batch: Recorded, step: int, phase: FeedPhase, place: FeedPlace, steps: StepSettings
) -> list[Numbers]:
    """The rows of the rollout batch that each rank had in a step."""
    found = run.samples_of(batch.samples(keep_groups=steps.keep_groups), step, place, phase)
    numbers, counts = found.samples, found.counts
    if steps.keep_groups:
        numbers, counts = expanded(numbers, counts, batch.group_members)
    groups = batch.groups[numbers].tolist() if steps.keep_groups else None
    return [numbers[share] for share in shares_of(batch.tokens[numbers], counts, steps, groups)]


def origins_of(step: int, run: FeedRun, steps: StepSettings) -> list[RowOrigin]:
    """Name the rollout of each row of this rank in a step; of all ranks where their number was another one then."""
    batches = recorded(run)
    places = _places(run, batches, steps)
    if 0 <= step < run.phases[0].step:
        raise LoaderError(
            f"what step {step} had is not known any more: the size of steps has changed {len(run.phases)} times since",
            hint=f"the first that is known is step {run.phases[0].step}",
        )
    if step not in places:
        raise LoaderError(
            f"the journal does not know step {step}", hint="it knows steps that were delivered; see cache_dir="
        )
    phase, place = places[step]
    batch = batches[place.batch]
    ranks = _numbers(run, batch, step, phase, place, steps)
    own = ranks[run.settings.rank] if phase.ranks == run.settings.world_size else np.concatenate(ranks)
    return [
        RowOrigin(
            row,
            run.name,
            int(number),
            (Span(run.name, int(number), 0, int(batch.tokens[number]), str(batch.rollout_ids[number])),),
        )
        for row, number in enumerate(own)
    ]


def steps_of(rollout: Id, run: FeedRun, steps: StepSettings) -> list[int]:
    """The steps that a rollout was in, on any rank, as far back as the sizes of steps are known."""
    batches = recorded(run)
    found = []
    for step, (phase, place) in sorted(_places(run, batches, steps).items()):
        batch = batches[place.batch]
        if rollout in batch.rollout_ids:
            numbers = np.concatenate(_numbers(run, batch, step, phase, place, steps))
            found += [step] if rollout in [batch.rollout_ids[number] for number in numbers] else []
    return found
