"""Where a run over a feed stands: which rollouts it trains on now, and how far it is in them.

What admission cuts is a rollout batch. It is gone through some times (passes), each in an order of its own, and a pass
is cut into steps. State, feed, journal and sidecar stand at one frontier: what the state does not hold, the feed gives
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from millstream.admission import Admission, Cut
from millstream.errors import LoaderError, MillstreamError, StateError
from millstream.feeds import Feed
from millstream.loaders import state as states
from millstream.loaders.feed_frontier import Frontier
from millstream.loaders.feed_intake import Intake
from millstream.loaders.feed_steps import FeedOrder, FeedPhase, FeedPlace, RolloutBatch, resized
from millstream.loaders.phases import read_count
from millstream.loaders.rollout_run import StepSamples
from millstream.loaders.settings import LoaderSettings
from millstream.rollouts import Id
from millstream.stages.lifetime import defer_sigint

logger = logging.getLogger("millstream.loaders")
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
        self.intake, self._make = Intake(feed, frontier, timeout_s), make
        self._row_facts = {**row_facts, "passes": passes}
        self._committed: dict[str, Any] | None = None
        self._stand()

    def _stand(self) -> None:
        ranks = self.settings.world_size
        self.step, self.place = 0, FeedPlace()
        self.policy_version, self._was_told = self._first_version, False
        self.phases = [FeedPhase(0, self.place, self.settings.batch_size * ranks, ranks)]
        self.present: RolloutBatch | None = None

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
        self.intake.tell(version)

    # Steps

    def coming(self, batch_size: int) -> StepSamples:
        """The samples of the coming step, when they are there."""
        if self.present is None:
            self.present = self._make(self.intake.cut(self.place.batch, self.policy_version))
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
                self.intake.tell(version)
            except MillstreamError as error:  # the step is delivered all the same
                logger.warning("producers could not be told of version %d: %s", version, error.message)
        with defer_sigint():
            self.step, self.place, self.policy_version = self.step + 1, place, version
            if place.begins_batch:
                self.present = None
                self.intake.used_up()

    @property
    def odd_group(self) -> tuple[Id, str, int] | None:
        """The first group of another size than was said, if this rank decides."""
        decide = self.intake.decide
        return decide.odd_group if isinstance(decide, Admission) else None

    def close(self) -> None:
        """Wait no longer, tell producers, and let go of the feed and the journal."""
        self.intake.close(self.policy_version)

    # State

    def restart(self) -> None:
        """Stand at the last state that was committed or loaded, or at the beginning: no feed goes further back."""
        if self._committed is not None:
            self.resume(self._committed)
            return
        self.intake.restart()
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
        decide = self.intake.decide
        if isinstance(decide, Admission):
            return {**state, **self.intake.save(decide)}
        return {**state, **({"replay": True} if self.frontier.replays else {"follower": self.settings.rank})}

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
        present = None if loaded.cut is None else self._make(loaded.cut)
        with defer_sigint():
            self.intake.resume(loaded, cursor)
            self._committed, self.present = dict(state), present
            self.step, self.place, self.phases = step, place, phases
            self.policy_version, self._was_told = version, state.get("version_was_told") is True

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
