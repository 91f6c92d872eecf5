"""FeedRun: steps over rollouts that come while a model trains.

What admission cuts is a rollout batch. It is gone through some times (passes), each in an order of its own, and a pass
is cut into steps. State, feed, journal and sidecar stand at one frontier: what the state does not hold, the feed gives
again.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.admission import Admission, Cut
from millstream.batches.rollouts import RolloutRows
from millstream.errors import LoaderError, LossWarning, MillstreamError, StateError, UnknownLength
from millstream.feeds import Feed
from millstream.loaders import state as states
from millstream.loaders.feed_explain import RecordedRun
from millstream.loaders.feed_steps import FeedOrder, FeedPhase, FeedPlace, RolloutBatch
from millstream.loaders.origin import RowOrigin
from millstream.loaders.phases import read_count
from millstream.loaders.rollout_rated import rate
from millstream.loaders.rollout_steps import Dealer, DealtStep
from millstream.loaders.rollout_task import RolloutTask
from millstream.loaders.runs.checkpoint import FeedCheckpoint
from millstream.loaders.runs.intake import Intake
from millstream.loaders.runs.run import Locks
from millstream.order.steps import resized
from millstream.rollouts import Id, RolloutBlock
from millstream.stages.lifetime import defer_sigint

logger = logging.getLogger("millstream.loaders")
MOST_PHASES = 64
"""How many changes of a step's size a state remembers: steps before them cannot be explained."""
LEADER = 0
"""The rank that decides what is trained on; the others follow its journal."""


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
        self.intake = Intake(feed, checkpoint, timeout_s, self.locks)
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
        self.phases = [FeedPhase(0, self._place, self.settings.batch_size * ranks, ranks)]
        self._present: RolloutBatch | None = None

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
        self.intake.tell(version)

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
        batch = self._present
        if batch is None:
            batch = self._rated(self.intake.cut(self._place.batch, self.policy_version))
            with self.locks.moving:
                self._present = self.last = batch
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
        assert self._present is not None
        place = self._place.after(self.phases[-1].rows, self._total(self._present), self.passes)
        version = self.policy_version + (place.begins_batch and not self._was_told)
        if place.begins_batch:
            try:
                self.intake.tell(version)
            except MillstreamError as error:  # the step is delivered all the same
                logger.warning("producers could not be told of version %d: %s", version, error.message)
        with defer_sigint():
            self.step, self._place, self.policy_version = self.step + 1, place, version
            if place.begins_batch:
                self._present, self._rows = None, (None, None)
                self.intake.used_up()

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
        if step != self.step:
            raise LoaderError(
                f"this run does not know any more where it stood before step {step}",
                hint="save a state before the next batch is taken",
            )
        state = {
            **states.header(self.kind, self.step, self.settings.seed, self._row_facts),
            **self._place.to_json(),
            "policy_version": self.policy_version,
            "version_was_told": self._was_told,
            "phases": [phase.to_json() for phase in self.phases],
        }
        decide = self.intake.decide
        if isinstance(decide, Admission):
            return {**state, **self.intake.save(decide)}
        return {**state, **({"replay": True} if self.checkpoint.replays else {"follower": self.settings.rank})}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self._check(state)
        place = FeedPlace.from_json(state)
        version = read_count(state.get("policy_version"), "policy_version")
        phases = [FeedPhase.from_json(each) for each in state.get("phases", ())]
        cursor = state.get("feed")
        if not isinstance(cursor, Mapping) or not phases:
            raise StateError(
                "the state does not say where its feed stood", hint="it is damaged; use another checkpoint"
            )
        loaded = self.checkpoint.load(state, time.monotonic())
        present = None if loaded.cut is None else self._rated(loaded.cut)
        with defer_sigint():
            self.intake.resume(loaded, cursor)
            self._committed, self._present = dict(state), present
            self.last = present or self.last
            self.step, self._place, self.phases = step, place, phases
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
            self.intake.release(state["feed"])
            self.checkpoint.release(state)
        self._committed = dict(state)

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels", "shuffle")
        facts = {key: getattr(self.settings, key) for key in shared}
        return {"loader": self.kind, **facts, **self._task.steps.facts, "step": self.step}

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the rollout of each row of this rank's batch at a step, from the journal in `cache_dir`.

        A `Span`'s id, and its file, is that of the rollout; its document is the number of its row in the rollout batch.
        """
        return self._recorded.explain(step)

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
        """Bytes of the present rollout batch."""
        present = self._present
        return 0 if present is None else present.rated.block.nbytes

    def __repr__(self) -> str:
        return f"{type(self.feed).__name__}, step {self.step}, {self._place.batch:,} rollout batches done"
