"""The sliding window: which games are in it, which ones this pass has not used yet, and how often each was used.

Deterministic, without files: what comes depends on the seed, on what entered and left, and at which draw. The same
events on another window give the same games, so a run can be replayed and its past explained.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import astuple, dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, StateError
from millstream.order import draw_fraction, source_key
from millstream.selfplay.chunk_feed import FileOrder, StreamShuffler
from millstream.selfplay.spans import SpanCounts, joined, without

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class WindowEntry:
    """A source in the window: its chunks have the numbers from `first` to `stop` - 1."""

    name: str
    first: int
    count: int
    stamp: str = ""
    """Tells its file from another one of the same name."""

    @classmethod
    def of(cls, told: Sequence[Any]) -> WindowEntry:
        """Read it back from a state."""
        name, first, count, stamp = told
        return cls(str(name), int(first), int(count), str(stamp))

    @property
    def stop(self) -> int:
        """The number behind its last chunk."""
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Drawn:
    """A game that is to be used next: its number, the source that has it, and how often it was used before."""

    number: int
    chunk: int
    use: int
    entry: WindowEntry

    @property
    def index(self) -> int:
        """Its place in its source."""
        return self.chunk - self.entry.first


Weigh = Callable[[WindowEntry, int], float]


@dataclass(frozen=True)
class Acceptance:
    """Hanse sampling: a game is taken with the probability (its weight / the largest weight so far) ** gamma.

    One whose weight is unknown, since its file is gone, weighs infinitely much: it is taken, and found to be lost.
    """

    weigh: Weigh
    gamma: float = 1.0
    prove: Weigh | None = None
    """Looks at a game that would be the heaviest so far: one that says more than it has must not make others rare."""
    unseen: Collection[int] = ()
    """Draws at which it was so when the run was made first."""


class Window:
    """The newest `num_chunks` chunks.

    >>> window = Window(num_chunks=3, seed=1)
    >>> window.enter("a.tar", 2), window.enter("b.tar", 2)
    ([], [])
    >>> [window.draw().chunk for _ in range(3)], window.passes
    ([2, 3, 1], 0)
    >>> window.enter("c.tar", 3)
    [WindowEntry(name='a.tar', first=0, count=2, stamp=''), WindowEntry(name='b.tar', first=2, count=2, stamp='')]

    Args:
        num_chunks: How many; None: all.
        seed: Of the order.
        acceptance: Which of the drawn games are used; None: all.
        endless: When each game was given, begin again; else `draw` gives None then.
        first_use: How often each game was used before it entered.
        shuffle: False: in the order in which games entered.
    """

    def __init__(
        self,
        num_chunks: int | None,
        seed: int,
        *,
        acceptance: Acceptance | None = None,
        endless: bool = True,
        first_use: int = 0,
        shuffle: bool = True,
    ) -> None:
        is_number = hasattr(num_chunks, "__index__") and not isinstance(num_chunks, bool)
        if num_chunks is not None and (not is_number or num_chunks < 1):
            raise LoaderError(
                f"num_chunks={num_chunks!r}: a window has 1 chunk or more", hint="pass a whole number; None takes all"
            )
        self.num_chunks, self.endless, self.acceptance = num_chunks, endless, acceptance
        self._shuffler = (StreamShuffler if shuffle else FileOrder)(seed, "chunk set")
        self._chance_key = source_key(seed, "chunk set acceptance")
        self._entries: list[WindowEntry] = []
        self._left = 0
        """Entries at the front that have left: they are forgotten many at a time."""
        self._holes: list[tuple[int, int]] = []
        """Chunks in the range whose source is gone, lowest first; two never touch."""
        self._uses, self._first_use = SpanCounts(), first_use
        self.passes = self.rejected = 0
        self.heaviest = 0.0

    @property
    def draws(self) -> int:
        """How many draws were made; what enters or leaves does so between two of them."""
        return self._shuffler.draws

    @property
    def entries(self) -> list[WindowEntry]:
        """The sources in the window, oldest first."""
        return self._entries[self._left :]

    @property
    def lower(self) -> int:
        """The number of the oldest chunk that may be drawn."""
        return self._shuffler.lower

    @property
    def total(self) -> int:
        """How many chunks have entered so far: the number of the next one."""
        return self._shuffler.upper

    def __len__(self) -> int:
        """How many chunks are in it."""
        lower = self.lower
        return sum(entry.stop - max(entry.first, lower) for entry in self.entries)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds for its chunks."""
        return self._shuffler.nbytes + self._uses.nbytes

    def enter(self, name: str, count: int, stamp: str = "") -> list[WindowEntry]:
        """Take a source in, as the newest; gives those that have left for it."""
        entry = WindowEntry(name, self.total, count, stamp)
        self._entries.append(entry)
        self._shuffler.extend(entry.stop)
        self._uses.extend(entry.stop)
        if self.num_chunks is not None:
            self._shuffler.advance(max(self.lower, entry.stop - self.num_chunks))
        return self._drop_old()

    def remove(self, names: Collection[str]) -> list[WindowEntry]:
        """Take sources of these names out: their files are gone. Gives all that have left by that."""
        gone, kept = list[WindowEntry](), list[WindowEntry]()
        for entry in self.entries:
            (gone if entry.name in names else kept).append(entry)
        self._entries, self._left = kept, 0
        holes = joined((entry.first, entry.stop) for entry in gone)
        self._shuffler.discard(holes)
        self._holes = joined([*self._holes, *holes])
        if self.num_chunks is None and self._holes and self._holes[0][0] <= self.lower:
            self._shuffler.skip_to(self._holes[0][1])
        return gone + self._drop_old()

    def draw(self) -> Drawn | None:
        """The next game, or None if there is none, or none that is accepted in a whole pass."""
        begun = 0
        while True:
            number = self._shuffler.draw()
            if number is None:
                if not self.endless or begun == 2 or not len(self):
                    return None
                self.begin_pass()
                begun += 1
                continue
            entry = self.find(number)
            if not self._accepts(entry, number):
                self.rejected += 1
                continue
            return Drawn(self.draws, number, self._first_use + self._uses.add(number), entry)

    def begin_pass(self) -> None:
        """Every game may be given again."""
        self._shuffler.reset(self._spans())
        self.passes += 1

    def _spans(self) -> list[tuple[int, int]]:
        """The chunks in it."""
        return without(self.lower, self.total, self._holes)

    def find(self, chunk: int) -> WindowEntry:
        """The source of a chunk in the window."""
        return self._entries[bisect_right(self._entries, chunk, lo=self._left, key=lambda entry: entry.first) - 1]

    def _accepts(self, entry: WindowEntry, chunk: int) -> bool:
        if self.acceptance is None:
            return True
        if self.draws in self.acceptance.unseen:
            return True
        weight = self.acceptance.weigh(entry, chunk - entry.first)
        if weight > self.heaviest and self.acceptance.prove is not None:
            weight = self.acceptance.prove(entry, chunk - entry.first)
        if weight == inf:
            return True
        self.heaviest = max(self.heaviest, weight)
        if not weight > 0:
            return False
        chance = (weight / self.heaviest) ** self.acceptance.gamma
        return bool(draw_fraction(self._chance_key, self.draws) < chance)

    def _drop_old(self) -> list[WindowEntry]:
        before = self._left
        while self._left < len(self._entries) and self._entries[self._left].stop <= self.lower:
            self._left += 1
        left = self._entries[before : self._left]
        if self._left > len(self._entries) // 2:
            self._entries, self._left = self._entries[self._left :], 0
        self._holes = [hole for hole in self._holes if hole[1] > self.lower]
        self._uses.keep(self._spans())
        return left

    def copy(self) -> Window:
        """Another one that stands here."""
        other = copy(self)
        other._entries, other._left = self.entries, 0
        other._shuffler, other._uses = self._shuffler.copy(), self._uses.copy()
        return other

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """All that decides what comes: facts as JSON, and arrays of the size of the window."""
        shuffler = self._shuffler
        facts = {
            "entries": [list(astuple(entry)) for entry in self.entries],
            "holes": [list(hole) for hole in self._holes],
            "range": [shuffler.lower, shuffler.upper, shuffler.draws, shuffler.advanced],
            "passes": self.passes,
            "rejected": self.rejected,
            "heaviest": self.heaviest,
        }
        return facts, {"unseen": shuffler.unseen(), "uses": self._uses.values(self._spans())}

    def load(self, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Stand where another window stood."""
        try:
            entries = [WindowEntry.of(told) for told in facts["entries"]]
            lower, upper, draws, advanced = (int(each) for each in facts["range"])
            holes = [(int(first), int(stop)) for first, stop in facts["holes"]]
            passes, rejected = (int(facts[key]) for key in ("passes", "rejected"))
            uses, unseen, heaviest = arrays["uses"], arrays["unseen"], float(facts["heaviest"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the window of the state cannot be read: {error}", hint="take another state") from None
        spans = without(lower, upper, holes)
        if len(uses) != sum(stop - start for start, stop in spans) or (len(unseen) and int(unseen.max()) >= upper):
            raise StateError("the window of the state does not fit together", hint="take another state")
        self._shuffler.restore(unseen, lower, upper, draws, advanced)
        self._entries, self._left, self._holes = entries, 0, holes
        self._uses = SpanCounts([*spans, (upper, upper)], uses.astype(np.uint32))
        self.passes, self.rejected, self.heaviest = passes, rejected, heaviest
