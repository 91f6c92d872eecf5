"""FeedRun: steps over rollouts that come while a model trains.

What admission cuts is a rollout batch. It is gone through some times (passes), each in an order of its own, and a pass
is cut into steps. State, feed, journal and sidecar stand at one frontier: what the state does not hold, the feed gives
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from millstream.batches import RolloutRows
from millstream.errors import LoaderError, MillstreamError, StateError, UnknownLength
from millstream.feeds import Feed
from millstream.feeds.admission import AdmittedBatch
from millstream.loaders import warn_of_odd_group
from millstream.loaders.rollouts import (
    Dealer,
    DealtStep,
    FeedOrder,
    FeedPhase,
    FeedPlace,
    Recorded,
    RecordedRun,
    RolloutBatch,
    RolloutTask,
)
from millstream.loaders.runs.checkpoint import FeedCheckpoint
from millstream.loaders.runs.feed_history import KEPT_STEPS, LEADER, FeedMark, Marks, Versions, check_leads, follows
from millstream.loaders.runs.intake import Intake
from millstream.loaders.runs.run import Locks
from millstream.order import order_version, resized
from millstream.rollouts import Id
from millstream.stages import defer_sigint
from millstream.storage import DAMAGED_STATE, check_state_header, state_header

logger = logging.getLogger("millstream.loaders")
MOST_PHASES = 64
"""How many changes of a step's size a state remembers: steps before them cannot be explained."""
AHEAD = 1
"""Rollout batches that are cut ahead, unless `prefetch` says it: more would only be older when they are trained on."""


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
        self.passes, self._versions, self._marks = passes, Versions(policy_version), Marks()
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
        self._versions.restart()
        self.phases = [FeedPhase(0, self._place, self.settings.batch_size * ranks, ranks)]
        self._marks.clear()

    @property
    def policy_version(self) -> int:
        """What the next step trains."""
        return self._versions.present

    def tell_version(self, version: int) -> None:
        """The trainer says which version of the policy the next step trains; else rollout batches are counted."""
        self._versions.tell(version, is_next=self.intake.present is None)
        self.intake.tell(version)
        self.intake.recheck()

    def _expected(self, batch: int) -> int | None:
        """The version that a rollout batch which is not handed over will train; None: that is not known."""
        return self._versions.expected(batch, self._place.batch)

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
            self._versions.hand_over(self._place.batch, batch.policy_version)
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

    def _rated(self, cut: AdmittedBatch) -> RolloutBatch:
        return RolloutBatch.of(cut, self._task.rating)

    def _total(self, batch: RolloutBatch) -> int:
        """Samples of a rollout batch."""
        return batch.samples(keep_groups=self._task.steps.keep_groups)

    def _warn_of_odd_groups(self) -> None:
        """Say once that groups are not as large as was said."""
        if not self._warned and (odd := self.intake.odd_group) is not None:
            self._warned = True
            warn_of_odd_group(*odd)

    def advance(self) -> None:
        """The next step was delivered."""
        present = self.intake.present
        assert present is not None
        place = self._place.after(self.phases[-1].rows, self._total(present), self.passes)
        version = self._versions.after(begins_batch=place.begins_batch)
        if place.begins_batch:
            try:
                self.intake.tell(version)
            except MillstreamError as error:  # the step is delivered all the same
                logger.warning("producers could not be told of version %d: %s", version, error.message)
        with defer_sigint():
            self._marks.add(self._mark)
            self.step, self._place, self._versions.present = self.step + 1, place, version
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
        mark = self._mark if step == self.step else self._marks.at(step)
        state = {
            **state_header(self.kind, step, self.settings.seed, self._row_facts, order_version=order_version),
            **mark.to_json(),
        }
        if self.intake.decides:
            return {**state, **self.intake.save(step, mark.place.batch, begins=mark.place.begins_batch)}
        return {**state, **follows(self.settings.rank, replays=self.checkpoint.replays)}

    @property
    def _mark(self) -> FeedMark:
        return FeedMark(self.step, self._place, self.policy_version, self._versions.was_told, self.phases)

    def _keep_marks(self) -> None:
        """Remember where the last steps began, as far as there is memory for their rollouts."""
        most = self.settings.memory_budget
        while len(self._marks) > KEPT_STEPS or (
            most is not None and self._marks and self.intake.kept_bytes > most // 2
        ):
            self._marks.forget_first()
            self.intake.keep_from(self._marks.first_batch(self._place))

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        mark, cursor = FeedMark.from_state(self._check(state), state), state.get("feed")
        if not isinstance(cursor, Mapping):
            raise StateError("the state does not say where its feed stood", hint=DAMAGED_STATE)
        loaded = self.checkpoint.load(state, time.monotonic())
        present = None if loaded.cut is None else self._rated(loaded.cut)
        with defer_sigint():
            self.intake.resume(loaded, cursor, mark.place.batch, present)
            self._versions.resume(mark.policy_version, was_told=mark.was_told)
            self.step, self._place, self.phases = mark.step, mark.place, mark.phases
            self._marks.clear()
            self._committed, self.last = dict(state), present or self.last

    def _check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        step = check_state_header(state, self.kind, self.settings.seed, self._row_facts, order_version=order_version)
        check_leads(state)
        return step

    def commit(self, state: Mapping[str, Any]) -> None:
        """Release everything that lies before a state."""
        self._check(state)
        if self.settings.rank == LEADER:
            self._marks.forget_before(state["step"])
            self.intake.keep_from(self._marks.first_batch(self._place))
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
        return self._recorded.steps_of(document, source)

    @property
    def _recorded(self) -> RecordedRun:
        return RecordedRun(self.checkpoint.written_journal, self.phases, self.order, self._task.steps)

    @property
    def losses(self) -> dict[str, int]:
        """What became of everything that came in, by reason: see docs/reference/losses.md."""
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
        """AdmittedBatch so many rollout batches ahead from now on, and start."""
        with self.locks.asking:
            self.intake.prefetch(batches)

    def __repr__(self) -> str:
        return f"{type(self.feed).__name__}, step {self.step}, {self._place.batch:,} rollout batches done"
