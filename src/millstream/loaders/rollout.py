"""RolloutDataLoader: rollouts of inference engines -> batches with advantages, balanced and within their cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from inspect import signature
from typing import Any, Unpack

import numpy as np

from millstream.advantages import AdvantageSettings
from millstream.batches.rollouts import RolloutRows
from millstream.errors import LoaderError
from millstream.loaders.live import LiveSettings, feed_loader, is_feed
from millstream.loaders.loss import LossMean
from millstream.loaders.member import Member
from millstream.loaders.mixed_rollouts import stored
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.rollout_loader import Made, RolloutLoader
from millstream.loaders.rollout_run import RolloutRun, StepSamples
from millstream.loaders.rollout_set import read_set
from millstream.loaders.rollout_settings import RolloutKeywords, advantage_settings
from millstream.loaders.rollout_shown import show_rollout
from millstream.loaders.rollout_steps import DealtStep, dealt, expanded
from millstream.loaders.rollout_task import RolloutTask
from millstream.loaders.rows import id_limit
from millstream.order import Share
from millstream.rollouts import Id
from millstream.rollouts.parse import OnBad
from millstream.stats.figures import counted
from millstream.stats.styled import Shown
from millstream.store import TokenStore


class RolloutDataLoader(RolloutLoader):
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
            `.rollouts`), or a `RolloutBlock`; or a feed, from which they come while a model trains (docs/rollouts.md).
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
    _run: RolloutRun

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Make a loader over a fixed set, or over a feed, which takes the same arguments."""
        bound = signature(cls.__init__).bind(cls, *given, **named)
        bound.apply_defaults()
        asked = bound.arguments
        if not is_feed(asked["rollout_data"], live=asked["live"] is not None):
            return super().__new__(cls)
        return feed_loader(asked.pop("rollout_data"), asked)

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
        if live is not None:
            raise LoaderError(
                "live= is about feeds, and these rollouts are all here",
                hint="leave it out, or pass a feed: a spool folder, redis://…, or what open_feed() gives",
            )
        rating = advantage_settings(advantages, estimator, compute=compute_advantages)
        task = RolloutTask.of(name, tokenizer, rating, max_length, pad_id, keywords)
        self.rollouts = read_set(rollout_data, task, on_bad)
        super().__init__(task, self.rollouts.longest)
        self._rows = RolloutRows([self.rollouts.block], self._format, self._buffers)
        samples = len(self.rollouts.group_members) if self.steps.keep_groups else len(self.rollouts.block)
        self._run = RolloutRun(name, samples, self.rollouts.fingerprint, self.settings, self.steps.facts)

    @cached_property
    def member(self) -> Member:
        """These rollouts as a part of a mixture: their tokens in a store."""
        for name, wrong in (("packing", self.steps.packing), ("keep_groups", self.steps.keep_groups)):
            if wrong:
                raise LoaderError(
                    f"rollouts with {name}=True cannot be mixed: a mixture deals out rows one by one",
                    hint=f"leave out {name}=; advantages are those of whole groups all the same",
                )
        store = stored(self.rollouts.block, self.rollouts.fingerprint, self.settings.cache_dir)
        limit = id_limit(store, self.tokenizer, self.settings)
        return Member(store, Share(store.documents, self.settings.shuffle), self.shape, limit, self.tokenizer)

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

    def _coming(self, batch_size: int | None) -> DealtStep:
        self._agreement.check(self.plan_fingerprint)
        run = self._run
        size = self.settings.batch_size if batch_size is None else batch_size
        if size != run.batch_size:
            run.follow(size, run.step)
        return self._dealt(run.samples_of(run.step))

    def _dealt(self, found: StepSamples) -> DealtStep:
        """The rollouts of a step on every rank; where their number is not known any more, as if there were one."""
        numbers, counts = found.samples, found.counts
        if self.steps.keep_groups:
            numbers, counts = expanded(numbers, counts, self.rollouts.group_members)
        if found.rank is None:
            counts = [len(numbers)]
        return dealt(
            self._rows,
            numbers,
            counts,
            found.rank or 0,
            self.steps,
            groups=self.rollouts.groups[numbers].tolist() if self.steps.keep_groups else None,
            facts={"epoch": found.epoch, "step": found.step, "statistics": self.rollouts.rated.facts},
        )

    def _advance(self) -> None:
        self._run.step += 1

    def _rest(self, give: Callable[[], Made]) -> Iterator[Made]:
        epoch = self.epoch
        while self.epoch == epoch:
            yield give()
        self._callbacks.epoch_ended(epoch)

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has at the loader's own batch size, whatever `get_batch(k)` took meanwhile."""
        return self._run.steps_in_epoch

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""
        with self._turn:
            self._run.follow(self.settings.batch_size, step)
            self._jumped()

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the rollout of each row of this rank's batch at any step, without replaying the run.

        A `Span`'s document is the number of the rollout among those that were given.
        """
        found = self._dealt(self._run.samples_of(step))
        return [self._origin(row, int(number)) for row, number in enumerate(found.rollouts.places[found.own, 1])]

    def _origin(self, row: int, number: int) -> RowOrigin:
        block = self.rollouts.block
        span = Span(self.name, number, 0, int(block.lengths[number]), self.rollouts.origin(number))
        ids = block.of(number, "token_ids").tolist()
        return RowOrigin(
            row, self.name, number, (span,), None if self.tokenizer is None else self.tokenizer.decode(ids)
        )

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold a rollout, given by its number."""
        if source not in (None, self.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.name!r}")
        self._check_number(document)
        sample = int(self.rollouts.groups[document]) if self.steps.keep_groups else document
        return self._run.steps_of(range(sample, sample + 1))

    def number_of(self, rollout_id: Id) -> int:
        """The number of a rollout, as `explain`, `steps_of` and `show` take it."""
        found = np.flatnonzero(self.rollouts.block["rollout_id"] == rollout_id)
        if len(found) == 0:
            raise LoaderError(f"there is no rollout {rollout_id!r}", hint="ids are those of the records, int or str")
        return int(found[0])

    def _check_number(self, number: int) -> None:
        rollouts = len(self.rollouts.block)
        if not 0 <= number < rollouts:
            raise LoaderError(
                f"there is no rollout {number} among {counted(rollouts, 'rollout')}",
                hint=f"they count from 0 to {rollouts - 1}; number_of(rollout_id) finds one by its id",
            )

    def show(self, row: int = 0, step: int | None = None, *, whole: bool = False) -> Shown:
        """Show a rollout, or with `step` that of a row of this rank's batch: what is trained, how good it was, and how
        the other rollouts of its group did. Of long prompts and outputs of tools, the middle only with `whole`.

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
        if step is not None:
            origins = self.explain(step)
            if not 0 <= row < len(origins):
                raise LoaderError(
                    f"step {step} has no row {row}, only {counted(len(origins), 'row')}",
                    hint="rows count from 0; another rank has the others",
                )
            row = origins[row].sample
        self._check_number(row)
        rollouts, block = self.rollouts, self.rollouts.block
        group = rollouts.group_members[int(rollouts.groups[row])]
        decode = None if self.tokenizer is None else self.tokenizer.decode
        return show_rollout(block, row, group.tolist(), decode=decode, where=rollouts.origin(row), whole=whole)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common, for whoever compares it without torch.distributed (MPI, jax)."""
        return self._run.fingerprint()

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What is left out, and why: records by reason, rollouts without a reward, and rows that every epoch drops."""
        return self.rollouts.losses.counts | ({"dropped_rows": self._run.dropped()} if self.settings.drop_last else {})

    @property
    def _held_bytes(self) -> int:
        return self.rollouts.block.nbytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({counted(len(self.rollouts.block), 'rollout')}, step {self._run.step})"
