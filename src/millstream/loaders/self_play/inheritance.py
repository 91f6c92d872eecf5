"""What a forked child takes over from its parent: the place where the run stands, and what was known ahead of that.

The stages are at work in the parent, which also writes the files of the run. The child makes its own stages when it is
asked for a batch, lets everything happen again that the parent's had done ahead, and remembers in memory.
"""

from __future__ import annotations

from millstream.errors import LoaderError
from millstream.live.entrance import Entrance
from millstream.live.losses import Loss
from millstream.live.mirror import Mirror
from millstream.loaders.self_play.entered import Entered
from millstream.loaders.self_play.entrance import Entrances
from millstream.loaders.self_play.journal import RunJournal


class Inheritance:
    """Nothing, in a process that was not forked.

    Args:
        led: Whether the ranks of the run do what the first one does.
    """

    def __init__(self, *, led: bool) -> None:
        self._led, self._is_forked = led, False
        self.refuse()

    def refuse(self) -> None:
        """The run goes elsewhere, or begins an epoch: it has no past there."""
        self._is_due = False
        self._journal: RunJournal | None = None
        self.lost: list[Loss] = []
        """What the journal says to be lost."""

    def fall(self, journal: RunJournal | None, *, at_work: bool) -> None:
        """This process was forked from one that writes a journal, and whose stages were at work, or not."""
        self._is_forked, self._journal = True, journal or self._journal
        self._is_due = self._is_due or at_work or self._journal is not None

    def entrance(self, mirror: Mirror, entered: Entered, entrances: Entrances, epoch: int) -> Entrance | None:
        """What lets sources in from where the run stands; None: whatever did so before."""
        if self._is_forked and self._led:
            raise LoaderError(
                "the ranks of this run do what rank 0 says, and a forked process is none of them",
                hint="make another loader in this process, with a cache_dir= of its own",
            )
        if not self._is_due:
            return None
        ahead = mirror.go_back()
        if self._journal is not None:
            before, ahead, entries = self._journal.past(mirror.place, epoch)
            self.lost = self._journal.losses(epoch)
            entered.learn(entries, before)
        before = entered.go_back(mirror.window.total)
        self._is_due, self._journal = False, None
        return entrances.again(epoch, before, ahead)
