"""What stages take over from others that ended in the middle: the place where the run stands, and what was known ahead
of that. Everything happens again that the others had done ahead.

In a forked child the others are at work in the parent, which also writes the files of the run; the child makes its own
stages when it is asked for a batch, and remembers in memory. In the same process they have failed.
"""

from __future__ import annotations

from millstream.errors import LoaderError
from millstream.live import Entrance, Loss, Mirror
from millstream.loaders.self_play.entered import Entered
from millstream.loaders.self_play.entrance import Entrances
from millstream.loaders.self_play.journal import RunJournal


class Inheritance:
    """Nothing, in a process that was not forked and whose stages have not failed.

    Args:
        led: Whether the ranks of the run do what the first one does.
    """

    def __init__(self, *, led: bool) -> None:
        self._led, self._is_forked = led, False
        self.refuse()

    def refuse(self) -> None:
        """The run goes elsewhere, or begins an epoch: it has no past there."""
        self.is_due = False
        """Whether there is something to take over."""
        self._journal: RunJournal | None = None
        """That of a parent."""
        self._own: RunJournal | None = None
        """That of stages that have failed."""
        self.lost: list[Loss] = []
        """What the journal says to be lost."""

    def fall(self, journal: RunJournal | None, *, at_work: bool) -> None:
        """This process was forked from one that writes a journal, and whose stages were at work, or not."""
        self._is_forked, self._journal = True, journal or self._journal
        self.is_due = self.is_due or at_work or self._journal is not None

    def fail(self, journal: RunJournal) -> None:
        """The stages of this process have failed, which wrote this journal."""
        self.is_due, self._own = True, journal

    def entrance(self, mirror: Mirror, entered: Entered, entrances: Entrances, epoch: int) -> Entrance | None:
        """What lets sources in from where the run stands; None: whatever did so before."""
        if self._is_forked and self._led:
            raise LoaderError(
                "the ranks of this run do what rank 0 says, and a forked process is none of them",
                hint="make another loader in this process, with a cache_dir= of its own",
            )
        if not self.is_due:
            return None
        ahead, own = mirror.go_back(), self._own
        if self._journal is not None:
            self.lost = self._journal.losses(epoch)
        journal = own if own is not None and own.is_told else self._journal
        if journal is not None:
            before, ahead, entries = journal.past(mirror.place, epoch)
            entered.learn(entries, before)
        if own is not None:
            own.go_back(mirror.place)
        before = entered.go_back(mirror.window.total)
        self.is_due, self._journal, self._own = False, None, None
        return entrances.again(epoch, before, ahead)
