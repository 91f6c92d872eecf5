"""The loader over stores: a schedule says which rows, the engine fills them, the state is a step and its phases."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from millstream._core import Batch, Clock, Feed, order_version
from millstream.batches import TrainingBatch
from millstream.batches.batch import COLUMNS
from millstream.batches.engine import Engine, EngineSettings, Source, make_feed
from millstream.errors import ClosedError, FingerprintError, LoaderError, MillstreamError, OrderError
from millstream.loaders import state as states
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.loader import DataLoader
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.settings import Settings, positive
from millstream.loaders.transforms import PerRow, transform_rows
from millstream.order import Recipe, Schedule, Share
from millstream.stats import Profile
from millstream.store import TokenStore
from millstream.tensors import backend
from millstream.tokens import Tokenizer

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


@dataclass(frozen=True)
class Member:
    """A store that takes part in a run."""

    store: TokenStore
    share: Share
    id_limit: int = 0


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
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.settings = settings
        self.shape = shape
        self._members = dict(members)
        self._tokenizer = tokenizer
        self._epoch_size = epoch_size
        self._backend = backend(settings.framework)
        if settings.framework == "torch":
            self._backend.accept_as_dataset(StoreDataLoader)
        if settings.batch_size * shape.length >= MOST_POSITIONS:
            raise LoaderError("a batch has at most 2**31 tokens", hint="use a smaller batch_size or chunk_size")
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
        self._schedule = Schedule.start(self._recipe(settings.batch_size))
        self._step = 0
        self._point()

    # The run

    def _recipe(self, batch_size: int) -> Recipe:
        settings = self.settings
        return Recipe(
            seed=settings.seed,
            row_length=self.shape.length,
            global_rows=batch_size * settings.world_size,
            sources={name: member.share for name, member in self._members.items()},
            ranks=settings.world_size,
            drop_last=settings.drop_last,
            epoch_size=self._epoch_size,
            splittable=self.shape.documents != "row",
        )

    def _follow(self, batch_size: int, step: int) -> None:
        """Go on at `step` with batches of this size; a new phase begins if that changes anything."""
        recipe = self._recipe(batch_size)
        try:
            self._schedule = self._schedule.change(recipe, step)
        except ValueError as error:
            raise OrderError(str(error)) from None
        self._step = step
        self._point()

    def _point(self) -> None:
        """Look at the phase of the present step; the engine follows when the next batch is asked for."""
        self._engine.stop()
        self._phase = self._schedule.phase_at(self._step)
        self._rows = self._phase.global_rows // self._phase.ranks
        try:
            self._clock = self._phase.clock(self.settings.rank)
        except ValueError as error:
            raise OrderError(str(error), hint="use a smaller batch_size, or drop_last=False") from None

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
        if batch_size is not None and batch_size != self._rows:
            self._follow(positive("batch_size", batch_size), self._step)
        elif batch_size is None and self._rows != self.settings.batch_size:
            self._follow(self.settings.batch_size, self._step)
        if not self._engine.running:
            self._start()
        try:
            batch = self._deliver(self._engine.take())
        except MillstreamError as error:
            self._callbacks.error(error)
            raise
        self._profile.delivered(batch.metadata["rows"], time.perf_counter_ns() - start)
        return batch

    def _start(self) -> None:
        if self._closed:
            raise ClosedError("this loader was closed", hint="make a new one, and load_state_dict() to go on")
        self._engine.start(self._make_feed, self._step - self._phase.step)

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
        share = self._backend.share
        inputs, labels = share(native.column(0)), share(native.column(1))
        batch = TrainingBatch(inputs, labels, framework=self._backend.NAME, metadata=metadata, native=native)
        if self._extras or cut:
            self._add_extras(batch, native, rows, filler, cut, longest)
        self._step += 1
        for transform in self._batch_transforms:
            batch = transform(batch)
        if self._callbacks.any:
            self._callbacks.delivered(epoch, batch)
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
            self._cut_tokens += cut
            batch.metadata["cut_tokens"] = cut

    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     [batch.metadata["rows"] for batch in loader.get_iterator()]
        [2, 2, 1]
        """
        if self.settings.framework == "torch" and self._backend.inside_worker():
            raise LoaderError(
                "a Millstream loader runs in the process of the trainer, not in workers of torch's DataLoader",
                hint="pass num_workers=0; Millstream's own threads do the work",
            )
        epoch = self.epoch
        while self.epoch == epoch and not self._closed:
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
        self._schedule = Schedule.start(self._recipe(self.settings.batch_size))
        self._step = 0
        self._point()

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""
        self._follow(self.settings.batch_size, step)

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, and start filling them."""
        depth = positive("prefetch", batches)
        settings = self._engine.settings
        self._engine.stop()
        self._engine.settings = EngineSettings(settings.threads, depth, settings.memory_budget, settings.pad_last)
        self._start()

    # State

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, equal on all ranks, loadable on any number of them."""
        place = self._schedule.place(self._step)
        return {
            "format": states.FORMAT,
            "version": states.VERSION,
            "order_version": order_version,
            "loader": self.kind,
            "step": self._step,
            "epoch": place.epoch,
            "offset": place.offset,
            "seed": self.settings.seed,
            "rows": {"documents": self.shape.documents, "tail": self.shape.tail},
            "data": {name: _describe(member.store) for name, member in self._members.items()},
            **states.dump_phases(self._schedule, self.settings.cache_dir),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size, ranks, weights and sources."""
        rows = {"documents": self.shape.documents, "tail": self.shape.tail}
        step = states.check_header(state, self.kind, self.settings.seed, rows)
        for name, member in self._members.items():
            saved = state.get("data", {}).get(name)
            if saved is not None:
                _check_data(name, member.store, saved)
        phases = states.load_phases(state, self.settings.cache_dir)
        self._schedule = Schedule(self.settings.seed, phases)
        self._follow(self.settings.batch_size, step)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved. A store keeps everything, so there is nothing to let go of."""
        rows = {"documents": self.shape.documents, "tail": self.shape.tail}
        states.check_header(state, self.kind, self.settings.seed, rows)

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
        text = None if self._tokenizer is None else self._tokenizer.decode(store[start:stop].tolist())
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
            raise LoaderError(
                f"{store.path}: there is no document {document}", hint=f"it has {store.documents}, from 0 on"
            )
        start, stop = store.document_span(document)
        if start == stop:
            return []
        if self.shape.documents == "row":
            return self._schedule.steps_of(source, None, range(document, document + 1), self.epoch)
        return self._schedule.steps_of(source, (start, stop), range(0), self.epoch)

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What an epoch leaves out, and why, so far as it is known now."""
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
        self._engine.stop()
        self._closed = True

    def __repr__(self) -> str:
        sources = ", ".join(f"{name}: {len(member.store)} tokens" for name, member in self._members.items())
        return f"{type(self).__name__}({sources}; rows of {self.shape.length}, step {self._step})"


def _describe(store: TokenStore) -> dict[str, Any]:
    return {"fingerprint": store.fingerprint, "tokens": len(store), "documents": store.documents}


def _check_data(name: str, store: TokenStore, saved: Mapping[str, Any]) -> None:
    found = _describe(store)
    if not isinstance(saved, Mapping) or saved.get("fingerprint") == found["fingerprint"]:
        return
    differences = [f"{key}: {saved.get(key)} then, {found[key]} now" for key in found if saved.get(key) != found[key]]
    raise FingerprintError(
        f"{store.path}: the data of {name!r} is not the data that the state was saved for ({'; '.join(differences)})",
        hint="a store that was appended to still has its old version: "
        f"TokenStore(path, version={saved.get('fingerprint')!r})",
    )
