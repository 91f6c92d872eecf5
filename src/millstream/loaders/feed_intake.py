"""From a feed to rollout batches: what comes is let in until a batch can be cut, and that is written down.

Ctrl-C may come at any line: who goes on afterwards finds each arrival let in or still in line, and each cut kept.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any

import numpy as np

from millstream.admission import Admission, Cut, JournaledAdmission
from millstream.errors import ClosedError, MillstreamError, WaitTimeout
from millstream.feeds import Control, Feed, MemoryFeed
from millstream.feeds.feed import Cursor
from millstream.loaders.feed_frontier import Frontier, Loaded
from millstream.loaders.feed_line import FeedLine
from millstream.rollouts import RolloutBlock
from millstream.rollouts.faults import shown
from millstream.stages.lifetime import defer_sigint
from millstream.stages.wait import checked_timeout

log = logging.getLogger("millstream.loaders")
PATIENCE_S = 0.5
"""How long a feed is waited for at a time: who closes the loader meanwhile waits as long."""
TELL_AGAIN_S = 0.2
"""Between two words to producers about the same version."""
FOLLOW_S = 0.01
"""Between two looks for what the rank that leads has written."""


class Intake:
    """The rollout batch that is trained on, and what waits behind it.

    Args:
        feed: Brings rollouts.
        frontier: Makes what decides, and writes down what it does.
        timeout_s: How long a rollout batch is waited for; None: for ever.
    """

    def __init__(self, feed: Feed, frontier: Frontier, timeout_s: float | None) -> None:
        self.feed, self.frontier, self._timeout_s = feed, frontier, checked_timeout(timeout_s)
        self._begun = self.closed = False
        self._first = dict(feed.cursor)
        self._stand(frontier.begin(), feed.cursor)

    def _stand(self, decide: Admission | JournaledAdmission, cursor: Cursor, cut: Cut | None = None) -> None:
        self.decide, self._line = decide, FeedLine(self.feed, cursor)
        self._cut, self._is_written = cut, cut is not None
        self._told = Control(-1), 0.0
        """The last word to producers, and when the next one may follow."""

    # Cuts

    def cut(self, batch: int, policy_version: int) -> Cut:
        """The rollout batch of a number, as soon as it can be cut; it is kept until it is `used_up`.

        Admission has let go of it: where it cannot be written down, that is tried again.
        """
        return self._written(self._next_cut(batch, policy_version) if self._cut is None else self._cut)

    def _written(self, cut: Cut) -> Cut:
        if not self._is_written:
            self._keep_up()
            with defer_sigint():
                self.frontier.write(cut, self._line.cursor)
                self._is_written = True
        return cut

    def used_up(self) -> None:
        """The present rollout batch is asked for no more."""
        self._cut = None

    def _begin(self) -> None:
        if not self._begun:
            with defer_sigint():
                self.frontier.start()
                self._begun = True

    def _next_cut(self, batch: int, policy_version: int) -> Cut:
        """Wait until a rollout batch can be cut."""
        self._begin()
        self.tell(policy_version)
        began = time.monotonic()
        while not self.closed:
            now, ended = time.monotonic(), self._line.ended
            with defer_sigint():
                cut = self.decide.cut(batch, policy_version, now, ended=ended)
                self._cut, self._is_written = cut, False
            if cut is not None:
                return cut
            if isinstance(self.decide, Admission) and ended:
                with defer_sigint():
                    self.frontier.end(batch, policy_version)
            if ended if isinstance(self.decide, Admission) else self.decide.ended:
                raise FeedEnded(
                    "the feed has ended: its producers closed it, and everything was trained on",
                    hint="`for batch in loader` ends here by itself",
                )
            if self._timeout_s is not None and now - began > self._timeout_s:
                away = getattr(self.feed, "away", None)
                raise WaitTimeout(
                    f"no rollout batch came in {self._timeout_s:g} s: {away or self.decide.waiting_for()}",
                    hint="see whether producers live; group_timeout_s lets incomplete groups go",
                )
            self._receive()
            self.tell(policy_version)
        raise ClosedError("this loader was closed", hint="make a new one and load the last committed state")

    def _receive(self) -> None:
        """Let in what has come."""
        if isinstance(self.decide, JournaledAdmission) and self.decide.full:
            time.sleep(FOLLOW_S)
            return
        if not self._line:
            self._line.receive(PATIENCE_S)
        while self._line and not self.decide.full:
            self._let_in()
        if isinstance(self.feed, MemoryFeed) and not self.frontier.saved:
            self.feed.release(self._line.cursor)  # nobody has a state that could ask for it again

    def _let_in(self) -> None:
        self._line.let_in(self._arrive)

    def _arrive(self, block: RolloutBlock) -> None:
        """Let rollouts in. Those that looking at fails are set aside: the feed would give them again to every run."""
        try:
            self.decide.arrive(block, time.monotonic())
        except MillstreamError:
            raise
        except Exception as error:
            odd = [row for row in range(len(block)) if not self._can_look(block.select([row]))]
            if not odd:
                raise
            names = ", ".join(shown(block.rows["rollout_id"][row]) for row in odd[:3])
            log.warning("%d rollouts are left out, such as %s: %s", len(odd), names, shown(error))
            self.decide.arrive(block.select(np.setdiff1d(np.arange(len(block)), odd)), time.monotonic())
            self.decide.set_aside(block.select(odd))
            if isinstance(self.decide, Admission):
                self.frontier.keep_aside(block.select(odd))

    def _can_look(self, block: RolloutBlock) -> bool:
        try:
            self.decide.look(block)
        except MillstreamError:  # it is refused in an orderly way
            pass
        except Exception:
            return False
        return True

    def _keep_up(self) -> None:
        """Let in what the rank that leads had let in: the feed may let go of it when a state behind it is committed."""
        if not isinstance(self.decide, JournaledAdmission) or self.frontier.replays or not self.decide.received:
            return
        while self._line.cursor != self.decide.received:
            if not self._line:
                self._line.receive(0)
            if not self._line:
                return
            self._let_in()

    # Producers

    def tell(self, policy_version: int) -> None:
        """Tell producers what is wanted, if they have not heard it: at once of a new version, else now and then."""
        if not isinstance(self.decide, Admission) or not self._begun:
            return
        wanted, now = self.decide.wanted(), time.monotonic()
        until = None if wanted is None else self.decide.begun + wanted
        word = Control(policy_version, wanted, until, closed=self.closed)
        before, again = self._told
        news = word.policy_version != before.policy_version or word.closed
        if word == before or (now < again and not news):
            return
        self.feed.tell(word)
        self._told = word, now + TELL_AGAIN_S

    @property
    def counters(self) -> dict[str, int]:
        """What became of everything that came in."""
        feed = {f"feed_{name}": count for name, count in self.feed.counters().items()}
        return {**feed, **(self.decide.counters if isinstance(self.decide, Admission) else {})}

    def close(self, policy_version: int) -> None:
        """Wait no longer, tell producers, and let go of the feed and the journal."""
        already, self.closed = self.closed, True
        if already:
            return
        try:
            with suppress(MillstreamError):  # who closes cannot mend a feed that is gone
                self.tell(policy_version)
        finally:
            self.feed.close()
            self.frontier.close()

    # State

    def restart(self) -> None:
        """Stand at the beginning."""
        if self._begun:
            self.feed.seek(self._first)
            self.frontier.close()
        self._begun = False
        self._stand(self.frontier.begin(), self.feed.cursor)

    def save(self, decide: Admission) -> dict[str, Any]:
        """Where the feed stands, and where everything lies that came before and is not used up."""
        self._begin()
        present = [] if self._cut is None else [self._written(self._cut)]
        return {"feed": dict(self._line.cursor), **self.frontier.save(decide.state(), present)}

    def resume(self, loaded: Loaded, cursor: Cursor) -> None:
        """Stand where a state was saved, or change nothing."""
        before = self.feed.cursor
        self.feed.seek(cursor)
        try:
            self.frontier.go_on(loaded)
        except BaseException:
            self.feed.seek(before)
            raise
        self._begun = True
        self._stand(loaded.decide, cursor, loaded.cut)


class FeedEnded(ClosedError):  # noqa: N818 - reads as a claim
    """A feed has ended, and everything in it was trained on."""
