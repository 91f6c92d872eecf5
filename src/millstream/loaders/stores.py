"""The loader over stores: a schedule says which rows, the engine fills them, the state is a step and its phases."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

from millstream._core import Batch, Clock, Feed, order_version
from millstream.batches import TrainingBatch
from millstream.batches.batch import COLUMNS
from millstream.batches.engine import Engine, EngineSettings, Source, closed_error, make_feed
from millstream.errors import BudgetError, LoaderError
from millstream.loaders import state as states
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.loader import DataLoader
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.phases import dump_run, load_run
from millstream.loaders.settings import Settings, positive
from millstream.loaders.transforms import PerRow, transform_batch, transform_rows
from millstream.order import Recipe, Schedule, Share
from millstream.stats import Profile
from millstream.store import TokenStore
from millstream.tensors import backend, inside_torch_worker
from millstream.tokens import Tokenizer
from millstream.tokens.keep import find_tokenizer

logger = logging.getLogger("millstream.loaders")
Documents = Literal["attend", "isolate", "row"]
MOST_POSITIONS = 2**31


@dataclass(frozen=True)
class RowShape:
    """What a row is: how long, how documents meet in it, and what becomes of the rest at the end."""

    length: int
    documents: Documents = "attend"
    tail: Literal["drop", "pad"] = "drop"
    pad_id: int = 0

    def samples(self, store: TokenStore) -> int:
        """Count the rows of a store."""
        if self.documents == "row":
            return store.documents
        inputs = max(0, len(store) - 1)
        return -(-inputs // self.length) if self.tail == "pad" else inputs // self.length

    def samples_of(self, store: TokenStore, length: int, split: int) -> int | None:
        """Count the rows that were cut into `split` rows of another length; None where a row cannot be cut."""
        whole = self.documents == "row" and split != 1
        return None if whole else replace(self, length=length * split).samples(store)


@dataclass(frozen=True)
class Member:
    """A store that takes part in a run."""

    store: TokenStore
    share: Share
    id_limit: int = 0
    tokenizer: Tokenizer | None = None

    @cached_property
    def text_tokenizer(self) -> Tokenizer | None:
        """The tokenizer that was given, else the one that lies in the store, if it does."""
        return self.tokenizer or find_tokenizer(self.store.path, self.store.manifest.get("tokenizer"))


class StoreDataLoader(DataLoader):
    """What PretrainDataLoader and MixedDataLoader have in common."""

    kind = "store"
    names_rows = False
    """Whether `metadata["source"]` names the source of each row."""

    def __init__(
        self,
        members: Mapping[str, Member],
        shape: RowShape,
        settings: Settings,
        *,
        epoch_size: int | None = None,
    ) -> None:
        self.settings = settings
        self.shape = shape
        self._members = dict(members)
        self._epoch_size = epoch_size
        self._backend = backend(settings.framework)
        if settings.framework == "torch":
            self._backend.accept_as_dataset(StoreDataLoader)
        self._row_transforms = [t for t in settings.transforms if isinstance(t, PerRow)]
        self._batch_transforms = [t for t in settings.transforms if not isinstance(t, PerRow)]
        self._callbacks = Callbacks(settings.callbacks)
        self._extras = shape.documents == "isolate" or self.names_rows or settings.pad_last
        self._engine = Engine(
            EngineSettings(settings.threads, settings.prefetch, settings.memory_budget, settings.pad_last)
        )
        self._profile = Profile()
        self._closed = False
        self._cut_tokens = 0
        self._earlier_data: dict[str, Any] = {}
        self._missing: dict[str, Any] = {}
        self._go(self._begin(), 0)

    # The run

    def _recipe(self, batch_size: int) -> Recipe:
        settings = self.settings
        if batch_size * self.shape.length >= MOST_POSITIONS:
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

    def _follow(self, schedule: Schedule, batch_size: int, step: int) -> None:
        """Go on at `step` with batches of this size; a new phase begins if that changes anything."""
        self._go(schedule.change(self._recipe(batch_size), step), step)

    def _go(self, schedule: Schedule, step: int) -> None:
        """Stand at a step of a schedule, or change nothing; the engine follows when the next batch is asked for."""
        phase = schedule.phase_at(step)
        clock = phase.clock(self.settings.rank)
        self._engine.stop()
        self._schedule, self._step, self._phase, self._clock = schedule, step, phase, clock
        self._rows = phase.global_rows // phase.ranks

    def _make_feed(self) -> tuple[Feed, Clock, int]:
        phase, shape = self._phase, self.shape
        sources = [Source(self._members[name].store.layout, self._members[name].id_limit) for name in phase.active]
        plan = phase.plan(self._schedule.seed)
        labels, id_bytes = self.settings.labels, self._backend.ID_BYTES
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
            rows = self.settings.batch_size if batch_size is None else batch_size
            if rows != self._rows:
                self._follow(self._schedule, positive("batch_size", rows), self._step)
            step, native = self._step, None
            try:
                if not self._engine.running:
                    self._start()
                native = self._engine.take()
                batch = self._deliver(native)
            except BaseException as error:
                self._not_delivered(step, error, taken=native is not None)
                raise
            self._profile.delivered(batch.metadata["rows"], time.perf_counter_ns() - start)
            return batch

    def _start(self) -> None:
        """Let the engine run; whoever closes the loader meanwhile either finds it running or is noticed here."""
        self._check_open()
        self._engine.start(self._make_feed, self._step - self._phase.step)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            self._engine.stop()
            raise closed_error()

    def _not_delivered(self, step: int, error: BaseException, *, taken: bool) -> None:
        """Go back to a step whose batch did not reach the trainer: the next call gives it again."""
        self._step = step
        if taken or not isinstance(error, BudgetError):  # a ring without buffers goes on when it gets some
            self._engine.stop()
        if isinstance(error, Exception):
            self._callbacks.error(error)

    def _deliver(self, native: Batch) -> TrainingBatch:
        """Make a batch of what the engine filled, and move on by one step. This runs for every batch: keep it lean."""
        epochs, place, rows, filler, tokens, cut, longest = native.facts
        epoch = self._phase.epoch + epochs
        metadata: dict[str, Any] = {
            "epoch": epoch,
            "step": self._step,
            "rows": rows,
            "sequence_length": self.shape.length,
            "tokens": tokens,
        }
        if self._row_transforms:
            place += self._phase.offset if epochs == 0 else 0
            names = COLUMNS if native.isolated else COLUMNS[:2]
            columns = {name: native.column(number)[:rows] for number, name in enumerate(names)}
            transform_rows(self._row_transforms, columns, (self.settings.seed, epoch), place)
        inputs, labels = native.inputs_and_labels
        share = self._backend.share
        batch = TrainingBatch(
            share(inputs), share(labels), framework=self._backend.NAME, metadata=metadata, native=native
        )
        if self._extras or cut:
            self._add_extras(batch, native, rows, filler, cut, longest)
        self._step += 1
        for transform in self._batch_transforms:
            batch = transform_batch(transform, batch)
        if self._callbacks.any:
            self._callbacks.delivered(epoch, batch)
        self._cut_tokens += cut
        return batch

    def _add_extras(self, batch: TrainingBatch, native: Batch, rows: int, filler: int, cut: int, longest: int) -> None:
        """Add what only some batches have: positions, names of sources, marks of filler, tokens that were cut."""
        if native.isolated:
            batch.position_ids = self._backend.share(native.column(2))
            batch.cu_seqlens = self._backend.from_numpy(native.segment_starts)
            batch.max_seqlen = longest
        if self.names_rows:
            names = [*self._phase.active, ""]  # filler has the number -1
            batch.metadata["source"] = [names[number] for number in native.sources.tolist()]
        if self.settings.pad_last:
            batch.metadata["filler"] = [False] * rows + [True] * filler
        if cut:
            batch.metadata["cut_tokens"] = cut

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
            self._go(self._begin(), 0)
            self._earlier_data, self._missing = {}, {}
            self._callbacks.jumped()

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""
        with self._engine.turn:
            self._follow(self._schedule, self.settings.batch_size, step)
            self._callbacks.jumped()

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
        phases, data, missing = load_run(state, self.settings.cache_dir)
        states.check_data(data, phases, {name: member.store for name, member in self._members.items()})
        for name, member in self._members.items():
            states.check_samples(phases, name, partial(self.shape.samples_of, member.store))
        if self.kind == "pretrain":
            states.check_source(phases, next(iter(self._members)))
        schedule = Schedule(self.settings.seed, phases)
        states.check_place(state, schedule.place(step))
        with self._engine.turn:
            self._follow(schedule, self.settings.batch_size, step)
            self._callbacks.jumped()
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
        phase = self._schedule.phase_at(step)
        rank = self.settings.rank if phase.ranks == self.settings.world_size else None
        names, samples = self._schedule.rows(step, rank)
        rows = enumerate(zip(names, samples.tolist(), strict=True))
        return [self._origin(row, name, sample, phase.row_length) for row, (name, sample) in rows]

    def _origin(self, row: int, name: str, sample: int, length: int) -> RowOrigin:
        member = self._members.get(name)
        if member is None:
            raise LoaderError(
                f"this row comes from the source {name!r}, which this loader does not have",
                hint="explain it with a loader that has the sources of that time",
            )
        store = member.store
        if self.shape.documents == "row":
            start, stop = store.document_span(sample)
            stop = min(stop, start + length)
        else:
            start = sample * length
            stop = min(start + length, len(store))
        spans = tuple(
            Span(name, int(document), int(first), int(last), store.file_of(int(document)))
            for document, first, last in zip(*store.spans_of(start, stop), strict=True)
        )
        tokenizer = member.text_tokenizer
        text = None if tokenizer is None else tokenizer.decode(store.read(start, stop).tolist())
        return RowOrigin(row, name, sample, spans, text)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     loader.steps_of(1)
        [0, 1]
        """
        if source is None:
            if len(self._members) > 1:
                raise LoaderError(
                    "several sources have a document of this number",
                    hint=f"pass source=, one of {', '.join(self._members)}",
                )
            source = next(iter(self._members))
        if source not in self._members:
            raise LoaderError(f"there is no source {source!r}", hint=f"there are {', '.join(self._members)}")
        store = self._members[source].store
        if not 0 <= document < store.documents:
            raise LoaderError(f"{store.path}: there is no document {document} among {store.documents}")
        start, stop = store.document_span(document)
        if start == stop:
            return []
        if self.shape.documents == "row":
            return self._schedule.steps_of(source, None, range(document, document + 1), self.epoch)
        return self._schedule.steps_of(source, (start, stop), range(0), self.epoch)

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What an epoch leaves out, and why, so far as it is known now.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, drop_last=True) as loader:  # five rows
        ...     loader.losses
        {'cut_tokens': 0, 'tail_tokens:data': 0, 'dropped_rows': 1}
        """
        found: dict[str, int] = {"cut_tokens": self._cut_tokens}
        if self.shape.documents != "row":
            for name, member in self._members.items():
                inputs = max(0, len(member.store) - 1)
                found[f"tail_tokens:{name}"] = max(0, inputs - member.share.samples * self.shape.length)
        if self.settings.drop_last:
            found["dropped_rows"] = self._phase.size % self._phase.global_rows
        return found

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(self._engine.counters)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""
        results = self._profile.results(self._engine.counters)
        results["memory"] = {"batches": self._engine.pool_bytes}
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
