"""The trainer's side of an intake: it asks for rollout batches, which the background makes of what a feed brings, and
says which version it trains.

Where the trainer trains another version than was expected, what was cut ahead for that is withdrawn, and everything is
as it was before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from millstream.errors import ClosedError, LoaderError, MillstreamError, WaitTimeout
from millstream.feeds import Cursor, Feed
from millstream.feeds.admission import Admission, AdmittedBatch, FollowerAdmission
from millstream.loaders.rollouts import RolloutBatch
from millstream.loaders.runs.background import Background, FeedEnded
from millstream.loaders.runs.checkpoint import FeedCheckpoint, Loaded
from millstream.loaders.runs.frontier import Expected, Frontier, PendingBatch, ReceivedBuffer
from millstream.loaders.runs.run import Locks
from millstream.rollouts import Id
from millstream.stages import HomeProcess, checked_timeout, defer_sigint


class Intake:
    """The rollout batch that is trained on, those that are cut ahead, and what waits after them.

    Args:
        feed: Brings rollouts.
        checkpoint: Makes what decides, and writes down what it does.
        timeout_s: How long a rollout batch is waited for; None: as long as it takes.
        locks: Of the loader.
        rate: Adds what is derived from whole groups.
        expected: Says which version a rollout batch will train.
        ahead: Most rollout batches that are cut and not handed over.
    """

    def __init__(
        self,
        feed: Feed,
        checkpoint: FeedCheckpoint,
        timeout_s: float | None,
        locks: Locks,
        rate: Callable[[AdmittedBatch], RolloutBatch],
        expected: Expected,
        ahead: int,
    ) -> None:
        self.feed, self._checkpoint, self._timeout_s, self._locks = feed, checkpoint, checked_timeout(timeout_s), locks
        self._rate, self._expected = rate, expected
        self._background = Background(feed, checkpoint, locks, rate, expected, ahead)
        self._home: HomeProcess | None = None
        """Where the run has begun."""
        self._first = dict(feed.cursor)
        self._stand(checkpoint.begin(), feed.cursor, 0)

    def _stand(
        self,
        decide: Admission | FollowerAdmission,
        cursor: Cursor,
        batch: int,
        present: tuple[AdmittedBatch, RolloutBatch] | None = None,
    ) -> None:
        """Stand before a rollout batch, or in the midst of it if it is given; whatever was made ahead is dropped."""
        line = ReceivedBuffer(self.feed, cursor, self._checkpoint.keep_aside)
        self._background.set_frontier(Frontier(decide, line, self._checkpoint, batch, present))

    @property
    def _frontier(self) -> Frontier:
        return self._background.frontier

    @property
    def inline(self) -> bool:
        """Whether all work is done in the call that asks for a rollout batch; otherwise by a thread, ahead of it."""
        return self._background.inline

    @inline.setter
    def inline(self, inline: bool) -> None:
        self._background.inline = inline

    def _begin(self) -> None:
        if self._background.closed:
            return
        if self._home is None:
            with self._locks.moving, defer_sigint():
                self._checkpoint.start()
                self._home = HomeProcess()
                self._frontier.begin()
        elif self._home.left:
            raise LoaderError(
                "this process was forked from one that takes rollouts from this feed",
                hint="make another loader in this process, and load a state",
            )

    # Rollout batches

    @property
    def present(self) -> RolloutBatch | None:
        """The rollout batch that was handed over and is not used up."""
        present = self._frontier.present
        return None if present is None else present[1]

    def take(self, policy_version: int) -> RolloutBatch:
        """Wait for the next rollout batch, for this version; it is kept until it is `used_up`."""
        self._begin()
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        frontier = self._frontier
        with self._locks.moving:
            frontier.asked, frontier.has_asked, looks = policy_version, True, frontier.looks
            if isinstance(frontier.failed, FeedEnded):
                frontier.failed = None  # it may have begun again
            frontier.recheck(self._expected)
        try:
            while (made := self._head(policy_version)) is None:
                self._wait(deadline, policy_version, looks)
        finally:
            frontier.asked = None
        rated = self._rate(made.cut) if made.rated is None else made.rated
        with self._locks.moving, defer_sigint():
            frontier.hand_over(made, rated)
        self._background.wake()
        return rated

    def _head(self, policy_version: int) -> PendingBatch | None:
        with self._locks.moving:
            return self._frontier.head(policy_version)

    def _wait(self, deadline: float | None, policy_version: int, looks: int) -> None:
        """Wait for a moment, or do a part of the work; `looks` is how often was looked before."""
        background, frontier = self._background, self._frontier
        if background.closed:
            raise ClosedError("this loader was closed", hint="make a new one and load the last committed state")
        background.wait(
            lambda: background.closed or frontier.failed is not None or self._head(policy_version) is not None
        )
        if self._head(policy_version) is not None:
            return
        failed, frontier.failed = frontier.failed, None
        if failed is not None:
            raise failed
        with self._locks.moving:
            frontier.check_version(policy_version, self._background.most_ahead)
        if deadline is not None and time.monotonic() > deadline and frontier.looks > looks + 1:
            with self._locks.moving:
                away = getattr(self.feed, "away", None) or frontier.waiting_for(policy_version)
            raise WaitTimeout(
                f"no rollout batch came in {self._timeout_s:g} s: {away}",
                hint="see whether producers live; group_timeout_s lets incomplete groups go",
            )

    def used_up(self) -> None:
        """The present rollout batch is asked for no more."""
        self._frontier.present = None

    def prefetch(self, batches: int) -> None:
        """AdmittedBatch so many rollout batches ahead from now on, and start."""
        self._begin()
        self._background.most_ahead = batches
        if not self.inline:
            self._background.start()

    def recheck(self) -> None:
        """The trainer says which version it trains: withdraw what was cut ahead for another one."""
        with self._locks.moving:
            self._frontier.recheck(self._expected)
        self._background.wake()

    def tell(self, policy_version: int) -> None:
        """Tell producers of a version, and what is wanted, once the run has begun."""
        if self._home is not None:
            self._background.tell(policy_version)

    # Numbers

    @property
    def decide(self) -> Admission | FollowerAdmission:
        """What decides, as it was after the last rollout batch that was handed over."""
        with self._locks.moving:
            frontier = self._frontier
            return frontier.decide.at(frontier.settled.mark)

    @property
    def odd_group(self) -> tuple[Id, str, int] | None:
        """The first group that had fewer or more rollouts than was said: its id, what it had, and what was said."""
        decide = self.decide
        return decide.odd_group if isinstance(decide, Admission) else None

    @property
    def decides(self) -> bool:
        """Whether this rank decides what is trained on."""
        return not self._frontier.follows

    @property
    def counters(self) -> dict[str, int]:
        """What became of everything that came in, until the last rollout batch that was handed over or asked for."""
        feed = {f"feed_{name}": count for name, count in self.feed.counters().items()}
        with self._locks.moving:
            decide = self._frontier.decide if self._frontier.has_asked else self.decide
            return {**feed, **(decide.counters if isinstance(decide, Admission) else {})}

    @property
    def held_bytes(self) -> int:
        """Bytes of rollout batches that are trained on, cut ahead, or kept for states of earlier steps."""
        with self._locks.moving:
            made = [each.rated for each in self._frontier.ahead]
        return self.kept_bytes + sum(each.rated.block.nbytes for each in [self.present, *made] if each is not None)

    @property
    def kept_bytes(self) -> int:
        """Bytes of rollout batches that only states of earlier steps need."""
        return self._frontier.kept_bytes

    @property
    def ready(self) -> int:
        """Rollout batches that are cut, written down and rated ahead."""
        return sum(made.is_rated for made in tuple(self._frontier.ahead))

    # States

    def save(self, step: int, batch: int, *, begins: bool) -> dict[str, Any]:
        """What a state of a step says, with which a rollout batch begins or which lies in the midst of it."""
        self._begin()
        return self._frontier.save(step, batch, begins=begins)

    def keep_from(self, batch: int) -> None:
        """No state of a rollout batch before this one is asked for any more."""
        self._frontier.keep_from(batch)

    def release(self, cursor: Mapping[str, Any]) -> None:
        """A state that stands at a place of the feed is committed."""
        with self._background.feed_lock:
            self.feed.release(cursor)

    def restart(self) -> None:
        """Stand at the beginning."""
        with self._background.feed_lock:
            if self._home is not None:
                self.feed.seek(self._first)
                self._checkpoint.close()
            self._home = None
            self._stand(self._checkpoint.begin(), self.feed.cursor, 0)

    def resume(self, loaded: Loaded, cursor: Cursor, batch: int, present: RolloutBatch | None) -> None:
        """Stand where a state was saved, before a rollout batch or in the midst of one; or change nothing."""
        with self._background.feed_lock:
            before = self.feed.cursor
            self.feed.seek(cursor)
            try:
                self._checkpoint.go_on(loaded)
            except BaseException:
                self.feed.seek(before)
                raise
            self._home = HomeProcess()
            given = None if loaded.cut is None or present is None else (loaded.cut, present)
            self._stand(loaded.decide, cursor, batch, given)

    def close(self, policy_version: int) -> None:
        """Wait no longer, tell producers, and release the feed and the journal."""
        already = self._background.closed
        self._background.end()
        if already or (self._home is not None and self._home.left):
            return
        with self._locks.moving, ExitStack() as closing:
            closing.callback(self._checkpoint.close)
            closing.callback(self._close_feed)
            with suppress(MillstreamError):  # a feed that is gone cannot be told
                self.tell(policy_version)
            with suppress(MillstreamError):  # the journal then ends with what was handed over
                if self._frontier.ahead and self.decides:
                    self._frontier.withdraw(self._frontier.ahead[0])

    def _close_feed(self) -> None:
        with self._background.feed_lock:
            self.feed.close()
