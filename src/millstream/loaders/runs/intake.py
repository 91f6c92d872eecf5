"""From a feed to rollout batches: what comes is let in until a batch can be cut, and that is written down.

Safe under KeyboardInterrupt: each arrival is either let in or still in line, and a cut is never lost. The lock `moving`
is held where anything changes, never while the feed is waited for.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from millstream.admission import Admission, Cut, JournaledAdmission
from millstream.errors import ClosedError, MillstreamError, WaitTimeout
from millstream.feeds import Arrival, Control, Feed, MemoryFeed
from millstream.feeds.feed import Cursor
from millstream.loaders.runs.checkpoint import FeedCheckpoint, Loaded
from millstream.loaders.runs.run import Locks, RunEnded
from millstream.rollouts import RolloutBlock
from millstream.rollouts.faults import shown
from millstream.stages.lifetime import ForkLock, defer_sigint
from millstream.stages.wait import checked_timeout

log = logging.getLogger("millstream.loaders")
PATIENCE_S = 0.1
"""How long a feed is waited for at a time: what else is asked of the feed, or closes it, waits as long."""
TELL_AGAIN_S = 0.2
"""Between two words to producers about the same version."""
FOLLOW_S = 0.01
"""Between two looks for what the rank that leads has written."""


class FeedLine:
    """Arrivals of a feed, first in first out. What the line does not hold, the feed gives again."""

    def __init__(self, feed: Feed, cursor: Cursor) -> None:
        self._feed, self.cursor = feed, cursor
        """The place in the feed behind everything that was let in."""
        self._waiting: deque[Arrival] = deque()
        self._is_receiving = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def ended(self) -> bool:
        """Whether nothing waits, and nothing more comes."""
        return not self._waiting and not self._is_receiving and self._feed.ended

    def receive(self, timeout_s: float) -> None:
        """Put what has come in line. After an interruption the feed gives it again."""
        if self._is_receiving:
            self._feed.seek(self.cursor)
            self._waiting.clear()
        self._is_receiving = True
        self._waiting.extend(self._feed.receive(timeout_s))
        self._is_receiving = False

    def let_in(self, arrive: Callable[[RolloutBlock], None]) -> None:
        """Let in what is first in line, whole or not at all. What is refused stays: the place is that before it."""
        with defer_sigint():
            arrive(self._waiting[0].block)
            self.cursor = self._waiting.popleft().cursor


class Intake:
    """The rollout batch that is trained on, and what waits behind it.

    Args:
        feed: Brings rollouts.
        checkpoint: Makes what decides, and writes down what it does.
        timeout_s: How long a rollout batch is waited for; None: as long as it takes.
        locks: Of the loader.
    """

    def __init__(self, feed: Feed, checkpoint: FeedCheckpoint, timeout_s: float | None, locks: Locks) -> None:
        self.feed, self._checkpoint, self._timeout_s, self._locks = feed, checkpoint, checked_timeout(timeout_s), locks
        self._feed_lock = ForkLock()
        """Of what is asked of the feed: one thread at a time. It is taken last."""
        self._begun = self.closed = False
        self._first = dict(feed.cursor)
        self._stand(checkpoint.begin(), feed.cursor)

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
            with self._locks.moving, defer_sigint():
                self._checkpoint.write(cut, self._line.cursor)
                self._is_written = True
        return cut

    def used_up(self) -> None:
        """The present rollout batch is asked for no more."""
        self._cut = None

    def _begin(self) -> None:
        if not self._begun:
            with self._locks.moving, defer_sigint():
                self._checkpoint.start()
                self._begun = True

    def _next_cut(self, batch: int, policy_version: int) -> Cut:
        """Wait until a rollout batch can be cut."""
        self._begin()
        self.tell(policy_version)
        began = time.monotonic()
        while not self.closed:
            now, ended = time.monotonic(), self._line.ended
            with self._locks.moving, defer_sigint():
                cut = self.decide.cut(batch, policy_version, now, ended=ended)
                self._cut, self._is_written = cut, False
            if cut is not None:
                return cut
            if isinstance(self.decide, Admission) and ended:
                with self._locks.moving, defer_sigint():
                    self._checkpoint.end(batch, policy_version)
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
            with self._feed_lock:
                self._line.receive(PATIENCE_S)
        while self._line and not self.decide.full:
            self._let_in()
        with self._locks.moving:
            if isinstance(self.feed, MemoryFeed) and not self._checkpoint.saved:
                self.feed.release(self._line.cursor)  # no state could ask for it again

    def _let_in(self) -> None:
        with self._locks.moving:
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
                self._checkpoint.keep_aside(block.select(odd))

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
        if not isinstance(self.decide, JournaledAdmission) or self._checkpoint.replays or not self.decide.received:
            return
        while self._line.cursor != self.decide.received:
            if not self._line:
                with self._feed_lock:
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
        with self._feed_lock:
            self.feed.tell(word)
        self._told = word, now + TELL_AGAIN_S

    @property
    def counters(self) -> dict[str, int]:
        """What became of everything that came in."""
        feed = {f"feed_{name}": count for name, count in self.feed.counters().items()}
        return {**feed, **(self.decide.counters if isinstance(self.decide, Admission) else {})}

    def close(self, policy_version: int) -> None:
        """Wait no longer, tell producers, and release the feed and the journal."""
        already, self.closed = self.closed, True
        if already:
            return
        with self._locks.moving:
            try:
                with suppress(MillstreamError):  # a feed that is gone cannot be told
                    self.tell(policy_version)
            finally:
                with self._feed_lock:
                    self.feed.close()
                self._checkpoint.close()

    def release(self, cursor: Mapping[str, Any]) -> None:
        """A state that stands at a place of the feed is committed."""
        with self._feed_lock:
            self.feed.release(cursor)

    # State

    def restart(self) -> None:
        """Stand at the beginning."""
        if self._begun:
            with self._feed_lock:
                self.feed.seek(self._first)
            self._checkpoint.close()
        self._begun = False
        self._stand(self._checkpoint.begin(), self.feed.cursor)

    def save(self, decide: Admission) -> dict[str, Any]:
        """Where the feed stands, and where everything lies that came before and is not used up."""
        self._begin()
        present = [] if self._cut is None else [self._written(self._cut)]
        return {"feed": dict(self._line.cursor), **self._checkpoint.save(decide.state(), present)}

    def resume(self, loaded: Loaded, cursor: Cursor) -> None:
        """Stand where a state was saved, or change nothing."""
        with self._feed_lock:
            before = self.feed.cursor
            self.feed.seek(cursor)
            try:
                self._checkpoint.go_on(loaded)
            except BaseException:
                self.feed.seek(before)
                raise
        self._begun = True
        self._stand(loaded.decide, cursor, loaded.cut)


class FeedEnded(RunEnded):
    """A feed has ended, and everything in it was trained on."""
