"""RolloutDataLoader: rollouts of inference engines -> batches with advantages, balanced and within their cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from millstream.advantages import AdvantageSettings
from millstream.batches import LossMean, TrainingBatch
from millstream.errors import LoaderError
from millstream.feeds.admission import mean_lengths
from millstream.loaders.fillers import RolloutDelivery, RolloutFiller
from millstream.loaders.loader import DataLoader
from millstream.loaders.rollouts import (
    Dealer,
    LiveSettings,
    MicroBatches,
    RolloutBatch,
    RolloutKeywords,
    RolloutSet,
    RolloutTask,
    advantage_settings,
    feed_run,
    is_feed,
    read_set,
    show_rollout,
    stored,
)
from millstream.loaders.rows import RowShape, RowSource, id_limit
from millstream.loaders.runs import FeedRun, RolloutSetRun
from millstream.order import Share
from millstream.rollouts import Id, OnBad
from millstream.stats import Shown, counted
from millstream.store import TokenStore

UNKNOWN_LENGTH = 1 << 20
"""Tokens of the longest rollout of a feed, where no limit was given."""


class RolloutDataLoader(DataLoader[TrainingBatch]):
    """Rollouts, how good each token of them was, and everything else that a step of RL needs.

    >>> record = {"group_id": "2+2?", "token_ids": [7, 8, 9], "loss_mask": [0, 1, 1], "finish": "stop"}
    >>> samples = [{**record, "rollout_id": i, "reward": reward} for i, reward in enumerate((1.0, 0.0))]
    >>> with RolloutDataLoader(rollout_data=samples, compute_advantages=True, framework="numpy") as loader:
    ...     batch = loader.get_batch(batch_size=2)
    >>> row = batch.metadata["rollout_id"].index(0)
    >>> [f"{advantage:.3f}" for advantage in batch.metadata["advantages"][row]]  # of the targets 8, 9 and none
    ['0.707', '0.707', '0.000']

    Args:
        rollout_data: Records as dicts or dataclasses, files of them (JSON lines or arrays, Parquet, msgpack,
            `.rollouts`), or a `RolloutBlock`; or a feed, from which they come while training (docs/howto/feeds.md).
        tokenizer: What `load_tokenizer` takes; needed where records hold text instead of ids, and to show rollouts.
        compute_advantages: Whether batches have advantages; False leaves that to the trainer.
        estimator: "grpo" (default), "dr_grpo", "rloo", "reinforce++", "gae", …
        advantages: Its settings, by name (`{"epsilon": 1e-4}`) or as `AdvantageSettings`.
        max_length: The most tokens of a rollout: a longer one is an error, not cut. By default the model's.
        name: Of the source; part of its key.
        pad_id: What padding is filled with; by default the tokenizer's or the model's, else 0.
        on_bad: What becomes of records that cannot be used: "error", "skip" (counted in `losses`).
        live: Of feeds: which rollouts are trained on, and when, by name (`{"group_size": 8}`) or as `LiveSettings`.
        keywords: How steps are cut, by the names of `StepSettings` (packing, pad_to_multiple_of, balance, keep_groups,
            micro_tokens, micro_multiple, loss, loss_constant, cost), and the keywords of every loader.
    """

    kind = "rollout"
    _run: RolloutSetRun | FeedRun

    def __init__(
        self,
        rollout_data: Any,
        *,
        tokenizer: Any = None,
        compute_advantages: bool = True,
        estimator: str = "grpo",
        advantages: AdvantageSettings | Mapping[str, Any] | None = None,
        max_length: int | None = None,
        name: str = "rollouts",
        pad_id: int | None = None,
        on_bad: OnBad = "error",
        live: LiveSettings | Mapping[str, Any] | None = None,
        **keywords: Unpack[RolloutKeywords],
    ) -> None:
        rating = advantage_settings(advantages, estimator, compute=compute_advantages)
        task = RolloutTask.of(name, tokenizer, rating, max_length, pad_id, keywords)
        dealer, delivery = Dealer(task), RolloutDelivery(task.settings.transforms)
        run: RolloutSetRun | FeedRun
        if is_feed(rollout_data, live=live is not None):
            told = LiveSettings.of(live, task)
            run, longest = feed_run(rollout_data, told, task, dealer, skips_bad=on_bad != "error"), UNKNOWN_LENGTH
        elif live is not None:
            raise LoaderError(
                "live= is about feeds, and these rollouts are all here",
                hint="leave it out, or pass a feed: a spool folder, redis://…, or what open_feed() gives",
            )
        else:
            rollouts = read_set(rollout_data, task, on_bad)
            run, longest = RolloutSetRun(rollouts, task, dealer), rollouts.longest
        super().__init__(run, RolloutFiller(run, dealer, delivery, task.settings.prefetch), delivery, task.settings)
        self.kind, self.name, self.steps, self.tokenizer = run.kind, name, task.steps, task.tokenizer
        self.shape = RowShape(task.limits.longest or longest, "row", pad_id=task.pad_id)
        self._micro = delivery.finish_micro

    @property
    def is_feed(self) -> bool:
        """Whether rollouts come while a model trains."""
        return isinstance(self._run, FeedRun)

    @property
    def rollouts(self) -> RolloutSet:
        """All rollouts of a fixed set."""
        if not isinstance(self._run, RolloutSetRun):
            raise LoaderError("a feed has no fixed set of rollouts", hint="its batches hold those that came")
        return self._run.rollouts

    @property
    def policy_version(self) -> int:
        """Of a feed: the version of the policy that the next step trains. Set it after each update of the weights."""
        return self._feed_run.policy_version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        run = self._feed_run
        if not isinstance(version, int | np.integer) or isinstance(version, bool):
            raise LoaderError(f"policy_version={version!r} is no version", hint="set it to a whole number, 0 or more")
        with self._locks.moving:
            run.tell_version(int(version))

    @property
    def _feed_run(self) -> FeedRun:
        if not isinstance(self._run, FeedRun):
            raise LoaderError(
                "a fixed set of rollouts has no policy_version: which rollouts are trained on depends on none",
                hint="only a loader over a feed counts versions; leave it out here",
            )
        return self._run

    def get_micro_batches(self, batch_size: int | None = None) -> MicroBatches:
        """Give the rollouts of `get_batch` in micro-batches of at most `micro_tokens`, as many on every rank.

        Those without a rollout are a row of padding without loss. Every one has the denominators of the whole step.
        """
        found = self._handover.take(batch_size, self._checked_micro)
        assert found is not None  # a filler of rollouts has no end of an epoch
        return found

    def iterate_micro_batches(self) -> Iterator[MicroBatches]:
        """Iterate over the rest of the present epoch, each step in micro-batches."""
        return self._handover.rest_of_epoch(self._checked_micro)

    @property
    def _checked_micro(self) -> Callable[[Any], tuple[MicroBatches, int]]:
        if self.steps.micro_tokens is None:
            raise LoaderError(
                "it is not said how much fits into a micro-batch", hint="pass micro_tokens= to the loader"
            )
        return self._micro

    @cached_property
    def member(self) -> RowSource:
        """These rollouts as a part of a mixture: their tokens in a store."""
        for name, wrong in (("packing", self.steps.packing), ("keep_groups", self.steps.keep_groups)):
            if wrong:
                raise LoaderError(
                    f"rollouts with {name}=True cannot be mixed: a mixture deals out rows one by one",
                    hint=f"leave out {name}=; advantages are those of whole groups all the same",
                )
        store = stored(self.rollouts.block, self.rollouts.fingerprint, self.settings.cache_dir)
        limit = id_limit(store, self.tokenizer, self.settings)
        return RowSource(store, Share(store.documents, self.settings.shuffle), self.shape, limit, self.tokenizer)

    @property
    def store(self) -> TokenStore:
        """The tokens of these rollouts, as a mixture uses them."""
        return self.member.store

    @property
    def loss(self) -> LossMean:
        """What the loss of a mixture is a mean of."""
        if self.steps.loss not in ("token", "sequence"):
            raise LoaderError(f"a mixture knows no loss={self.steps.loss!r}", hint="use 'token' or 'sequence'")
        return LossMean(self.steps.loss)

    def number_of(self, rollout_id: Id) -> int:
        """The number of a rollout, as `explain`, `steps_of` and `show` take it."""
        found = np.flatnonzero(self.rollouts.block["rollout_id"] == rollout_id)
        if len(found) == 0:
            raise LoaderError(f"there is no rollout {rollout_id!r}", hint="ids are those of the records, int or str")
        return int(found[0])

    def show(self, row: int = 0, step: int | None = None, *, whole: bool = False) -> Shown:
        """Show a rollout, or with `step` that of a row of this rank's batch: what is trained, how good it was, and how
        the other rollouts of its group did. Of long prompts and outputs of tools, the middle only with `whole`.

        A feed shows rollouts of the last rollout batch, by their number in it.

        >>> record = {"group_id": "g", "token_ids": [72, 105], "loss_mask": [0, 1], "finish": "stop"}
        >>> samples = [{**record, "rollout_id": name, "reward": reward} for name, reward in (("a", 1.0), ("b", 0.0))]
        >>> RolloutDataLoader(samples, estimator="rloo").show(0)
        ══ rollout 'a' of group 'g' (rollouts:1)  2 tokens, 1 trained (50.0 %)  reward 1, ended by stop
        72 ⟦105 ⟧+1
        group 'g': 2 rollouts, rewards from 0 to 1, mean 0.5 ± 0.707
        ▶ 'a'  reward        1  advantage +1.0000       2 tokens  stop    ████████████████████
          'b'  reward        0  advantage -1.0000       2 tokens  stop
        <BLANKLINE>
        """
        decode = None if self.tokenizer is None else self.tokenizer.decode
        if isinstance(self._run, FeedRun):
            return self._show_last(self._run.last, row, step, decode, whole=whole)
        if step is not None:
            origins = self.explain(step)
            if not 0 <= row < len(origins):
                raise LoaderError(
                    f"step {step} has no row {row}, only {counted(len(origins), 'row')}",
                    hint="rows count from 0; another rank has the others",
                )
            row = origins[row].sample
        rollouts = self.rollouts
        rollouts.check_number(row)
        group = rollouts.group_members[int(rollouts.groups[row])].tolist()
        return show_rollout(rollouts.block, row, group, decode=decode, where=rollouts.origin(row), whole=whole)

    def _show_last(
        self,
        batch: RolloutBatch | None,
        row: int,
        step: int | None,
        decode: Callable[[Sequence[int]], str] | None,
        *,
        whole: bool,
    ) -> Shown:
        """Show a rollout of the last rollout batch of a feed."""
        if step is not None:
            raise LoaderError(
                f"rollouts of step {step} are not kept: a feed shows those of the last rollout batch",
                hint="leave out step=; explain(step) names the rollouts of any step",
            )
        if batch is None or not 0 <= row < len(batch.groups):
            raise LoaderError(
                f"there is no rollout {row} at hand",
                hint="call next() first" if batch is None else f"they count from 0 to {len(batch.groups) - 1}",
            )
        group = np.flatnonzero(batch.groups == batch.groups[row]).tolist()
        return show_rollout(batch.rated.block, row, group, decode=decode, whole=whole)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say what every loader says; over a feed, `mean_lengths` are the tokens per rollout of each fate."""
        results = super().get_profiling_results()
        return {**results, "mean_lengths": mean_lengths(results["losses"])} if self.is_feed else results

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._run!r})"
