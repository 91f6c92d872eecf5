"""A mixture in lanes: which source fills a sample of the run, and as which of that source's samples. Pure arithmetic.

Sample k of the run belongs to lane k mod L. The n-th time that a lane takes a source (from 0), it takes sample
n * L + lane of that source. So whoever owns a lane of the run owns the same lane of every source, and nothing else.

The sources stand in a table of M places, shuffled anew every L blocks; block by block the run goes through the table,
and after every lcm(L, M) samples one place further. So each block of M samples has each source exactly as often as its
quota says, and so has each lane in every M of its own samples: counting is arithmetic, and nothing is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from millstream._core import Course, OrderSpec, Plan, derive
from millstream.errors import OrderError
from millstream.order.phase import LONGEST_RUN
from millstream.order.shuffle import source_key

Numbers = npt.NDArray[np.int64]
MOST_TABLE = 2**20
"""Places of a table in all lanes: it is made again after so many samples, and takes 8 bytes for each."""


@dataclass(frozen=True)
class _Table:
    """The sources of L * M samples, by lane and place; and how often the lane took the same one before."""

    sources: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]


@dataclass(frozen=True)
class LaneMixture:
    """Sources by number, each with its quota of a block, mixed from sample `start` of the run on.

    >>> mixture = LaneMixture(lanes=2, quotas=(3, 1), seed=0)
    >>> sources, samples = mixture.at(range(8))
    >>> sources.tolist(), samples.tolist()
    ([0, 0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 3, 2, 1, 4, 5])
    >>> mixture.run_sample(source=0, sample=2)
    4
    """

    lanes: int
    quotas: tuple[int, ...]
    seed: int
    start: int = 0

    def __post_init__(self) -> None:
        if self.places * self.lanes > MOST_TABLE:
            raise OrderError(
                f"a mix block of {self.places} places in {self.lanes} lanes is too large",
                hint=f"pass mix_block={MOST_TABLE // self.lanes} or less",
            )

    @property
    def places(self) -> int:
        """Places of a block."""
        return sum(self.quotas)

    @property
    def _origin(self) -> int:
        """The sample at which lane 0 began its first place."""
        return self.start // self.lanes * self.lanes

    def at(self, samples: Sequence[int] | Numbers) -> tuple[Numbers, Numbers]:
        """Name source and sample of it for samples of the run, counted since the mixture began."""
        places, lanes = np.divmod(np.asarray(samples, np.int64) - self._origin, self.lanes)
        numbers, inside = np.divmod(places, self.places)
        sources, times = np.empty_like(places), np.empty_like(places)
        quotas = np.array(self.quotas)
        for number in set(numbers.tolist()):
            here = numbers == number
            table = _table(self, number)
            sources[here] = table.sources[lanes[here], inside[here]]
            times[here] = table.ranks[lanes[here], inside[here]] + number * quotas[sources[here]]
        return sources, (times - self._first_times[sources, lanes]) * self.lanes + lanes

    def used(self, source: int, sample: int) -> Numbers:
        """How often each lane took a source before a sample of the run, since the mixture began."""
        used: Numbers = self._used(source, sample) - self._first_times[source]
        return used

    def run_sample(self, source: int, sample: int) -> int:
        """The sample of the run, from the mixture's beginning on, that is a given sample of a source."""
        times, lane = divmod(sample, self.lanes)
        number, rank = divmod(times + int(self._first_times[source, lane]), self.quotas[source])
        table = _table(self, number)
        place = int(np.flatnonzero((table.sources[lane] == source) & (table.ranks[lane] == rank))[0])
        return self._origin + (number * self.places + place) * self.lanes + lane

    @cached_property
    def _first_times(self) -> Numbers:
        """How often each lane would have taken each source before the mixture began: once, if its round was cut."""
        return np.array([self._used(source, self.start) for source in range(len(self.quotas))])

    def _used(self, source: int, sample: int) -> Numbers:
        """How often each lane took a source since the origin."""
        lanes = np.arange(self.lanes)
        taken = -(-(sample - self._origin - lanes) // self.lanes)  # places of each lane
        numbers, inside = np.divmod(np.maximum(taken, 0), self.places)
        used = numbers * self.quotas[source]
        for number in set(numbers.tolist()):
            before = np.arange(self.places) < inside[:, None]
            found = ((_table(self, number).sources == source) & before).sum(axis=1)
            used += np.where(numbers == number, found, 0)
        return used

    def _sources(self, number: int) -> npt.NDArray[np.int64]:
        """The sources of a table, in the order in which the run goes through it."""
        if len(self.quotas) == 1:
            return np.zeros(self.places, np.int64)
        in_order = OrderSpec("none", LONGEST_RUN)
        key = derive(source_key(self.seed, "\0mix in lanes"), self.start)
        sources, samples = np.empty((2, self.places), np.uint64)
        plan = Plan([Course(in_order, in_order) for _ in self.quotas], list(self.quotas), key)
        plan.rows(number * self.places, sources, samples)
        return sources.astype(np.int64)


@lru_cache(maxsize=4)
def _table(mixture: LaneMixture, number: int) -> _Table:
    lanes, places = mixture.lanes, mixture.places
    lane, place = np.arange(lanes)[:, None], np.arange(places)
    further = place // (places // math.gcd(lanes, places))
    sources = mixture._sources(number)[(place * lanes + lane + further) % places].astype(np.int32)
    ranks = np.empty_like(sources)
    for source in range(len(mixture.quotas)):
        own = sources == source
        ranks[own] = (np.cumsum(own, axis=1, dtype=np.int32) - 1)[own]
    return _Table(sources, ranks)
