"""The loader over stores: a schedule says which rows, the engine fills them, the state is a step and its phases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from millstream._core import Batch
from millstream.batches import TrainingBatch
from millstream.batches.engine import Engine, EngineSettings, closed_error
from millstream.errors import BudgetError
from millstream.loaders import explain as explaining
from millstream.loaders.answers import AnswerRows
from millstream.loaders.delivery import Delivery
from millstream.loaders.loss import LossMean
from millstream.loaders.losses import store_losses
from millstream.loaders.member import Member, RowShape
from millstream.loaders.origin import RowOrigin
from millstream.loaders.run import Run
from millstream.loaders.running import RunningLoader, no_workers
from millstream.loaders.settings import LoaderSettings, positive
from millstream.order import Schedule
from millstream.tensors import inside_torch_worker


class StoreDataLoader(RunningLoader):
    """What PretrainDataLoader, ConversationDataLoader and MixedDataLoader have in common."""

    kind = "store"
    _run: Run
    names_rows = False
    """Whether `metadata["source"]` names the source of each row."""
    one_source = False
    """Whether a run is over one source for ever; else sources may come and go between states."""

    def __init__(
        self,
        members: Mapping[str, Member],
        shape: RowShape,
        settings: LoaderSettings,
        *,
        epoch_size: int | None = None,
        loss: LossMean | None = None,
    ) -> None:
        super().__init__(shape, settings)
        self._run = Run(self.kind, members, shape, settings, epoch_size, loss, one_source=self.one_source)
        whole = any(member.shape.whole_documents for member in members.values())
        self._delivery = Delivery(
            shape,
            settings,
            names_rows=self.names_rows,
            whole_documents=whole,
            loss=loss,
            answers=None if shape.answers is None else AnswerRows(shape.answers, settings.labels, self._run.members),
        )
        self._engine = Engine(
            EngineSettings(
                settings.threads,
                settings.prefetch,
                settings.memory_budget,
                settings.pad_last,
                0 if loss is None else loss.accumulation,
            )
        )
        self._cut_tokens = self._kl_cut_tokens = 0

    # The run

    @property
    def _turn(self) -> AbstractContextManager[Any]:
        return self._engine.turn  # a forked child has another

    def _jumped(self) -> None:
        """Go on elsewhere: what was counted of the rows so far is not about the rows that come."""
        self._engine.stop()
        self._cut_tokens = self._kl_cut_tokens = 0
        self._callbacks.jumped()

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""
        start = time.perf_counter_ns()
        with self._turn:
            run = self._run
            schedule, step, native = run.schedule, run.step, None
            rows = self.settings.batch_size if batch_size is None else batch_size
            if rows != run.samples:
                run.follow(positive("batch_size", rows), step)
                self._engine.stop()
            try:
                if not self._engine.running:
                    self._start()
                native = self._engine.take()
                batch = self._deliver(native)
            except BaseException as error:
                self._not_delivered(schedule, step, error, taken=native is not None)
                raise
            self._profile.delivered(batch.metadata["rows"], time.perf_counter_ns() - start)
            return batch

    def _start(self) -> None:
        """Let the engine run; whoever closes the loader meanwhile either finds it running or is noticed here."""
        self._check_open()
        self._agreement.check(self.plan_fingerprint)
        make_feed = partial(self._run.feed, self._delivery.id_bytes)
        end = self._end_step
        begun = self._run.phase.step
        self._engine.start(make_feed, self._run.step - begun, None if end is None else end - begun)
        self._check_open()

    @property
    def _end_step(self) -> int | None:
        """The first step that is not known yet, if there is one."""
        return None

    def _check_open(self) -> None:
        if self._closed:
            self._engine.stop()
            raise closed_error()

    def _not_delivered(self, schedule: Schedule, step: int, error: BaseException, *, taken: bool) -> None:
        """Stand where the run stood before a batch that did not reach the trainer: the next call gives it again."""
        resized = schedule is not self._run.schedule
        self._run.stand(schedule, step)
        if resized or taken or not isinstance(error, BudgetError):  # a ring without buffers goes on when it gets some
            self._engine.stop()
        if isinstance(error, Exception):
            self._callbacks.error(error)

    def _deliver(self, native: Batch) -> TrainingBatch:
        """Make a batch of what the engine filled, and move on by one step. This runs for every batch: keep it lean."""
        batch = self._completed(self._delivery.batch(native, self._run.phase, self._run.step), self._run.step)
        epoch, cut = batch.metadata["epoch"], sum(batch.metadata.get("cut_tokens", ()))  # before anybody changes them
        kl_cut = 0 if batch.kl is None else sum(batch.kl.metadata["cut_tokens"])
        self._run.step += 1
        batch = self._delivery.transformed(batch)
        if self._callbacks.any:
            self._callbacks.delivered(epoch, batch)
        self._cut_tokens += cut
        self._kl_cut_tokens += kl_cut
        return batch

    def _completed(self, batch: TrainingBatch, step: int) -> TrainingBatch:
        """Add what only this kind of loader knows; what is raised here leaves the run where it stands."""
        return batch

    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     [batch.metadata["rows"] for batch in loader.get_iterator()]
        [2, 2, 1]
        """
        if inside_torch_worker():
            raise no_workers()
        epoch = self.epoch
        while self.epoch == epoch:
            yield self.next()
        self._callbacks.epoch_ended(epoch)

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has at the loader's own batch size, whatever `get_batch(k)` took meanwhile."""
        return self._run.steps_in_epoch()

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""
        with self._turn:
            self._run.follow(self.settings.batch_size, step)
            self._jumped()

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, and start filling them."""
        depth = positive("prefetch", batches)
        with self._turn:
            self._engine.stop()
            self._engine.settings = replace(self._engine.settings, prefetch=depth)
            self._start()

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step, without replaying the run.

        A step of an earlier phase, that ran on another number of ranks, is explained whole.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     [(span.document, span.start, span.stop) for span in loader.explain(0)[1].spans]
        [(0, 4, 7), (1, 0, 1)]
        """
        return explaining.origins_of(step, self._run)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     loader.steps_of(1)
        [0, 1]
        """
        return explaining.steps_of(document, source, self._run)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common, for whoever compares it without torch.distributed (MPI, jax).

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(seed=3) as one, example_loader(seed=4) as other:
        ...     mine, theirs = one.plan_fingerprint(), other.plan_fingerprint()
        >>> [key for key in mine if mine[key] != theirs[key]]
        ['seed']
        """
        return self._run.fingerprint()

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What is left out, and why.

        `cut_tokens` were cut from the documents that this rank delivered since the run began, or last went elsewhere
        (`reset`, `seek`, `load_state_dict`), and `kl_cut_tokens` from the prompts and answers of KTO that they were
        joined of; `tail_tokens:source` and `dropped_rows` are what every epoch leaves out;
        `left_out:source:reason` and `changed:source:reason` are what became of raw rows when the store was made (so
        far, while it is being made).

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, drop_last=True) as loader:  # five rows
        ...     loader.losses
        {'cut_tokens': 0, 'tail_tokens:data': 0, 'dropped_rows': 1}
        """
        kl = {"kl_cut_tokens": self._kl_cut_tokens} if self.shape.answers == "kto" else {}
        losses = {"cut_tokens": self._cut_tokens, **kl, **self._run.epoch_losses()}
        for name, member in self._run.members.items():
            losses |= store_losses(name, member.store)
        return losses

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(self._engine.counters)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""
        results = self._profile.results(self._engine.counters)
        results["memory"] = {"batches": self._engine.used_bytes}
        results["ready_batches"] = self._engine.ready
        results["losses"] = self.losses
        return results

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        super().close()
        self._engine.stop()

    def __repr__(self) -> str:
        sources = ", ".join(f"{name}: {len(member.store)} tokens" for name, member in self._run.members.items())
        return f"{type(self).__name__}({sources}; rows of {self.shape.length}, step {self._run.step})"
