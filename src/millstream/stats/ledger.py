"""Ledger: the counter of everything that is lost or changed on the way from a source to the trainer."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from millstream.errors import StateError

_NOTHING: Mapping[str, int] = MappingProxyType({})


class Ledger:
    """Counts by what became of something, by its source and by reason; from any thread.

    A road that runs ahead of the trainer counts at a place: of a draw, of a step. Such a count is pending until its
    place is settled. Public names of counts are `what:source:reason`, without what is empty.

    >>> ledger = Ledger("cut_tokens")
    >>> ledger.add("left_out", "not JSON", source="web")
    >>> for draw in (7, 3, 5):
    ...     ledger.add("cut_tokens", count=10, at=draw)
    >>> ledger.settle(5)
    >>> ledger.counts, ledger.unplaced
    ({'cut_tokens': 10, 'left_out:web:not JSON': 1}, Counter({'left_out:web:not JSON': 1, 'cut_tokens': 0}))

    Args:
        always: Names that `counts` has from the beginning, with 0.
    """

    def __init__(self, *always: str) -> None:
        self._always = always
        self._guard = threading.Lock()
        self.restart()

    def restart(self, saved: object = _NOTHING) -> None:
        """Continue from the counts of a state, or from nothing; what is pending is made, and counted, again."""
        begin = Counter({**dict.fromkeys(self._always, 0), **read_counts(saved)})
        with self._guard:
            self._unplaced, self._settled = begin, Counter[str]()
            self.pending = Counter[tuple[int, str]]()
            """Counts of what lies ahead of the trainer, by place and name."""

    def copy(self) -> Ledger:
        """The same counts, to be counted on apart."""
        ledger = Ledger(*self._always)
        with self._guard:
            ledger._unplaced, ledger._settled = self._unplaced.copy(), self._settled.copy()
            ledger.pending = self.pending.copy()
        return ledger

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def add(self, what: str, reason: str = "", count: int = 1, *, source: str = "", at: int | None = None) -> None:
        """Count something: for good, or at a place."""
        name = ":".join(filter(None, (what, source, reason)))
        with self._guard:
            if at is None:
                self._unplaced[name] += count
            else:
                self.pending[at, name] += count

    def add_all(self, what: str, reasons: Mapping[str, int], *, source: str = "") -> None:
        """Count for good by reason; a count of 0 is none."""
        for reason, count in sorted(reasons.items()):
            if count:
                self.add(what, reason, count, source=source)

    def settle(self, at: float = math.inf) -> None:
        """Everything before a place is delivered."""
        with self._guard:
            settled = self._settled.copy()
            ahead = Counter[tuple[int, str]]()
            for (place, name), count in self.pending.items():
                if place < at:
                    settled[name] += count
                else:
                    ahead[place, name] = count
            self._settled, self.pending = settled, ahead

    def forget(self) -> None:
        """What is pending is not delivered: making it again counts it again."""
        with self._guard:
            self.pending = Counter()

    @property
    def unplaced(self) -> Counter[str]:
        """What was counted for good, without a place."""
        with self._guard:
            return self._unplaced.copy()

    @property
    def counts(self) -> dict[str, int]:
        """The counts of what was delivered, by public name; for a state, too."""
        return dict(self.at(-math.inf))

    def at(self, place: float) -> Counter[str]:
        """What lies before a place, which is not before the last one that was settled."""
        with self._guard:
            found = self._unplaced.copy()
            found.update(self._settled)
            for (each, name), count in self.pending.items():
                if each < place:
                    found[name] += count
            return found

    def reasons(self, *whats: str, source: str = "") -> Counter[str]:
        """The counts of a source by reason alone, whatever of `whats` became of it.

        >>> ledger = Ledger()
        >>> ledger.add_all("bad", {"not JSON": 2})
        >>> ledger.add_all("dropped", {"too long": 1, "not JSON": 1})
        >>> ledger.reasons("bad", "dropped")
        Counter({'not JSON': 3, 'too long': 1})
        """
        counts, found = self.counts, Counter[str]()
        for what in whats:
            prefix = f"{what}:{source}:" if source else f"{what}:"
            found.update({name[len(prefix) :]: count for name, count in counts.items() if name.startswith(prefix)})
        return found


def read_counts(saved: object) -> dict[str, int]:
    """Counts of a state, in which nothing is trusted.

    >>> read_counts({"left_out:web:empty": -1})
    Traceback (most recent call last):
    millstream.errors.StateError: the state does not say what was left out
      hint: it was changed by hand or damaged
    """
    if not isinstance(saved, Mapping) or not all(
        isinstance(name, str) and type(count) is int and count >= 0 for name, count in saved.items()
    ):
        raise StateError("the state does not say what was left out", hint="it was changed by hand or damaged")
    return dict(saved)
