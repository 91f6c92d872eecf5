"""FeedRun: steps over rollouts that come while a model trains.

What admission cuts is a rollout batch. It is gone through some times (passes), each in an order of its own, and a pass
is cut into steps. State, feed, journal and sidecar stand at one frontier: what the state does not hold, the feed gives
again.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from millstream.admission import Admission, Cut
from millstream.batches.rollouts import RolloutRows
from millstream.errors import LoaderError, LossWarning, MillstreamError, StateError, UnknownLength
from millstream.feeds import Feed
from millstream.loaders.feed_explain import Recorded, RecordedRun
from millstream.loaders.feed_steps import FeedOrder, FeedPhase, FeedPlace, RolloutBatch
from millstream.loaders.rollout_rated import rate
from millstream.loaders.rollout_steps import Dealer, DealtStep
from millstream.loaders.rollout_task import RolloutTask
from millstream.loaders.runs.checkpoint import FeedCheckpoint
from millstream.loaders.runs.intake import Intake
from millstream.loaders.runs.run import Locks
from millstream.order.steps import resized
from millstream.rollouts import Id, RolloutBlock
from millstream.stages.lifetime import defer_sigint
from millstream.storage import state as states
from millstream.storage.state import read_count

logger = logging.getLogger("millstream.loaders")
KEPT_STEPS = 64
"""Steps whose states can still be asked for when later ones were delivered."""
MOST_PHASES = 64
"""How many changes of a step's size a state remembers: steps before them cannot be explained."""
AHEAD = 1
"""Rollout batches that are cut ahead, unless `prefetch` says it: more would only be older when they are trained on."""
LEADER = 0
"""The rank that decides what is trained on; the others follow its journal."""


class FeedMark(NamedTuple):
    """Where a run stood before a step."""

    step: int
    place: FeedPlace
    policy_version: int
    was_told: bool
    phases: list[FeedPhase]


