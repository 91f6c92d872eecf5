"""Where a run over a feed stands: which rollouts it trains on now, how far it is in them, and what waits behind them.

What admission cuts is a rollout batch. It is gone through some times (passes), each in an order of its own, and a pass
is cut into steps. State, feed, journal and sidecar stand at one frontier: what the state does not hold, the feed gives
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from millstream.admission import Admission, Cut, JournaledAdmission
from millstream.errors import ClosedError, LoaderError, MillstreamError, StateError, WaitTimeout
from millstream.feeds import Control, Feed, MemoryFeed
from millstream.loaders import state as states
from millstream.loaders.feed_frontier import Frontier
from millstream.loaders.feed_line import FeedLine
from millstream.loaders.feed_steps import FeedOrder, FeedPhase, FeedPlace, RolloutBatch, resized
from millstream.loaders.phases import read_count
from millstream.loaders.rollout_run import StepSamples
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.uninterrupted import uninterrupted
from millstream.rollouts import Id

logger = logging.getLogger("millstream.loaders")
PATIENCE_S = 0.5
"""How long a feed is waited for at a time: who closes the loader meanwhile waits as long."""
TELL_AGAIN_S = 0.2
"""Between two words to producers about the same version."""
FOLLOW_S = 0.01
"""Between two looks for what the rank that leads has written."""
MOST_PHASES = 64
"""How many changes of a step's size a state remembers: steps before them cannot be explained."""
LEADER = 0
"""The rank that decides what is trained on; the others follow its journal."""


