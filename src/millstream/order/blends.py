"""The mixtures that a run in lanes has had, one after another: sample of the run <-> sample of a source, by its name.

A source goes on where it stood, whatever its share was before, and wherever it was left out for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from millstream.errors import OrderError
from millstream.order.lanes import LaneMixture, Numbers

MOST_BLENDS = 64
"""How often sources or weights may change: each change is part of every state from then on."""


@dataclass(frozen=True)
class Blend:
    """From a sample of the run on, these sources share the places of a block."""

    start: int
    quotas: tuple[tuple[str, int], ...]
    """Of each source, in their order: the mixture depends on it."""

    @classmethod
    def of(cls, start: int, quotas: Mapping[str, int]) -> Blend:
        """Mix sources from a sample of the run on."""
        return cls(start, tuple(quotas.items()))

    @property
    def names(self) -> list[str]:
        """The sources in use."""
        return [name for name, _ in self.quotas]


@dataclass(frozen=True)
class Blends:
    """All mixtures of a run in lanes.

    >>> run = Blends(2, 0, (Blend.of(0, {"web": 1}),)).change(4, {"web": 1, "code": 1})
    >>> [(name, int(sample)) for name, sample in zip(*run.at([2, 3]))]
    [('web', 2), ('web', 3)]
    >>> sorted((name, int(sample)) for name, sample in zip(*run.at(range(4, 8))))
    [('code', 0), ('code', 1), ('web', 4), ('web', 5)]
    """

    lanes: int
    seed: int
    all: tuple[Blend, ...]

    def __post_init__(self) -> None:
        _ = self._mixtures  # what is impossible is refused now

    def change(self, sample: int, quotas: Mapping[str, int]) -> Blends:
        """Mix in another way from a sample on; what lay behind it is forgotten."""
        past = tuple(blend for blend in self.all if blend.start < sample)
        if past and past[-1].quotas == tuple(quotas.items()):  # also when a blend without samples lay in between
            return Blends(self.lanes, self.seed, past)
        if len(past) == MOST_BLENDS:
            raise OrderError(
                f"this run has changed its sources or weights {MOST_BLENDS} times",
                hint="go on with the weights that it has, or begin a new run",
            )
        return Blends(self.lanes, self.seed, (*past, Blend.of(sample, quotas)))

    def number_at(self, sample: int) -> int:
        """The number of the blend that a sample of the run belongs to."""
        return max(number for number, blend in enumerate(self.all) if blend.start <= sample)

    def at(self, samples: Sequence[int] | Numbers) -> tuple[list[str], Numbers]:
        """Name source and sample of it for samples of the run; all of one blend, as the samples of a step are."""
        if not len(samples):
            return [], np.empty(0, np.int64)
        number = self.number_at(int(samples[0]))
        sources, found = self._mixtures[number].at(samples)
        names = self.all[number].names
        before = np.array([self._before[number].get(name, self._nothing) for name in names])
        return [names[source] for source in sources.tolist()], found + before[sources, found % self.lanes] * self.lanes

    def taken(self, name: str, sample: int) -> Numbers:
        """How often each lane took a source before a sample of the run."""
        number = self.number_at(sample)
        blend, before = self.all[number], self._before[number].get(name, self._nothing)
        if name not in blend.names:
            return before
        return before + self._mixtures[number].used(blend.names.index(name), sample)

    def run_sample(self, name: str, sample: int) -> int | None:
        """The sample of the run that is a given sample of a source; None if none will be while the mixture lasts."""
        times, lane = divmod(sample, self.lanes)
        for number, blend in reversed(list(enumerate(self.all))):
            left = times - int(self._before[number].get(name, self._nothing)[lane])
            if left >= 0 and name in blend.names:
                return self._mixtures[number].run_sample(blend.names.index(name), left * self.lanes + lane)
        return None

    @property
    def _nothing(self) -> Numbers:
        return np.zeros(self.lanes, np.int64)

    @cached_property
    def _mixtures(self) -> list[LaneMixture]:
        return [
            LaneMixture(self.lanes, tuple(quota for _, quota in blend.quotas), self.seed, blend.start)
            for blend in self.all
        ]

    @cached_property
    def _before(self) -> list[dict[str, Numbers]]:
        """For each blend, how often each lane had taken each source when it began."""
        found: list[dict[str, Numbers]] = [{}]
        for mixture, (blend, following) in zip(self._mixtures, pairwise(self.all), strict=False):
            taken = dict(found[-1])
            for number, name in enumerate(blend.names):
                taken[name] = taken.get(name, self._nothing) + mixture.used(number, following.start)
            found.append(taken)
        return found
