"""From a feed to rollout batches, ahead of the trainer: what comes is let in until a batch can be cut; that is written
down, and rated.

One background thread does it. It cuts a few rollout batches ahead, each for the version that its step is expected to
train; where the trainer trains another one, what was cut ahead is withdrawn, and everything is as it was before. A
state always describes what was handed over: what was let in and cut since, the feed gives again.

Safe under KeyboardInterrupt: each arrival is either let in or still in line, and a cut is never lost. The lock `moving`
is held where anything changes, never while the feed is waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from millstream.admission import Admission, Cut, JournaledAdmission
from millstream.errors import ClosedError, LoaderError, MillstreamError, StateError, WaitTimeout
from millstream.feeds import Control, Feed, MemoryFeed
from millstream.feeds.feed import Cursor
from millstream.loaders.feed_steps import RolloutBatch
from millstream.loaders.runs.checkpoint import FeedCheckpoint, Loaded
from millstream.loaders.runs.received import Ahead, Base, FeedLine
from millstream.loaders.runs.run import Locks, RunEnded
from millstream.rollouts import RolloutBlock
from millstream.rollouts.faults import shown
from millstream.stages.lifetime import ForkLock, HomeProcess, after_fork, close_on_exit, defer_sigint
from millstream.stages.wait import checked_timeout

log = logging.getLogger("millstream.loaders")
PATIENCE_S = 0.1
"""How long a feed is waited for at a time: what else is asked of the feed, or closes it, waits as long."""
TELL_AGAIN_S = 0.2
"""Between two words to producers about the same version."""
FOLLOW_S = 0.01
"""Between two looks for what the rank that leads has written."""


class FeedEnded(RunEnded):
    """A feed has ended, and everything in it was trained on."""


class Intake:
    """The rollout batch that is trained on, those that are cut ahead, and what waits behind them.

    Args:
        feed: Brings rollouts.
        checkpoint: Makes what decides, and writes down what it does.
        timeout_s: How long a rollout batch is waited for; None: as long as it takes.
        locks: Of the loader.
        rate: Adds what is derived from whole groups.
        expected: (rollout batch) -> the version that it will train, as far as that is known.
        ahead: Most rollout batches that are cut and not handed over.
    """

    inline = False
    """Whether all work is done in the call that asks for a rollout batch; otherwise by a thread, ahead of it."""

    def __init__(
        self,
        feed: Feed,
        checkpoint: FeedCheckpoint,
        timeout_s: float | None,
        locks: Locks,
        rate: Callable[[Cut], RolloutBatch],
        expected: Callable[[int], int | None],
        ahead: int,
    ) -> None:
        self.feed, self._checkpoint, self._timeout_s, self._locks = feed, checkpoint, checked_timeout(timeout_s), locks
        self._rate, self._expected, self._most_ahead = rate, expected, ahead
        self._feed_lock = ForkLock()
        """Of what is asked of the feed: one thread at a time. It is taken last."""
        self._home: HomeProcess | None = None
        """Where the run has begun."""
        self.closed, self._first = False, dict(feed.cursor)
        self._thread: threading.Thread | None = None
        self._version = 0
        self._renew()
        after_fork(self._renew)
        self._stand(checkpoint.begin(), feed.cursor, 0)

    def _renew(self) -> None:
        self._news = threading.Condition()
        """Told when anything changes that another thread may wait for."""

    def _stand(
        self,
        decide: Admission | JournaledAdmission,
        cursor: Cursor,
        batch: int,
        present: tuple[Cut, RolloutBatch] | None = None,
    ) -> None:
        """Stand before a rollout batch, or in the midst of it if it is given; whatever was made ahead is dropped."""
        self._decide, self._line = decide, FeedLine(self.feed, cursor)
        self._present, self._batch = present, batch + (present is not None)
        """The rollout batch that was handed over and is not used up; and the number of the next one to hand over."""
        self._ahead: deque[Ahead] = deque()
        self._base = self._new_base()
        self._kept: dict[int, tuple[Base, Cut]] = {} if present is None else {batch: (self._base, present[0])}
        """Rollout batches that were handed over, by number, and where the intake stood before each: for states."""
        self._trying: int | None = None
        """The version for which the next rollout batch is being tried."""
        self._asked: int | None = None
        """The version for which the trainer waits for the next rollout batch."""
        self._has_asked, self._looks = False, 0
        """Whether the trainer has asked for what is not here yet; and how often was looked for it."""
        self._failed: BaseException | None = None
        self._told = Control(-1), 0.0
        """The last word to producers, and when the next one may follow."""

    def _new_base(self) -> Base:
        return Base(self._decide.mark(), self._line.cursor, self._checkpoint.position)

    @property
    def _settled(self) -> Base:
        """Where the intake stood behind the last rollout batch that was handed over."""
        return self._ahead[0].base if self._ahead else self._base

    @property
    def decide(self) -> Admission | JournaledAdmission:
        """What decides, as it was behind the last rollout batch that was handed over."""
        with self._locks.moving:
            return self._decide.at(self._settled.mark)

    # The trainer's side

    @property
    def present(self) -> RolloutBatch | None:
        """The rollout batch that was handed over and is not used up."""
        present = self._present
        return None if present is None else present[1]

    def take(self, policy_version: int) -> RolloutBatch:
        """Wait for the next rollout batch, for this version; it is kept until it is `used_up`."""
        self._begin()
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        with self._locks.moving:
            self._asked, self._has_asked, looks = policy_version, True, self._looks
            if isinstance(self._failed, FeedEnded):
                self._failed = None  # it may have begun again
            self._recheck()
        try:
            while (made := self._head(policy_version)) is None:
                self._wait(deadline, policy_version, looks)
        finally:
            self._asked = None
        rated = self._rate(made.cut) if made.rated is None else made.rated
        with self._locks.moving, defer_sigint():
            if isinstance(self._decide, JournaledAdmission):
                self._decide.check()
            self._ahead.popleft()
            if self.decides and self._checkpoint.folder is not None:
                self._kept[self._batch] = made.base, made.cut
                made.base.since.clear()  # it is not tried for again
            self._present, self._batch = (made.cut, rated), self._batch + 1
            self._settle()
            self._has_asked = False
        self._wake()
        return rated

    def _head(self, policy_version: int) -> Ahead | None:
        """The next rollout batch, if it is made."""
        with self._locks.moving:
            made = self._ahead[0] if self._ahead else None
            is_made = made is not None and made.is_rated and made.cut.policy_version == policy_version
            return made if is_made else None

    def _wait(self, deadline: float | None, policy_version: int, looks: int) -> None:
        """Wait for a moment, or do a part of the work; `looks` is how often was looked before."""
        if self.closed:
            raise ClosedError("this loader was closed", hint="make a new one and load the last committed state")
        if self.inline:
            self._work()
        else:
            self._start()
            with self._news:
                self._news.notify_all()
                self._news.wait_for(lambda: self._is_news(policy_version), PATIENCE_S)
        if self._head(policy_version) is not None:
            return
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        self._check_version(policy_version)
        if deadline is not None and time.monotonic() > deadline and self._looks > looks + 1:
            with self._locks.moving:
                away = getattr(self.feed, "away", None) or self._waiting_for(policy_version)
            raise WaitTimeout(
                f"no rollout batch came in {self._timeout_s:g} s: {away}",
                hint="see whether producers live; group_timeout_s lets incomplete groups go",
            )

    def _check_version(self, policy_version: int) -> None:
        """Raise StateError if the next rollout batch was trained with another version: no cut for this one comes.

        Rank 0 may withdraw what it has cut ahead. It has handed a cut over where there are more than lie ahead, and
        cuts nothing ahead where only the newest weights count; of a replay, what was withdrawn is left out.
        """
        with self._locks.moving:
            if not self._ahead or not isinstance(self._decide, JournaledAdmission):
                return
            cut, replays = self._ahead[0].cut, self._checkpoint.replays
            is_trained = replays or len(self._ahead) > max(1, self._most_ahead)
            if cut.policy_version == policy_version or not (is_trained or self._decide.rules.max_staleness == 0):
                return
        leader, here = ("the journal", "this run") if replays else ("rank 0", "this rank")
        raise StateError(
            f"{leader} trains version {cut.policy_version} in rollout batch {cut.step}, and {here} trains version "
            f"{policy_version}",
            hint="set policy_version to the same number on all ranks, and in a replay, before next() is called",
        )

    def _is_news(self, policy_version: int) -> bool:
        return self.closed or self._failed is not None or self._head(policy_version) is not None

    def _waiting_for(self, policy_version: int) -> str:
        if self._ahead:
            cut = self._ahead[0].cut
            return (
                f"rank 0 has cut rollout batch {cut.step} for version {cut.policy_version}, "
                f"and this rank trains version {policy_version}"
            )
        return self._decide.waiting_for()

    def keep_from(self, batch: int) -> None:
        """No state of a rollout batch before this one is asked for any more."""
        for number in [number for number in self._kept if number < batch]:
            del self._kept[number]
        self._settle()

    def _settle(self) -> None:
        self._oldest.mark.settle()

    @property
    def _oldest(self) -> Base:
        """The first place that a state may ask for."""
        return self._kept[min(self._kept)][0] if self._kept else self._settled

    def used_up(self) -> None:
        """The present rollout batch is asked for no more."""
        self._present = None

    def prefetch(self, batches: int) -> None:
        """Cut so many rollout batches ahead from now on, and start."""
        self._begin()
        self._most_ahead = batches
        if not self.inline:
            self._start()

    def _begin(self) -> None:
        if self.closed:
            return
        if self._home is None:
            with self._locks.moving, defer_sigint():
                self._checkpoint.start()
                self._home = HomeProcess()
                self._base = self._new_base()
        elif self._home.left:
            raise LoaderError(
                "this process was forked from one that takes rollouts from this feed",
                hint="make another loader in this process, and load a state",
            )

    def recheck(self) -> None:
        """The trainer says which version it trains: withdraw what was cut ahead for another one."""
        with self._locks.moving:
            self._recheck()
        self._wake()

    def _recheck(self) -> None:
        if isinstance(self._decide, JournaledAdmission):
            return  # the rank that leads withdraws
        for number, made in enumerate(self._ahead):
            if self._version_of(self._batch + number) != made.cut.policy_version:
                self._withdraw(made)
                return
        if self._trying is not None and self._trying != self._version_of(self._batch + len(self._ahead)):
            self._go_back(self._base)

    def _version_of(self, batch: int) -> int | None:
        """The version that a rollout batch trains: what the trainer asks for, or what is expected."""
        return self._asked if batch == self._batch and self._asked is not None else self._expected(batch)

    def _withdraw(self, made: Ahead) -> None:
        """Take back a cut, and those after it: everything is as it was before it was tried for."""
        with defer_sigint():
            if made.is_written:
                self._checkpoint.withdraw(made.cut)
            self._go_back(made.base)

    def _go_back(self, base: Base) -> None:
        """Stand at a base; what was let in since comes again."""
        with defer_sigint():
            bases = [made.base for made in self._ahead]
            bases += [self._base] if not bases or bases[-1] is not self._base else []
            number = next(number for number, each in enumerate(bases) if each is base)
            while len(self._ahead) > number:
                self._ahead.pop()
            self._decide.go_back(base.mark)
            self._line.put_back([arrival for each in bases[number:] for arrival in each.since], base.cursor)
            self._base, self._trying, self._failed = self._new_base(), None, None

    # The background's side

    def _start(self) -> None:
        thread = self._thread
        if thread is None or not thread.is_alive():
            thread = self._thread = threading.Thread(target=self._run, name="millstream-intake", daemon=True)
            close_on_exit(self, self._end, join=thread.join)
            thread.start()

    def _end(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()

    def _run(self) -> None:
        while not self.closed:
            pause_s = 0.0
            if self._failed is None:
                try:
                    pause_s = self._work()
                except BaseException as error:
                    self._failed = error  # raised where the trainer asks for what is not made
                self._wake()
            if pause_s or self._failed is not None:
                with self._news:
                    if not self.closed:
                        self._news.wait(pause_s or PATIENCE_S)

    def _work(self) -> float:
        """Do a part of the work for the next rollout batches; gives how long to wait before the next part."""
        made = next((made for made in tuple(self._ahead) if not made.is_rated), None)
        if made is not None:
            self._finish(made)
            return 0
        line = self._line
        with self._feed_lock:
            ended = line.ended
        is_due, version = self._due()
        if is_due:
            if self._try(line, version, ended=ended):
                return 0
        elif not self._is_hungry():
            return PATIENCE_S
        self._looks += 1
        decide = self._decide
        if ended if isinstance(decide, Admission) else decide.ended:
            self._notice_end(line)
            return PATIENCE_S
        if isinstance(decide, JournaledAdmission) and decide.full:
            return self._rested(FOLLOW_S)
        self._receive(line)
        with self._locks.moving:
            self.tell(self._version)
        return 0

    def _rested(self, pause_s: float) -> float:
        if self.inline:
            time.sleep(pause_s)
        return pause_s

    def _due(self) -> tuple[bool, int | None]:
        """Whether another rollout batch is to be cut, and for which version."""
        follows = isinstance(self._decide, JournaledAdmission)
        with self._locks.moving:
            number = len(self._ahead)
            if self._asked is not None and (number == 0 or (follows and self._head(self._asked) is None)):
                return True, None if follows else self._asked
            if self.inline or number >= self._most_ahead:
                return False, None
            if follows:
                return True, None
            version = None if self._decide.rules.max_staleness == 0 else self._expected(self._batch + number)
            return version is not None, version

    def _is_hungry(self) -> bool:
        """Whether rollouts are received though no batch may be cut of them yet."""
        decide = self._decide
        with self._locks.moving:
            return (
                isinstance(decide, Admission)
                and not self.inline
                and len(self._ahead) < self._most_ahead
                and not decide.full
                and not decide.has_a_batch
            )

    def _try(self, line: FeedLine, version: int | None, *, ended: bool) -> bool:
        """Cut a rollout batch if there is enough for it."""
        with self._locks.moving, defer_sigint():
            if line is not self._line or self._due() != (True, version):
                return True  # things have changed meanwhile
            if self._trying is not None and self._trying != version:
                self._go_back(self._base)
                return True
            ended = ended and not self._line  # something may have been put back
            self._trying, batch = version, self._batch + len(self._ahead)
            decide, now = self._decide, time.monotonic()
            if isinstance(decide, JournaledAdmission):
                cut = decide.cut(batch, None, now, ended=ended)
                if decide.withdrawn is not None:
                    self._follow_withdrawal(decide.withdrawn)
                    return True
            else:
                assert version is not None
                cut = decide.cut(batch, version, now, ended=ended)
            if cut is not None:
                self._ahead.append(Ahead(cut, self._base))
                self._trying = None
        return cut is not None

    def _follow_withdrawal(self, step: int) -> None:
        """The rank that leads has taken back a cut."""
        base = next((made.base for made in self._ahead if made.cut.step == step), None)
        if base is None:
            raise StateError(
                f"rank 0 has withdrawn rollout batch {step}, which was handed over here: it trains another version",
                hint="set policy_version to the same number on all ranks, before next() is called",
            )
        self._go_back(base)

    def _finish(self, made: Ahead) -> None:
        """Write a cut down, before anything is trained on, and rate it. What fails is tried again."""
        if not made.is_written:
            self._keep_up()
            with self._locks.moving, defer_sigint():
                if made not in self._ahead:
                    return
                self._checkpoint.write(made.cut, self._line.cursor)
                made.is_written, self._base = True, self._new_base()
        with suppress(Exception):
            made.rated = self._rate(made.cut)
        made.is_rated = True

    def _notice_end(self, line: FeedLine) -> None:
        """Nothing more comes; the trainer hears it when it asks for more than there is."""
        with self._locks.moving, defer_sigint():
            if self._asked is None or self._ahead or self._line or line is not self._line:
                return
            if isinstance(self._decide, Admission):
                if self._trying != self._asked:
                    return
                self._checkpoint.end(self._batch, self._asked)
        raise FeedEnded(
            "the feed has ended: its producers closed it, and everything was trained on",
            hint="`for batch in loader` ends here by itself",
        )

    def _receive(self, line: FeedLine) -> None:
        """Let in what has come."""
        if not line:
            with self._feed_lock:
                if line is not self._line or self.closed:
                    return
                line.receive(PATIENCE_S)
        let_in = False
        try:
            while self._let_in(line):
                let_in = True
        except MillstreamError:
            if not let_in:  # else a batch may be cut first: what is refused stays first in line
                raise
        with self._locks.moving:
            if isinstance(self.feed, MemoryFeed) and not self._checkpoint.saved:
                self.feed.release(self._oldest.cursor)  # no state could ask for it again

    def _let_in(self, line: FeedLine) -> bool:
        with self._locks.moving:
            if line is not self._line or not line or self._decide.full:
                return False
            line.let_in(self._arrive, self._base.since)
            return True

    def _arrive(self, block: RolloutBlock) -> None:
        """Let rollouts in. Those that looking at fails are set aside: the feed would give them again to every run."""
        try:
            self._decide.arrive(block, time.monotonic())
        except MillstreamError:
            raise
        except Exception as error:
            odd = [row for row in range(len(block)) if not self._can_look(block.select([row]))]
            if not odd:
                raise
            names = ", ".join(shown(block.rows["rollout_id"][row]) for row in odd[:3])
            log.warning("%d rollouts are left out, such as %s: %s", len(odd), names, shown(error))
            self._decide.arrive(block.select(np.setdiff1d(np.arange(len(block)), odd)), time.monotonic())
            self._decide.set_aside(block.select(odd))
            if isinstance(self._decide, Admission):
                self._checkpoint.keep_aside(block.select(odd))

    def _can_look(self, block: RolloutBlock) -> bool:
        try:
            self._decide.look(block)
        except MillstreamError:  # it is refused in an orderly way
            pass
        except Exception:
            return False
        return True

    def _keep_up(self) -> None:
        """Let in what the rank that leads had let in: the feed may let go of it when a state behind it is committed."""
        decide, line = self._decide, self._line
        if not isinstance(decide, JournaledAdmission) or self._checkpoint.replays or not decide.received:
            return
        while line.cursor != decide.received:
            if not line:
                with self._feed_lock:
                    if line is not self._line:
                        return
                    line.receive(0)
            if not line:
                return
            with self._locks.moving:
                if line is self._line and line:
                    line.let_in(self._arrive, self._base.since)

    # Producers

    def tell(self, policy_version: int) -> None:
        """Tell producers what is wanted, if they have not heard it: at once of a new version, else now and then."""
        self._version, decide = policy_version, self._decide
        if not isinstance(decide, Admission) or self._home is None:
            return
        wanted, now = decide.wanted(sum(len(made.cut.group_ids) for made in self._ahead)), time.monotonic()
        until = None if wanted is None else decide.begun + wanted
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
        """What became of everything that came in, until the last rollout batch that was handed over or asked for."""
        feed = {f"feed_{name}": count for name, count in self.feed.counters().items()}
        with self._locks.moving:
            decide = self._decide if self._has_asked else self.decide
            return {**feed, **(decide.counters if isinstance(decide, Admission) else {})}

    def close(self, policy_version: int) -> None:
        """Wait no longer, tell producers, and release the feed and the journal."""
        already, self.closed = self.closed, True
        self._wake()
        if already or (self._home is not None and self._home.left):
            return
        with self._locks.moving, ExitStack() as closing:
            closing.callback(self._checkpoint.close)
            closing.callback(self._close_feed)
            with suppress(MillstreamError):  # a feed that is gone cannot be told
                self.tell(policy_version)
            with suppress(MillstreamError):  # the journal then ends with what was handed over
                if self._ahead and self.decides:
                    self._withdraw(self._ahead[0])

    def _close_feed(self) -> None:
        with self._feed_lock:
            self.feed.close()

    # State

    def restart(self) -> None:
        """Stand at the beginning."""
        with self._feed_lock:
            if self._home is not None:
                self.feed.seek(self._first)
                self._checkpoint.close()
            self._home = None
            self._stand(self._checkpoint.begin(), self.feed.cursor, 0)

    def save(self, step: int, batch: int, *, begins: bool) -> dict[str, Any]:
        """Where the feed stood before a step, with which a rollout batch begins or which lies in the midst of it;
        and where everything lies that came before and was not used up then.
        """
        self._begin()
        next_batch = batch if begins else batch + 1
        base = self._kept[next_batch][0] if next_batch in self._kept else self._settled
        present = [] if begins else [self._kept[batch][1] if batch in self._kept else self._present_cut]
        return {"feed": dict(base.cursor), **self._checkpoint.save(step, base.mark.state(), present, base.position)}

    @property
    def _present_cut(self) -> Cut:
        assert self._present is not None
        return self._present[0]

    @property
    def held_bytes(self) -> int:
        """Bytes of rollout batches that are trained on, cut ahead, or kept for states of earlier steps."""
        with self._locks.moving:
            made = [each.rated for each in self._ahead]
        return self.kept_bytes + sum(each.rated.block.nbytes for each in [self.present, *made] if each is not None)

    @property
    def kept_bytes(self) -> int:
        """Bytes of rollout batches that only states of earlier steps need."""
        present = None if self._present is None else self._present[0]
        return sum(cut.block.nbytes for _, cut in self._kept.values() if cut is not present)

    @property
    def ready(self) -> int:
        """Rollout batches that are cut, written down and rated ahead."""
        return sum(made.is_rated for made in tuple(self._ahead))

    @property
    def decides(self) -> bool:
        """Whether this rank decides what is trained on."""
        return isinstance(self._decide, Admission)

    def release(self, cursor: Mapping[str, Any]) -> None:
        """A state that stands at a place of the feed is committed."""
        with self._feed_lock:
            self.feed.release(cursor)

    def resume(self, loaded: Loaded, cursor: Cursor, batch: int, present: RolloutBatch | None) -> None:
        """Stand where a state was saved, before a rollout batch or in the midst of one; or change nothing."""
        with self._feed_lock:
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