class FeedRun:
    """A step of a run over a feed."""

    kind = "rollout feed"

    def __init__(
        self,
        feed: Feed,
        frontier: Frontier,
        settings: LoaderSettings,
        *,
        name: str,
        passes: int,
        keep_groups: bool,
        policy_version: int,
        timeout_s: float | None,
        make: Callable[[Cut], RolloutBatch],
        row_facts: Mapping[str, Any],
    ) -> None:
        self.feed, self.frontier, self.settings, self.name = feed, frontier, settings, name
        self.order = FeedOrder(name, settings.seed, settings.shuffle, settings.rank, settings.world_size, passes)
        self.passes, self._keep_groups, self._first_version = passes, keep_groups, policy_version
        self._timeout_s, self._make = timeout_s, make
        self._row_facts = {**row_facts, "passes": passes}
        self._begun = False
        self._told = Control(-1), 0.0
        """The last word to producers, and when the next one may follow."""
        self._committed: dict[str, Any] | None = None
        self.closed = False
        self._first = dict(feed.cursor)
        self._stand()

    def _stand(self) -> None:
        ranks = self.settings.world_size
        self.step, self.place = 0, FeedPlace()
        self.policy_version, self._was_told = self._first_version, False
        self.phases = [FeedPhase(0, self.place, self.settings.batch_size * ranks, ranks)]
        self.present: RolloutBatch | None = None
        self._cut: Cut | None = None
        self._is_written = False
        self._line = FeedLine(self.feed)
        self._decide: Admission | JournaledAdmission = self.frontier.begin()

    @property
    def leads(self) -> bool:
        """Whether this rank decides."""
        return self.settings.rank == LEADER

    @property
    def epoch(self) -> int:
        """Passes before the present one."""
        return self.place.batch * self.passes + self.place.number

    def tell_version(self, version: int) -> None:
        """The trainer says which version of the policy the coming step trains; else rollout batches are counted."""
        if version < self.policy_version:
            raise LoaderError(
                f"policy_version went back from {self.policy_version} to {version}",
                hint="versions only grow; to go back, load the state that was saved then",
            )
        self.policy_version, self._was_told = version, True
        if self._begun:
            self._tell()

    # Steps

    def coming(self, batch_size: int) -> StepSamples:
        """The samples of the coming step, when they are there."""
        if self.present is None:
            self.present = self._make(self._written_cut())
        ranks = self.settings.world_size
        fresh = FeedPhase(self.step, self.place, batch_size * ranks, ranks)
        self.phases = resized(self.phases, fresh)[-MOST_PHASES:]
        return self.order.samples_of(self._total, self.step, self.place, self.phases[-1])

    @property
    def _total(self) -> int:
        """Samples of the present rollout batch."""
        assert self.present is not None
        return self.present.samples(keep_groups=self._keep_groups)

    def advance(self) -> None:
        """The coming step was delivered."""
        place = self.place.after(self.phases[-1].rows, self._total, self.passes)
        version = self.policy_version + (place.begins_batch and not self._was_told)
        if place.begins_batch:
            try:
                self._tell(version)
            except MillstreamError as error:  # the step is delivered all the same
                logger.warning("producers could not be told of version %d: %s", version, error.message)
        with uninterrupted():
            self.step, self.place, self.policy_version = self.step + 1, place, version
            if place.begins_batch:
                self.present = self._cut = None

    def _written_cut(self) -> Cut:
        """The present rollout batch, which is written down before it is trained on.

        Admission has let go of it: where that fails it is kept, and tried again.
        """
        cut = self._next_cut() if self._cut is None else self._cut
        if not self._is_written:
            self._keep_up()
            with uninterrupted():
                self.frontier.write(cut, self._line.cursor)
                self._is_written = True
        return cut

    def _begin(self) -> None:
        if not self._begun:
            with uninterrupted():
                self.frontier.start()
                self._begun = True

    def _next_cut(self) -> Cut:
        """Wait until a rollout batch can be cut."""
        self._begin()
        self._tell()
        began = time.monotonic()
        while not self.closed:
            now, ended = time.monotonic(), self._line.ended
            with uninterrupted():
                cut = self._decide.cut(self.place.batch, self.policy_version, now, ended=ended)
                self._cut, self._is_written = cut, False
            if cut is not None:
                return cut
            if isinstance(self._decide, Admission) and ended:
                with uninterrupted():
                    self.frontier.end(self.place.batch, self.policy_version)
            if ended if isinstance(self._decide, Admission) else self._decide.ended:
                raise FeedEnded(
                    "the feed has ended: its producers closed it, and everything was trained on",
                    hint="`for batch in loader` ends here by itself",
                )
            if self._timeout_s is not None and now - began > self._timeout_s:
                raise WaitTimeout(
                    f"no rollout batch came in {self._timeout_s:g} s: {self._decide.waiting_for()}",
                    hint="see whether producers live; group_timeout_s lets incomplete groups go",
                )
            self._receive()
            self._tell()
        raise ClosedError("this loader was closed", hint="make a new one and load the last committed state")

    def _receive(self) -> None:
        """Let in what has come."""
        if isinstance(self._decide, JournaledAdmission) and self._decide.full:
            time.sleep(FOLLOW_S)
            return
        if not self._line:
            self._line.receive(PATIENCE_S)
        while self._line and not self._decide.full:
            self._let_in()
        if isinstance(self.feed, MemoryFeed) and not self.frontier.saved:
            self.feed.release(self._line.cursor)  # nobody has a state that could ask for it again

    def _let_in(self) -> None:
        self._line.let_in(lambda block: self._decide.arrive(block, time.monotonic()))

    def _keep_up(self) -> None:
        """Let in what the rank that leads had let in: the feed may let go of it when a state behind it is committed."""
        if not isinstance(self._decide, JournaledAdmission) or self.frontier.replays or not self._decide.received:
            return
        while self._line.cursor != self._decide.received:
            if not self._line:
                self._line.receive(0)
            if not self._line:
                return
            self._let_in()

    def _tell(self, version: int | None = None) -> None:
        """Tell producers what is wanted, if they have not heard it: at once of a new version, else now and then."""
        if not isinstance(self._decide, Admission):
            return
        wanted, now = self._decide.wanted(), time.monotonic()
        until = None if wanted is None else self._decide.begun + wanted
        word = Control(self.policy_version if version is None else version, wanted, until, closed=self.closed)
        before, again = self._told
        news = word.policy_version != before.policy_version or word.closed
        if word == before or (now < again and not news):
            return
        self.feed.tell(word)
        self._told = word, now + TELL_AGAIN_S

    @property
    def odd_group(self) -> tuple[Id, str, int] | None:
        """The first group of another size than was said, if this rank decides."""
        return self._decide.odd_group if isinstance(self._decide, Admission) else None

    @property
    def counters(self) -> dict[str, int]:
        """What became of everything that came in."""
        feed = {f"feed_{name}": count for name, count in self.feed.counters().items()}
        return {**feed, **(self._decide.counters if isinstance(self._decide, Admission) else {})}

    def close(self) -> None:
        """Wait no longer, tell producers, and let go of the feed and the journal."""
        already, self.closed = self.closed, True
        if already:
            return
        try:
            with suppress(MillstreamError):  # who closes cannot mend a feed that is gone
                if self._begun:
                    self._tell()
        finally:
            self.feed.close()
            self.frontier.close()

    # State

    def restart(self) -> None:
        """Stand at the last state that was committed or loaded, or at the beginning: no feed goes further back."""
        if self._committed is not None:
            self.resume(self._committed)
            return
        if self._begun:
            self.feed.seek(self._first)
            self.frontier.close()
        self._begun = False
        self._stand()

    def state(self) -> dict[str, Any]:
        """Describe where the run stands; the sidecar that it names holds all rollouts that are not used up."""
        state = {
            **states.header(self.kind, self.step, self.settings.seed, self._row_facts),
            **self.place.to_json(),
            "policy_version": self.policy_version,
            "version_was_told": self._was_told,
            "phases": [phase.to_json() for phase in self.phases],
        }
        if not isinstance(self._decide, Admission):
            return {**state, **({"replay": True} if self.frontier.replays else {"follower": self.settings.rank})}
        self._begin()
        present = [] if self._cut is None else [self._written_cut()]
        return {**state, "feed": dict(self._line.cursor), **self.frontier.save(self._decide.state(), present)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        place = FeedPlace.from_json(state)
        version = read_count(state.get("policy_version"), "policy_version")
        phases = [FeedPhase.from_json(each) for each in state.get("phases", ())]
        cursor = state.get("feed")
        if not isinstance(cursor, Mapping) or not phases:
            raise StateError(
                "the state does not say where its feed stood", hint="it is damaged; use another checkpoint"
            )
        loaded = self.frontier.load(state, time.monotonic())
        cut = loaded.cuts[0] if loaded.cuts else None
        present = None if cut is None else self._make(cut)
        before = self.feed.cursor
        self.feed.seek(cursor)
        try:
            self.frontier.go_on(loaded)
        except BaseException:
            self.feed.seek(before)
            raise
        self._committed = dict(state)
        self._line.stand(cursor)
        self.step, self.place, self.phases = step, place, phases
        self.policy_version, self._was_told = version, state.get("version_was_told") is True
        self._decide, self._begun = loaded.decide, True
        self._told = Control(-1), 0.0
        self._cut, self.present, self._is_written = cut, present, True

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        step = states.check_header(state, self.kind, self.settings.seed, self._row_facts)
        if "replay" in state:
            raise StateError(
                "this is the state of a replay, which holds nothing of its own",
                hint="load a state of the run that wrote the journal, or replay it from its beginning",
            )
        if "follower" in state:
            raise StateError(
                f"this is the state of rank {state['follower']}, which follows rank {LEADER}",
                hint=f"save the state of rank {LEADER}, and load it on all ranks",
            )
        return step

    def commit(self, state: Mapping[str, Any]) -> None:
        """Let go of everything that lies before a state."""
        self.check(state)
        if self.leads:
            self.feed.release(state["feed"])
            self.frontier.release(state)
        self._committed = dict(state)


class FeedEnded(ClosedError):  # noqa: N818 - reads as a claim
    """A feed has ended, and everything in it was trained on."""
