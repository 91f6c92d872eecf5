"""How a run begins: which policy admits games, and what it takes over from an earlier run or from failed stages.

`AdmissionPolicies` chooses the policy for a start and for a resume. `Takeover` is for a forked child, whose parent
keeps the stages and the files, and for stages that failed: others begin where the run stands and repeat their work.
`Replay` makes an earlier run again from its journal, over the same files, with the same settings. It ends with the last
promise of that journal: what came after it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from millstream.errors import LoaderError, StateError, StoreError
from millstream.selfplay.admission import (
    EVER,
    AdmissionPolicy,
    FollowerPolicy,
    LeaderPolicy,
    LivePolicy,
    ReplayPolicy,
    ResumedPolicy,
    SnapshotPolicy,
)
from millstream.selfplay.delivered_state import DeliveredState
from millstream.selfplay.events import CHANGES, Event, Loss, is_loss, unpacked
from millstream.selfplay.journal import JOURNAL, START, Facts, RunJournal, read_losses, said_of
from millstream.selfplay.run_files import SourceHistory
from millstream.stages import Deadline
from millstream.storage import LogReader
from millstream.tensors import Ranks


class AdmissionPolicies:
    """The entrances of a run.

    Args:
        journal: Where it is written down what entered.
        watch: Whether sources come while it runs.
        follows: Whether another rank decides.
    """

    def __init__(self, journal: RunJournal, *, watch: bool, follows: bool) -> None:
        self._journal, self._watch, self._follows = journal, watch, follows

    def first(self, epoch: int) -> AdmissionPolicy:
        """When a run or an epoch begins."""
        return self._led(epoch) if self._follows else self._promising(LivePolicy())

    def on_resume(self, epoch: int, before: Sequence[Event], behind: Sequence[Event]) -> AdmissionPolicy:
        """When a run resumes: what had happened in the epoch at its state, and what happened then."""
        promised = max((event.chunks for event in before if event.kind == "until"), default=0)
        if self._follows:
            return self._led(epoch, promised, behind)
        events = (*before, *behind)
        if any(event.chunks == EVER for event in events if event.kind == "until"):
            return ResumedPolicy(behind, ReplayPolicy(()))
        return ResumedPolicy(behind, self._promising(LivePolicy(_seen(events), leave=self._watch)), promised)

    def _promising(self, then: AdmissionPolicy) -> AdmissionPolicy:
        return LeaderPolicy(then) if self._watch else SnapshotPolicy(then)

    def _led(self, epoch: int, promised: int = 0, before: Sequence[Event] = ()) -> AdmissionPolicy:
        begun = self._journal.has_begun if self._watch else self._begun_in_time()
        return FollowerPolicy(lambda: self._journal.heard(epoch), begun, promised, before)

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


class Takeover:
    """Nothing, in a process that was not forked and whose stages have not failed.

    Args:
        led: Whether the ranks of the run do what the first one does.
    """

    def __init__(self, *, led: bool) -> None:
        self._led, self._is_forked = led, False
        self.reset()

    def reset(self) -> None:
        """The run goes elsewhere, or begins an epoch: it has no past there."""
        self.is_due = False
        """Whether there is something to take over."""
        self._journal: RunJournal | None = None
        """That of a parent."""
        self._own: RunJournal | None = None
        """That of stages that have failed."""
        self.lost: list[Loss] = []
        """What the journal says to be lost."""

    def after_fork(self, journal: RunJournal | None, *, at_work: bool) -> None:
        """This process was forked from one that writes a journal, and whose stages were at work, or not."""
        self._is_forked, self._journal = True, journal or self._journal
        self.is_due = self.is_due or at_work or self._journal is not None

    def after_failure(self, journal: RunJournal) -> None:
        """The stages of this process have failed, which wrote this journal."""
        self.is_due, self._own = True, journal

    def entrance(
        self, mirror: DeliveredState, entered: SourceHistory, entrances: AdmissionPolicies, epoch: int
    ) -> AdmissionPolicy | None:
        """What lets sources in from where the run stands; None: whatever did so before."""
        if self._is_forked and self._led:
            raise LoaderError(
                "the ranks of this run do what rank 0 says, and a forked process is none of them",
                hint="make another loader in this process, with a cache_dir= of its own",
            )
        if not self.is_due:
            return None
        ahead, own = mirror.rewind(), self._own
        if self._journal is not None:
            self.lost = self._journal.losses(epoch)
        journal = own if own is not None and own.is_told else self._journal
        if journal is not None:
            before, ahead, entries = journal.past(mirror.place, epoch)
            entered.learn(entries, before)
        if own is not None:
            own.rewind(mirror.place)
        before = entered.rewind(mirror.window.total)
        self.is_due, self._journal, self._own = False, None, None
        return entrances.on_resume(epoch, before, ahead)


class Replay:
    """A journal to do the same by.

    Args:
        journal: Its file.
        facts: The settings that decide which rows come; they must be those of the run.
        cache_dir: Where the new run is written, if anywhere.
    """

    def __init__(self, journal: Path, facts: Facts, cache_dir: Path | None) -> None:
        self._journal = journal
        if cache_dir is not None and journal.resolve() == (cache_dir / JOURNAL).resolve():
            raise LoaderError(
                f"replay={str(journal)!r} lies in cache_dir={str(cache_dir)!r}, where a new run would be written",
                hint="pass another cache_dir, or none",
            )
        head = LogReader(journal, START).read()
        if head is None or not isinstance(head.get("facts"), dict):
            raise StoreError(
                f"{journal}: this is not the journal of a self-play run",
                hint=f"pass the {JOURNAL} of a cache_dir",
            )
        _compare(journal, head["facts"], facts)

    def losses(self, epoch: int) -> list[Loss]:
        """All that was lost in an epoch."""
        return read_losses(self._journal, epoch)

    def entrance(self, epoch: int, draws: int, *, watch: bool) -> ReplayPolicy:
        """What enters from a draw of an epoch on."""
        events = [Event.from_json(said) for said in said_of(self._journal, epoch) if not is_loss(said)]
        if not events:
            raise self.ended()
        until = max((event.chunks for event in events if event.kind == "until"), default=0)
        return ReplayPolicy((event for event in events if event.draw >= draws), until if watch else None)

    def ended(self) -> LoaderError:
        """What is said where the journal ends."""
        return LoaderError(
            f"{self._journal}: the journal ends here, and what came then is unknown",
            hint="a replay has every step of its run, and those that the stages were ahead of its trainer",
        )

    def missing(self, name: str) -> StateError:
        """What is said of a file that is not there."""
        return StateError(
            f"{name} is gone, and the journal has games of it",
            hint="a run is replayed over the files that it was made of",
        )


def _compare(journal: Path, found: Facts, mine: Facts) -> None:
    for key, value in json.loads(json.dumps(dict(mine))).items():
        if found.get(key) != value:
            raise LoaderError(
                f"{journal}: the run had {key}={found.get(key)!r}, this loader has {key}={value!r}",
                hint="a run is replayed with the settings that it was made with",
            )