class FeedRun:
    """A step of a run over a feed. An epoch is a pass over a rollout batch.

    Args:
        feed: Where rollouts come from.
        checkpoint: What lies on disk beside the states.
        task: What is made of rollouts.
        dealer: Makes the steps of it.
        passes: How often each rollout batch is gone through, in another order each time.
        policy_version: What the first step trains. Later ones are counted by rollout batches, unless the trainer says
            `loader.policy_version = …`.
        timeout_s: How long a rollout batch is waited for; None: as long as it takes.
    """

    kind = "rollout feed"
    steps_back = False
    is_known = True
    step: int

    def __init__(
        self,
        feed: Feed,
        checkpoint: FeedCheckpoint,
        task: RolloutTask,
        dealer: Dealer,
        *,
        passes: int = 1,
        policy_version: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        settings = task.settings
        self.feed, self.checkpoint, self.settings, self.name = feed, checkpoint, settings, task.name
        self.locks, self._task, self._dealer = Locks(), task, dealer
        self.order = FeedOrder(task.name, settings.seed, settings.shuffle, settings.rank, settings.world_size, passes)
        self.passes, self._first_version = passes, policy_version
        self.intake = Intake(
            feed, checkpoint, timeout_s, self.locks, self._rated, self._expected, settings.prefetch or AHEAD
        )
        self._row_facts = {**task.steps.facts, "passes": passes}
        self._committed: dict[str, Any] | None = None
        self.last: RolloutBatch | None = None
        """The last rollout batch that was there."""
        self._rows: tuple[RolloutBatch | None, RolloutRows | None] = None, None
        self._warned = False
        self._stand()

    def _stand(self) -> None:
        ranks = self.settings.world_size
        self.step, self._place = 0, FeedPlace()
        self.policy_version, self._was_told = self._first_version, False
        self._trained: list[int] = []
        """The versions of the last three rollout batches that were handed over."""
        self._handed, self._is_set = -1, False
        """The number of the last of them; and whether the trainer has said the version of the next one."""
        self.phases = [FeedPhase(0, self._place, self.settings.batch_size * ranks, ranks)]
        self._marks: deque[FeedMark] = deque()
        """Where the last steps began: for states of batches that were delivered."""

    @property
    def _leads(self) -> bool:
        """Whether this rank decides."""
        return self.settings.rank == LEADER

    def tell_version(self, version: int) -> None:
        """The trainer says which version of the policy the next step trains; else rollout batches are counted."""
        if version < self.policy_version:
            raise LoaderError(
                f"policy_version went back from {self.policy_version} to {version}",
                hint="versions only grow; to go back, load the state that was saved then",
            )
        self.policy_version, self._was_told = version, True
        self._is_set = self.intake.present is None
        self.intake.tell(version)
        self.intake.recheck()

    def _expected(self, batch: int) -> int | None:
        """The version that a rollout batch which is not handed over will train; None: that is not known.

        It is counted, unless the trainer says it: then it grows as it did between the last three rollout batches.
        """
        if not self._was_told:
            return self.policy_version + batch - self._place.batch
        place, trained = self._place.batch, self._trained
        if self._is_set and batch == place:
            return self.policy_version
        strides = set(np.diff(trained).tolist())
        if len(trained) < 3 or len(strides) > 1:
            return None
        known, version = (place, self.policy_version) if self._is_set else (self._handed, trained[-1])
        expected = version + strides.pop() * (batch - known)
        return expected if expected >= self.policy_version else None

    # Epochs

    @property
    def epoch(self) -> int:
        """Passes before the present one."""
        return self._place.batch * self.passes + self._place.number

    def wait_until_known(self) -> None:
        """The pass of the next step is always known."""

    def in_epoch(self, epoch: int) -> bool:
        """Iteration ends when all producers have closed the feed."""
        return True

    def check_epochs(self) -> None:
        """The end of a feed is noticed when it is there."""

    def end_epoch(self) -> None:
        """Rollout batches end passes."""

    def steps_in_epoch(self) -> int:
        """It cannot be known how much a feed will bring."""
        raise UnknownLength(
            "a feed has no length: it ends when its producers close it",
            hint="count steps yourself, or iterate until the loader ends",
        )

    def seek(self, step: int) -> None:
        """Stay at the present step; a feed goes nowhere else."""
        if step != self.step:
            raise LoaderError(
                f"a feed cannot go from step {self.step} to step {step}",
                hint="load_state_dict() goes to a state, reset() to the last committed one",
            )

    # Steps

    @property
    def place(self) -> list[FeedPhase]:
        """What `coming` changes, for a way back."""
        return self.phases

    @place.setter
    def place(self, phases: list[FeedPhase]) -> None:
        self.phases = phases

    def coming(self, batch_size: int) -> DealtStep:
        """The next step, when its rollouts are there, with so many of them (or groups) for each rank."""
        batch = self.intake.present
        if batch is None:
            batch = self.intake.take(self.policy_version)
        with self.locks.moving, defer_sigint():
            if self._handed != self._place.batch:
                self._trained = [*self._trained, batch.policy_version][-3:]
                self._handed, self._is_set = self._place.batch, False
        self.last = batch
        self._warn_of_odd_groups()
        with self.locks.moving:
            ranks = self.settings.world_size
            fresh = FeedPhase(self.step, self._place, batch_size * ranks, ranks)
            self.phases = resized(self.phases, fresh, MOST_PHASES)
            found = self.order.samples_of(self._total(batch), self.step, self._place, self.phases[-1])
        if self._rows[0] is not batch:
            self._rows = batch, self._dealer.rows(batch.rated.block)
        rows = self._rows[1]
        assert rows is not None
        facts = {"rollout_batch": self._place.batch, "pass": self._place.number, **batch.facts}
        return self._dealer.dealt(rows, found, batch, facts, batch_size)

    def later(self, number: int, batch_size: int) -> None:
        """Steps are dealt when they are asked for; their rollouts are made ready before."""
        return

    def _rated(self, cut: Cut) -> RolloutBatch:
        rated = rate(cut.block, self._task.rating)
        sizes = np.diff(cut.group_ends, prepend=0)
        groups = np.repeat(np.arange(len(sizes)), sizes)[rated.rows]
        drops: dict[str, int] = {}
        for drop in cut.drops:
            drops[drop.reason] = drops.get(drop.reason, 0) + len(drop.names)
        rows = {**rated.block.rows, "replayed": np.array(cut.replayed)[groups]}
        block = RolloutBlock(rated.block.ends, rows, rated.block.tokens, rated.block.kept_ids)
        facts = {"statistics": rated.facts, "policy_version_trained": cut.policy_version, "dropped": drops}
        return RolloutBatch(cut.policy_version, replace(rated, block=block), groups, facts)

    def _total(self, batch: RolloutBatch) -> int:
        """Samples of a rollout batch."""
        return batch.samples(keep_groups=self._task.steps.keep_groups)

    def _warn_of_odd_groups(self) -> None:
        """Say once that groups are not as large as was said."""
        decide = self.intake.decide
        odd = decide.odd_group if isinstance(decide, Admission) else None
        if odd is None or self._warned:
            return
        self._warned = True
        group, came, size = odd
        warnings.warn(
            f"group {group!r} has {came}, and group_size says {size}; `losses` counts smaller ones that are trained on "
            "(short_groups), and what came too late for its group (late)",
            LossWarning,
            stacklevel=2,
        )

    def advance(self) -> None:
        """The next step was delivered."""
        present = self.intake.present
        assert present is not None
        place = self._place.after(self.phases[-1].rows, self._total(present), self.passes)
        version = self.policy_version + (place.begins_batch and not self._was_told)
        if place.begins_batch:
            try:
                self.intake.tell(version)
            except MillstreamError as error:  # the step is delivered all the same
                logger.warning("producers could not be told of version %d: %s", version, error.message)
        with defer_sigint():
            self._marks.append(self._mark)
            self.step, self._place, self.policy_version = self.step + 1, place, version
            if place.begins_batch:
                self._rows = None, None
                self.intake.used_up()
            self._keep_marks()

    def close(self) -> None:
        """Wait no longer, tell producers, and release the feed and the journal; what was not committed stays."""
        self.intake.close(self.policy_version)

    # State

    def restart(self) -> None:
        """Stand at the last state that was committed or loaded, or at the beginning: no feed goes further back."""
        if self._committed is not None:
            self.resume(self._committed)
            return
        self.intake.restart()
        self._stand()

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands; the sidecar that it names holds all rollouts that are not used up."""
        mark = self._mark if step == self.step else next((each for each in self._marks if each.step == step), None)
        if mark is None:
            raise LoaderError(
                f"where the run stood before step {step} is not known any more: the last {len(self._marks)} steps are",
                hint=f"save a state within {KEPT_STEPS} steps, and before a later one is committed",
            )
        state = {
            **states.header(self.kind, step, self.settings.seed, self._row_facts),
            **mark.place.to_json(),
            "policy_version": mark.policy_version,
            "version_was_told": mark.was_told,
            "phases": [phase.to_json() for phase in mark.phases],
        }
        if self.intake.decides:
            return {**state, **self.intake.save(step, mark.place.batch, begins=mark.place.begins_batch)}
        return {**state, **({"replay": True} if self.checkpoint.replays else {"follower": self.settings.rank})}

    @property
    def _mark(self) -> FeedMark:
        return FeedMark(self.step, self._place, self.policy_version, self._was_told, self.phases)

    def _keep_marks(self) -> None:
        """Remember where the last steps began, as far as there is memory for their rollouts."""
        most = self.settings.memory_budget
        while len(self._marks) > KEPT_STEPS or (
            most is not None and self._marks and self.intake.kept_bytes > most // 2
        ):
            self._marks.popleft()
            self.intake.keep_from(self._marks[0].place.batch if self._marks else self._place.batch)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self._check(state)
        place = FeedPlace.from_json(state)
        version = read_count(state.get("policy_version"), "policy_version")
        listed = state.get("phases")
        phases = [FeedPhase.from_json(each) for each in listed] if isinstance(listed, list) else []
        cursor = state.get("feed")
        if not isinstance(cursor, Mapping) or not phases:
            raise StateError(
                "the state does not say where its feed stood", hint="it is damaged; use another checkpoint"
            )
        loaded = self.checkpoint.load(state, time.monotonic())
        present = None if loaded.cut is None else self._rated(loaded.cut)
        with defer_sigint():
            self.intake.resume(loaded, cursor, place.batch, present)
            self._committed, self._trained, self._handed, self._is_set = dict(state), [], -1, False
            self.last = present or self.last
            self.step, self._place, self.phases = step, place, phases
            self._marks.clear()
            self.policy_version, self._was_told = version, state.get("version_was_told") is True

    def _check(self, state: Mapping[str, Any]) -> int:
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
        """Release everything that lies before a state."""
        self._check(state)
        if self._leads:
            while self._marks and self._marks[0].step < state["step"]:
                self._marks.popleft()
            self.intake.keep_from(self._marks[0].place.batch if self._marks else self._place.batch)
            self.intake.release(state["feed"])
            self.checkpoint.release(state)
        self._committed = dict(state)

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels", "shuffle")
        facts = {key: getattr(self.settings, key) for key in shared}
        return {"loader": self.kind, **facts, **self._task.steps.facts, "step": self.step}

    # Explaining

    def rows(self, step: int) -> list[tuple[Recorded, int]]:
        """The rollout of each row of this rank's batch at a step, from the journal in `cache_dir`.

        A `Span`'s id is that of the rollout, and its document the number of its row in the rollout batch. It has no
        file: the journal does not say which one a rollout came in.
        """
        return self._recorded.rows(step)

    def steps_of(self, document: Id, source: str | None) -> list[int]:
        """Name the steps that a rollout was in, on any rank, given by its id."""
        if source not in (None, self.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.name!r}")
        return self._recorded.steps_of(document)

    @property
    def _recorded(self) -> RecordedRun:
        journal = self.checkpoint.journal_path
        if journal is None:
            raise LoaderError(
                "nobody wrote down what was trained on", hint="pass cache_dir=: the journal of admissions is kept there"
            )
        return RecordedRun(journal, self.phases, self.order, self._task.steps)

    @property
    def losses(self) -> dict[str, int]:
        """What became of everything that came in, by reason: see docs/rollouts.md."""
        return self.intake.counters

    @property
    def held_bytes(self) -> int:
        """Bytes of the present rollout batch, and of those that are cut ahead."""
        return self.intake.held_bytes

    @property
    def ready(self) -> int:
        """Rollout batches that are cut ahead."""
        return self.intake.ready

    def prefetch(self, batches: int) -> None:
        """Cut so many rollout batches ahead from now on, and start."""
        with self.locks.asking:
            self.intake.prefetch(batches)

    def __repr__(self) -> str:
        return f"{type(self.feed).__name__}, step {self.step}, {self._place.batch:,} rollout batches done"
