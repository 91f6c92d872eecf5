"""The loader over stores: a schedule says which rows, the engine fills them, the state is a step and its phases."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from millstream._core import Batch, Clock, Feed, order_version
from millstream.batches import TrainingBatch
from millstream.batches.engine import Engine, EngineSettings, FeedSource, closed_error, make_feed
from millstream.errors import BudgetError, LoaderError
from millstream.loaders import explain as explaining
from millstream.loaders import state as states
from millstream.loaders.agreement import check_agreement
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.delivery import Delivery
from millstream.loaders.loader import DataLoader
from millstream.loaders.member import Member, RowShape
from millstream.loaders.origin import RowOrigin
from millstream.loaders.phases import dump_run, load_run
from millstream.loaders.settings import LoaderSettings, positive
from millstream.order import Recipe, Schedule
from millstream.stats import Profile
from millstream.tensors import accept_as_torch_dataset, inside_torch_worker
from millstream.tensors.ranks import Ranks

MOST_BATCH_TOKENS = 2**31
COMPARISONS = itertools.count()
"""Of plans with those of the other ranks; the n-th one of each rank belongs to the n-th one of every other."""


class StoreDataLoader(DataLoader):
    """What PretrainDataLoader and MixedDataLoader have in common."""

    kind = "store"
    names_rows = False
    """Whether `metadata["source"]` names the source of each row."""

    def __init__(
        self,
        members: Mapping[str, Member],
        shape: RowShape,
        settings: LoaderSettings,
        *,
        epoch_size: int | None = None,
    ) -> None:
        self.settings = settings
        self.shape = shape
        self._members = dict(members)
        self._epoch_size = epoch_size
        self._delivery = Delivery(shape, settings, names_rows=self.names_rows)
        accept_as_torch_dataset(StoreDataLoader)
        self._callbacks = Callbacks(settings.callbacks)
        self._engine = Engine(
            EngineSettings(settings.threads, settings.prefetch, settings.memory_budget, settings.pad_last)
        )
        self._profile = Profile()
        self._closed = False
        self._comparison: int | None = None
        self._agreed = False
        self._earlier_data: dict[str, Any] = {}
        self._missing: dict[str, Any] = {}
        self._jump(self._begin(), 0)

    # The run

    def _recipe(self, batch_size: int) -> Recipe:
        settings = self.settings
        if batch_size * self.shape.length >= MOST_BATCH_TOKENS:
            raise LoaderError("a batch has at most 2**31 tokens", hint="use a smaller batch_size or chunk_size")
        return Recipe(
            seed=settings.seed,
            row_length=self.shape.length,
            global_rows=batch_size * settings.world_size,
            sources={name: member.share for name, member in self._members.items()},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            epoch_size=self._epoch_size,
            splittable=self.shape.documents != "row",
            padded=self.shape.tail == "pad",
        )

    def _begin(self) -> Schedule:
        return Schedule.start(self._recipe(self.settings.batch_size))

    def _changed(self, schedule: Schedule, batch_size: int, step: int) -> Schedule:
        """Give the schedule with batches of this size from `step` on; a new phase begins if that changes anything."""
        return schedule.change(self._recipe(batch_size), step)

    def _jump(self, schedule: Schedule, step: int) -> None:
        """Go on elsewhere: what was counted of the rows so far is not about the rows that come."""
        self._go(schedule, step)
        self._cut_tokens = 0
        self._callbacks.jumped()

    def _go(self, schedule: Schedule, step: int) -> None:
        """Stand at a step of a schedule, or change nothing; the engine follows when the next batch is asked for."""
        phase = schedule.phase_at(step)
        clock = phase.clock(self.settings.rank)
        self._engine.stop()
        self._schedule, self._step, self._phase, self._clock = schedule, step, phase, clock
        self._rows = phase.global_rows // phase.ranks

    def _make_feed(self) -> tuple[Feed, Clock, int]:
        phase, shape = self._phase, self.shape
        members = [self._members[name] for name in phase.active]
        sources = [FeedSource(member.store.layout, member.id_limit) for member in members]
        plan = phase.plan(self._schedule.seed)
        labels, id_bytes = self.settings.labels, self._delivery.id_bytes
        feed = make_feed(sources, plan, shape.length, labels, shape.documents, shape.pad_id, id_bytes)
        return feed, self._clock, self._rows

    def next(self) -> TrainingBatch:
        """Give the next batch; behind the last one of an epoch comes the first one of the next.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.next().input_ids.shape
        (2, 4)
        """
        return self.get_batch()

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""
        start = time.perf_counter_ns()
        with self._engine.turn:
            schedule, step, native = self._schedule, self._step, None
            rows = self.settings.batch_size if batch_size is None else batch_size
            if rows != self._rows:
                self._go(self._changed(schedule, positive("batch_size", rows), step), step)
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
        self._check_ranks()
        self._engine.start(self._make_feed, self._step - self._phase.step)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            self._engine.stop()
            raise closed_error()

    def _check_ranks(self) -> None:
        """Compare plans once, when the first batch is asked for, if every rank of torch.distributed is one of ours."""
        ranks = None if self._agreed or self.settings.world_size == 1 else Ranks.started()
        if ranks is not None and ranks.size == self.settings.world_size:
            self._comparison = next(COMPARISONS) if self._comparison is None else self._comparison
            check_agreement(self.plan_fingerprint(), self.settings.rank, self._comparison, ranks)
            self._agreed = True

    def _not_delivered(self, schedule: Schedule, step: int, error: BaseException, *, taken: bool) -> None:
        """Stand where the run stood before a batch that did not reach the trainer: the next call gives it again."""
        self._step = step
        if schedule is not self._schedule:
            self._go(schedule, step)
        elif taken or not isinstance(error, BudgetError):  # a ring without buffers goes on when it gets some
            self._engine.stop()
        if isinstance(error, Exception):
            self._callbacks.error(error)

    def _deliver(self, native: Batch) -> TrainingBatch:
        """Make a batch of what the engine filled, and move on by one step. This runs for every batch: keep it lean."""
        batch = self._delivery.batch(native, self._phase, self._step)
        self._step += 1
        batch = self._delivery.transformed(batch)
        epochs, _, _, _, _, cut, _ = native.facts
        if self._callbacks.any:
            self._callbacks.delivered(self._phase.epoch + epochs, batch)
        self._cut_tokens += cut
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

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self._phase.epoch + int(self._clock.step(self._step - self._phase.step)[0])

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self._step

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has, at the present batch size."""
        return int(self._clock.steps_in(self._phase.size))

    def reset(self) -> None:
        """Go back to the very beginning of the run."""
        with self._engine.turn:
            self._jump(self._begin(), 0)
            self._earlier_data, self._missing = {}, {}

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""
        with self._engine.turn:
            self._jump(self._changed(self._schedule, self.settings.batch_size, step), step)

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, and start filling them."""
        depth = positive("prefetch", batches)
        with self._engine.turn:
            self._engine.stop()
            self._engine.settings = replace(self._engine.settings, prefetch=depth)
            self._start()

    def __reduce__(self) -> Any:
        raise no_workers()

    # State

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, equal on all ranks, loadable on any number of them."""
        place = self._schedule.place(self._step)
        data = {name: states.describe_data(member.store) for name, member in self._members.items()}
        return {
            "format": states.FORMAT,
            "version": states.VERSION,
            "order_version": order_version,
            "loader": self.kind,
            "step": self._step,
            "epoch": place.epoch,
            "offset": place.offset,
            "seed": self.settings.seed,
            "rows": self._row_facts,
            **dump_run(self._schedule, {**self._earlier_data, **data}, self.settings.cache_dir, self._missing),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size, ranks, weights and sources."""
        step = states.check_header(state, self.kind, self.settings.seed, self._row_facts)
        phases, data, missing = load_run(state, self.settings.cache_dir, self.settings.seed)
        states.check_data(data, phases, {name: member.store for name, member in self._members.items()})
        for name, member in self._members.items():
            states.check_samples(phases, name, partial(self.shape.samples_of, member.store))
        if self.kind == "pretrain":
            states.check_source(phases, next(iter(self._members)))
        schedule = Schedule(self.settings.seed, phases)
        states.check_place(state, schedule.place(step))
        with self._engine.turn:
            self._jump(self._changed(schedule, self.settings.batch_size, step), step)
            self._earlier_data, self._missing = data, missing  # a source that was taken out may return

    @property
    def _row_facts(self) -> dict[str, Any]:
        return {"documents": self.shape.documents, "tail": self.shape.tail}

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved. A store keeps everything, so there is nothing to let go of."""
        states.check_header(state, self.kind, self.settings.seed, self._row_facts)

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step, without replaying the run.

        A step of an earlier phase, that ran on another number of ranks, is explained whole.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     [(span.document, span.start, span.stop) for span in loader.explain(0)[1].spans]
        [(0, 4, 7), (1, 0, 1)]
        """
        settings = self.settings
        return explaining.origins_of(
            step, self._schedule, self._members, self.shape, settings.rank, settings.world_size
        )

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     loader.steps_of(1)
        [0, 1]
        """
        return explaining.steps_of(document, source, self._schedule, self._members, self.shape, self.epoch)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common, for whoever compares it without torch.distributed (MPI, jax).

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(seed=3) as one, example_loader(seed=4) as other:
        ...     mine, theirs = one.plan_fingerprint(), other.plan_fingerprint()
        >>> [key for key in mine if mine[key] != theirs[key]]
        ['seed']
        """
        settings, shape = self.settings, self.shape
        facts: dict[str, Any] = {
            "loader": self.kind,
            "order_version": order_version,
            "sources": ", ".join(self._members),
            **{f"data of {name!r}": member.store.fingerprint for name, member in self._members.items()},
            **{f"shuffle of {name!r}": member.share.shuffle for name, member in self._members.items()},
            **{f"share of {name!r}": member.share.quota for name, member in self._members.items()},
            **{key: getattr(settings, key) for key in ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last")},
            **{"chunk_size": shape.length, "documents": shape.documents, "tail": shape.tail, "pad_id": shape.pad_id},
            "epoch_size": self._epoch_size,
            "step": self._step,
        }
        past = repr(self._schedule.phases[:-1]).encode()
        return {**facts, "earlier phases": hashlib.blake2b(past, digest_size=8).hexdigest()}

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What is left out, and why.

        `cut_tokens` were cut from the documents that this rank delivered since the run began, or last went elsewhere
        (`reset`, `seek`, `load_state_dict`); the others are what every epoch leaves out.
        """
        found: dict[str, int] = {"cut_tokens": self._cut_tokens}
        if self.shape.documents != "row":
            for name, member in self._members.items():
                found[f"tail_tokens:{name}"] = self.shape.tail_tokens(member.store, member.share.samples)
        if self.settings.drop_last:
            found["dropped_rows"] = self._phase.size % self._phase.global_rows
        return found

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
        self._closed = True
        self._engine.stop()

    def __repr__(self) -> str:
        sources = ", ".join(f"{name}: {len(member.store)} tokens" for name, member in self._members.items())
        return f"{type(self).__name__}({sources}; rows of {self.shape.length}, step {self._step})"


def no_workers() -> LoaderError:
    """Say that a loader does not go to other processes: each would give all rows again."""
    return LoaderError(
        "a Millstream loader stays in the process of the trainer, and does not go to workers of torch's DataLoader",
        hint="pass num_workers=0: Millstream's own threads do the work; elsewhere open the store and load_state_dict()",
    )
