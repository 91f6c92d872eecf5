"""RolloutFeedDataLoader: rollouts that come while a model trains -> batches, by rules, exactly once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.admission import AdmissionRules, Cut
from millstream.admission.tally import mean_lengths
from millstream.batches.rollouts import RolloutRows
from millstream.errors import LoaderError, LossWarning, UnknownLength
from millstream.feeds import Feed
from millstream.loaders.feed_explain import RecordedRun
from millstream.loaders.feed_frontier import Frontier
from millstream.loaders.feed_intake import FeedEnded
from millstream.loaders.feed_run import FeedRun
from millstream.loaders.feed_steps import RolloutBatch
from millstream.loaders.origin import RowOrigin
from millstream.loaders.rollout_loader import Made, RolloutLoader
from millstream.loaders.rollout_rated import rate
from millstream.loaders.rollout_shown import show_rollout
from millstream.loaders.rollout_steps import DealtStep, dealt, expanded
from millstream.loaders.rollout_task import RolloutTask
from millstream.rollouts import Id, RolloutBlock
from millstream.stats.styled import Shown

UNKNOWN_LENGTH = 1 << 20
"""Tokens of the longest rollout, where nobody said how long one may be."""


class RolloutFeedDataLoader(RolloutLoader):
    """Rollout batches that are cut from a feed, each gone through `passes` times.

    `RolloutDataLoader(feed, …)` makes one. An epoch is a pass over a rollout batch; `for batch in loader` goes on until
    every producer has closed the feed.

    Args:
        feed: Where rollouts come from.
        task: What is made of them.
        rules: Which of them are trained on, and when.
        passes: How often each rollout batch is gone through, in another order each time.
        policy_version: What the first step trains. Later ones are counted by rollout batches, unless the trainer says
            `loader.policy_version = …`.
        timeout_s: How long to wait for a rollout batch; None: for ever.
        replay_journal: Train once more on what the journal in `cache_dir` says, in the same order.
    """

    kind = FeedRun.kind
    _run: FeedRun

    def __init__(
        self,
        feed: Feed,
        task: RolloutTask,
        *,
        rules: AdmissionRules,
        passes: int = 1,
        policy_version: int = 0,
        timeout_s: float | None = None,
        replay_journal: bool = False,
    ) -> None:
        super().__init__(task, UNKNOWN_LENGTH)
        self._task, settings = task, task.settings
        self._last: RolloutBatch | None = None
        self._warned = False
        frontier = Frontier(rules, settings.seed, settings.cache_dir, leads=settings.rank == 0, replay=replay_journal)
        self._made: tuple[RolloutBatch, RolloutRows] | None = None
        self._run = FeedRun(
            feed,
            frontier,
            settings,
            name=task.name,
            passes=passes,
            keep_groups=task.steps.keep_groups,
            policy_version=policy_version,
            timeout_s=timeout_s,
            make=self._rated,
            row_facts=task.steps.facts,
        )

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
        self._last = RolloutBatch(cut.policy_version, replace(rated, block=block), groups, facts)
        return self._last

    @property
    def policy_version(self) -> int:
        """The version of the policy that the coming step trains. Set it after each update of the weights."""
        return self._run.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        with self._turn:
            self._run.tell_version(version)

    def _coming(self, batch_size: int | None) -> DealtStep:
        self._agreement.check(self.plan_fingerprint)
        run = self._run
        found = run.coming(self.settings.batch_size if batch_size is None else batch_size)
        self._warn_of_odd_groups()
        batch = run.present
        assert batch is not None
        if self._made is None or self._made[0] is not batch:
            self._made = batch, RolloutRows([batch.rated.block], self._format, self._buffers)
        numbers, counts = found.samples, found.counts
        if self.steps.keep_groups:
            numbers, counts = expanded(numbers, counts, batch.group_members)
        facts = {"epoch": found.epoch, "step": found.step, "rollout_batch": run.place.batch, "pass": run.place.number}
        return dealt(
            self._made[1],
            numbers,
            counts,
            self.settings.rank,
            self.steps,
            groups=batch.groups[numbers].tolist() if self.steps.keep_groups else None,
            facts={**facts, **batch.facts},
        )

    def _warn_of_odd_groups(self) -> None:
        """Say once that groups are not as large as was said."""
        odd = self._run.odd_group
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

    def _advance(self) -> None:
        self._run.advance()
        if self._run.present is None:
            self._made = None

    def _rest(self, give: Callable[[], Made]) -> Iterator[Made]:
        while True:
            epoch = self.epoch
            try:
                made = give()
            except FeedEnded:
                return
            yield made
            if self.epoch != epoch:
                self._callbacks.epoch_ended(epoch)

    def get_num_batches(self) -> int:
        """Nobody knows how much a feed will bring."""
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

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands; files in `cache_dir` that it names hold the rollouts that wait."""
        with self._turn:
            return self._run.state()

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: feed and sidecars let go of what lies before it."""
        with self._turn:
            self._run.commit(state)

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the rollout of each row of this rank's batch at a step, from the journal in `cache_dir`.

        A `Span`'s file is the rollout's id, its document the number of its row in the rollout batch.
        """
        return self._recorded.explain(step)

    def steps_of(self, document: Id, source: str | None = None) -> list[int]:
        """Name the steps that a rollout was in, on any rank, given by its id."""
        if source not in (None, self.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.name!r}")
        return self._recorded.steps_of(document)

    @property
    def _recorded(self) -> RecordedRun:
        journal = self._run.frontier.journal_path
        if journal is None:
            raise LoaderError(
                "nobody wrote down what was trained on", hint="pass cache_dir=: the journal of admissions is kept there"
            )
        return RecordedRun(journal, self._run.phases, self._run.order, self.steps)

    def show(self, row: int = 0, *, whole: bool = False) -> Shown:
        """Show a rollout of the last rollout batch, by its number in it, and how the others of its group did."""
        batch = self._last
        if batch is None or not 0 <= row < len(batch.groups):
            raise LoaderError(
                f"there is no rollout {row} at hand",
                hint="call next() first" if batch is None else f"they count from 0 to {len(batch.groups) - 1}",
            )
        group = np.flatnonzero(batch.groups == batch.groups[row]).tolist()
        decode = None if self.tokenizer is None else self.tokenizer.decode
        return show_rollout(batch.rated.block, row, group, decode=decode, whole=whole)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels", "shuffle")
        facts = {key: getattr(self.settings, key) for key in shared}
        return {"loader": self.kind, **facts, **self.steps.facts, "step": self.step}

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What became of everything that came in, by reason: see docs/rollouts.md."""
        return self._run.intake.counters

    def get_profiling_results(self) -> dict[str, Any]:
        """Say what every loader says, and in `mean_lengths` the tokens per rollout of what was cut and was dropped."""
        return {**super().get_profiling_results(), "mean_lengths": mean_lengths(self.losses)}

    @property
    def _held_bytes(self) -> int:
        present = self._run.present
        return 0 if present is None else present.rated.block.nbytes

    def close(self) -> None:
        """Stop waiting, and let go of the feed and the journal; what was not committed stays where it is."""
        super().close()
        self._run.close()

    def __repr__(self) -> str:
        done = f"{self._run.place.batch:,} rollout batches"
        return f"{type(self).__name__}({type(self._run.feed).__name__}, step {self.step}, {done} done)"
