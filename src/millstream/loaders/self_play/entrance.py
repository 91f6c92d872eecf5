"""Who decides which games enter a run: the folder, or the first rank; and what it does when a run is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.errors import LoaderError
from millstream.live import (
    CHANGES,
    EVER,
    AsItWas,
    AsLed,
    AsTheyCome,
    AsWritten,
    AtOnce,
    Entrance,
    Event,
    Leads,
    unpacked,
)
from millstream.loaders.self_play.journal import RunJournal
from millstream.stages import Deadline
from millstream.tensors import Ranks


class Entrances:
    """The entrances of a run.

    Args:
        journal: Where it is written down what entered.
        watch: Whether sources come while it runs.
        follows: Whether another rank decides.
    """

    def __init__(self, journal: RunJournal, *, watch: bool, follows: bool) -> None:
        self._journal, self._watch, self._follows = journal, watch, follows

    def first(self, epoch: int) -> Entrance:
        """When a run or an epoch begins."""
        return self._led(epoch) if self._follows else self._promising(AsTheyCome())

    def again(self, epoch: int, before: Sequence[Event], behind: Sequence[Event]) -> Entrance:
        """When a run is gone on with: what had happened in the epoch at its state, and what happened then."""
        promised = max((event.chunks for event in before if event.kind == "until"), default=0)
        if self._follows:
            return self._led(epoch, promised, behind)
        events = (*before, *behind)
        if any(event.chunks == EVER for event in events if event.kind == "until"):
            return AsItWas(behind, AsWritten(()))
        return AsItWas(behind, self._promising(AsTheyCome(_seen(events), leave=self._watch)), promised)

    def _promising(self, then: Entrance) -> Entrance:
        return Leads(then) if self._watch else AtOnce(then)

    def _led(self, epoch: int, promised: int = 0, before: Sequence[Event] = ()) -> Entrance:
        begun = self._journal.has_begun if self._watch else self._begun_in_time()
        return AsLed(lambda: self._journal.heard(epoch), begun, promised, before)

    def _begun_in_time(self) -> Callable[[], bool]:
        """Whether the first rank has begun its pass; raises LoaderError if it has not for as long as ranks wait for
        each other elsewhere."""
        deadline: Deadline | None = None

        def has_begun() -> bool:
            nonlocal deadline
            deadline = deadline or Deadline(Ranks.PATIENCE_S)
            if not self._journal.has_begun() and deadline.is_over:
                raise LoaderError(
                    f"rank 0 has begun no run in {self._journal.folder} after {Ranks.PATIENCE_S:g} s",
                    hint="start all ranks, with one cache_dir= that they share; rank 0 begins with its first batch",
                )
            return self._journal.has_begun()

        return has_begun


def _seen(events: Sequence[Event]) -> set[int] | None:
    """The marks of files that entered, or were left out at first, by all that happened; None: nothing did."""
    last = {event.name: event for event in events if event.kind in CHANGES}
    entered = {event.source.mark for event in last.values() if event.kind == "enter"}
    older = (unpacked(event.stamp) for event in events if event.kind == "floor")
    return entered.union(*older) if events else None
