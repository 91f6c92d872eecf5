"""The background's side of an intake: what a feed brings is admitted until a rollout batch can be cut; that is written
down, and rated.

One thread does it. It cuts a few rollout batches ahead, each for the version that its step is expected to train.
Safe under KeyboardInterrupt: each arrival is either admitted or still in line, and a cut is never lost. The lock
`moving` is held where anything changes, never while the feed is waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from millstream.errors import MillstreamError
from millstream.feeds import Control, Feed, MemoryFeed
from millstream.feeds.admission import Admission, AdmittedBatch, FollowerAdmission
from millstream.loaders.rollouts import RolloutBatch
from millstream.loaders.runs.checkpoint import FeedCheckpoint
from millstream.loaders.runs.frontier import Expected, Frontier, PendingBatch
from millstream.loaders.runs.run import Locks, RunEnded
from millstream.stages import ForkLock, after_fork, close_on_exit, defer_sigint

PATIENCE_S = 0.1
"""How long a feed is waited for at a time: what else is asked of the feed, or closes it, waits as long."""
TELL_AGAIN_S = 0.2
"""Between two words to producers about the same version."""
FOLLOW_S = 0.01
"""Between two looks for what the leader has written."""


class FeedEnded(RunEnded):
    """A feed has ended, and everything in it was trained on."""


class Background:
    """Makes rollout batches of what a feed brings, at the frontier where the run stands.

    Args:
        feed: Brings rollouts.
        checkpoint: Writes down what is cut.
        locks: Of the loader.
        rate: Adds what is derived from whole groups.
        expected: Says which version a rollout batch will train.
        most_ahead: Most rollout batches that are cut and not handed over.
    """

    frontier: Frontier
    """Where the run stands."""
    inline = False
    """Whether all work is done in the call that asks for a rollout batch; otherwise by a thread, ahead of it."""

    def __init__(
        self,
        feed: Feed,
        checkpoint: FeedCheckpoint,
        locks: Locks,
        rate: Callable[[AdmittedBatch], RolloutBatch],
        expected: Expected,
        most_ahead: int,
    ) -> None:
        self._feed, self._checkpoint, self._locks = feed, checkpoint, locks
        self._rate, self._expected, self.most_ahead = rate, expected, most_ahead
        self.feed_lock = ForkLock()
        """Of what is asked of the feed: one thread at a time. It is taken last."""
        self.closed = False
        self._thread: threading.Thread | None = None
        self._version = 0
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._news = threading.Condition()
        """Told when anything changes that another thread may wait for."""

    def set_frontier(self, frontier: Frontier) -> None:
        """Work from there on; whatever was made elsewhere is dropped."""
        self.frontier, self._told = frontier, (Control(-1), 0.0)
        """The last word to producers, and when the next one may follow."""

    # The thread

    def start(self) -> None:
        """Begin to work, if it does not."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            thread = self._thread = threading.Thread(target=self._run, name="millstream-intake", daemon=True)
            close_on_exit(self, self.end, join=thread.join)
            thread.start()

    def end(self) -> None:
        """Work no more."""
        self.closed = True
        self.wake()

    def wake(self) -> None:
        """Something has changed."""
        with self._news:
            self._news.notify_all()

    def wait(self, is_news: Callable[[], bool]) -> None:
        """Let the thread work for a moment, or until there is news; or do a part of the work here."""
        if self.inline:
            self._work(self.frontier)
            return
        self.start()
        with self._news:
            self._news.notify_all()
            self._news.wait_for(is_news, PATIENCE_S)

    def _run(self) -> None:
        while not self.closed:
            pause_s, frontier = 0.0, self.frontier
            if frontier.failed is None:
                try:
                    pause_s = self._work(frontier)
                except BaseException as error:
                    frontier.failed = error
                self.wake()
            if pause_s or frontier.failed is not None:
                with self._news:
                    if not self.closed:
                        self._news.wait(pause_s or PATIENCE_S)

    def _work(self, frontier: Frontier) -> float:
        """Do a part of the work for the next rollout batches; gives how long to wait before the next part."""
        made = next((made for made in tuple(frontier.ahead) if not made.is_rated), None)
        if made is not None:
            self._finish(frontier, made)
            return 0
        with self.feed_lock:
            ended = frontier.line.ended
        is_due, version = self._due(frontier)
        if is_due:
            if self._try(frontier, version, ended=ended):
                return 0
        elif not self._is_hungry(frontier):
            return PATIENCE_S
        frontier.looks += 1
        decide = frontier.decide
        if ended if isinstance(decide, Admission) else decide.ended:
            self._notice_end(frontier)
            return PATIENCE_S
        if isinstance(decide, FollowerAdmission) and decide.full:
            return self._rested(FOLLOW_S)
        self._receive(frontier)
        with self._locks.moving:
            self.tell(self._version)
        return 0

    def _rested(self, pause_s: float) -> float:
        if self.inline:
            time.sleep(pause_s)
        return pause_s

    # Cuts

    def _due(self, frontier: Frontier) -> tuple[bool, int | None]:
        """Whether another rollout batch is to be cut, and for which version."""
        follows, rules = frontier.follows, frontier.decide.rules
        with self._locks.moving:
            number, asked = len(frontier.ahead), frontier.asked
            if asked is not None and (number == 0 or (follows and frontier.head(asked) is None)):
                return True, None if follows else asked
            if self.inline or number >= self.most_ahead:
                return False, None
            if follows:
                return True, None
            version = None if rules.max_staleness == 0 else self._expected(frontier.batch + number)
            return version is not None, version

    def _is_hungry(self, frontier: Frontier) -> bool:
        """Whether rollouts are received though no batch may be cut of them yet."""
        decide = frontier.decide
        with self._locks.moving:
            return (
                isinstance(decide, Admission)
                and not self.inline
                and len(frontier.ahead) < self.most_ahead
                and not decide.full
                and not decide.has_a_batch
            )

    def _try(self, frontier: Frontier, version: int | None, *, ended: bool) -> bool:
        """AdmittedBatch a rollout batch if there is enough for it; gives whether anything has changed."""
        with self._locks.moving, defer_sigint():
            if frontier is not self.frontier or self._due(frontier) != (True, version):
                return True  # meanwhile
            if frontier.trying is not None and frontier.trying != version:
                frontier.go_back(frontier.base)
                return True
            cut, decide = frontier.cut(version, time.monotonic(), ended=ended), frontier.decide
            if isinstance(decide, FollowerAdmission) and decide.withdrawn is not None:
                frontier.follow_withdrawal(decide.withdrawn)
                return True
        return cut is not None

    def _finish(self, frontier: Frontier, made: PendingBatch) -> None:
        """Write a cut down, before anything is trained on, and rate it. What fails is tried again."""
        if not made.is_written:
            self._keep_up(frontier)
            with self._locks.moving, defer_sigint():
                if made not in frontier.ahead:
                    return
                frontier.write(made)
        with suppress(Exception):
            made.rated = self._rate(made.cut)
        made.is_rated = True

    def _notice_end(self, frontier: Frontier) -> None:
        """Nothing more comes; the trainer hears it when it asks for more than there is."""
        with self._locks.moving, defer_sigint():
            if frontier.asked is None or frontier.ahead or frontier.line or frontier is not self.frontier:
                return
            if not frontier.follows:
                if frontier.trying != frontier.asked:
                    return
                self._checkpoint.end(frontier.batch, frontier.asked)
        raise FeedEnded(
            "the feed has ended: its producers closed it, and everything was trained on",
            hint="`for batch in loader` ends here by itself",
        )

    # Arrivals

    def _receive(self, frontier: Frontier) -> None:
        """Let in what has come."""
        line = frontier.line
        if not line:
            with self.feed_lock:
                if frontier is not self.frontier or self.closed:
                    return
                line.receive(PATIENCE_S)
        let_in = False
        try:
            while self._let_in(frontier):
                let_in = True
        except MillstreamError:
            if not let_in:  # else a batch may be cut first: what is refused stays first in line
                raise
        with self._locks.moving:
            if isinstance(self._feed, MemoryFeed) and not self._checkpoint.saved and frontier is self.frontier:
                self._feed.release(frontier.oldest.cursor)  # no state could ask for it again

    def _let_in(self, frontier: Frontier) -> bool:
        with self._locks.moving:
            if frontier is not self.frontier or not frontier.line or frontier.decide.full:
                return False
            frontier.let_in()
            return True

    def _keep_up(self, frontier: Frontier) -> None:
        """Admit what the leader had admitted: the feed may release it when a later state is committed."""
        decide, line = frontier.decide, frontier.line
        if not isinstance(decide, FollowerAdmission) or self._checkpoint.replays or not decide.received:
            return
        while line.cursor != decide.received:
            if not line:
                with self.feed_lock:
                    if frontier is not self.frontier:
                        return
                    line.receive(0)
            if not line:
                return
            with self._locks.moving:
                if frontier is self.frontier and line:
                    frontier.let_in()

    # Producers

    def tell(self, policy_version: int) -> None:
        """Tell producers what is wanted, if they have not heard it: at once of a new version, else now and then."""
        self._version, decide = policy_version, self.frontier.decide
        if not isinstance(decide, Admission):
            return
        elsewhere = sum(len(made.cut.group_ids) for made in self.frontier.ahead)
        wanted, now = decide.wanted(elsewhere), time.monotonic()
        until = None if wanted is None else decide.begun + wanted
        word = Control(policy_version, wanted, until, closed=self.closed)
        before, again = self._told
        news = word.policy_version != before.policy_version or word.closed
        if word == before or (now < again and not news):
            return
        with self.feed_lock:
            self._feed.tell(word)
        self._told = word, now + TELL_AGAIN_S
