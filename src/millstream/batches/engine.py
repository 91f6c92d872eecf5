"""The engine: fronts the native ring, keeps it running through changes of plan and forks, and speaks our errors.

(feed, clock, step) -> batches in order. Threads are native, never take the GIL, and are gone after `close()`. A trainer
that changes the size of its batches fills them itself, until one size was asked for long enough that threads pay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from millstream._core import (
    Batch as Batch,
)
from millstream._core import (
    BudgetFull,
    DataError,
    DirectFill,
    FeedSource,
    IdError,
    Ring,
    RingClosed,
    StoreFiles,
)
from millstream._core import (
    Feed as Feed,
)
from millstream._core import (
    Packing as Packing,
)
from millstream.errors import BudgetError, ClosedError, StoreError
from millstream.order import Clock
from millstream.stages import Budget, after_fork, close_on_exit
from millstream.storage import need_zstd
from millstream.store import Layout

Fill = Literal["best_fit", "alone", "by_length"]
START_NS = 2_000_000
"""What it costs to start and stop threads, beside the batches that they fill in vain."""


@dataclass(frozen=True)
class EngineSettings:
    """How much work is done ahead, by how many threads, in how much memory."""

    threads: int = 1
    prefetch: int | None = None
    """Batches kept ready; None: at least 8, and as many small ones as fill 1 MiB, up to 64."""
    memory_budget: int | None = None
    pad_last: bool = False
    steps_per_update: int = 0
    """Steps whose targets are weighed together; 0: none are weighed."""
    beside_rows: bool = False
    """Whether the budget is also for rows that are kept in memory."""

    @property
    def batch_budget(self) -> int | None:
        """What of the budget is for batches."""
        budget = self.memory_budget
        return budget if budget is None or not self.beside_rows else bytes_for_batches(budget)


def store_files(layout: Layout) -> StoreFiles:
    """Hand a store's layout to the native core; nothing is opened yet."""
    if layout.block_tokens:
        need_zstd()
    return StoreFiles(
        layout.directory,
        layout.file,
        layout.dtype,
        layout.header_bytes,
        layout.table,
        layout.index,
        layout.index_file,
        layout.pointers_offset,
        layout.boundaries_offset,
        layout.sequences,
        layout.boundaries,
        layout.block_tokens,
        layout.paths,
    )


def feed_source(layout: Layout, id_limit: int, documents: str, packing: Packing | None = None) -> FeedSource:
    """Tell the engine how a store becomes rows; `id_limit` is 0 where its ids were checked when it was opened."""
    return FeedSource(store_files(layout), id_limit, documents, packing)


def packing_of(
    layout: Layout,
    window_documents: int,
    capacity: int,
    key: int | None,
    *,
    fill: Fill = "best_fit",
    documents: int | None = None,
    budget: int = 0,
    unit: int = 0,
) -> Packing:
    """Put the documents of a store, or the first so many, into bins: one pass over their lengths.

    Bins "by_length" hold a row, or as many as are within the budget when all are padded to a multiple of `unit`.
    """
    try:
        return Packing(store_files(layout), window_documents, capacity, key, fill, documents, budget, unit)
    except DataError as error:
        raise data_error(error) from None


@dataclass
class Counters:
    """What the threads and the trainer did so far, over all rings of an engine."""

    batches: int = 0
    filled: int = 0
    fill_ns: int = 0
    room_wait_ns: int = 0
    take_wait_ns: int = 0

    def plus(self, more: tuple[int, int, int, int, int]) -> Counters:
        """Add what one ring counted."""
        mine = (self.batches, self.filled, self.fill_ns, self.room_wait_ns, self.take_wait_ns)
        return Counters(*(a + b for a, b in zip(mine, more, strict=True)))


class Engine:
    """A ring that can be pointed elsewhere."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.ring: Ring | None = None
        """What fills batches, while it does."""
        self.direct: DirectFill | None = None
        """What fills them for a trainer whose batches change their size."""
        self._feed: Feed | None = None
        self._budget = self._new_budget()
        self._past = Counters()
        after_fork(self.forget)
        close_on_exit(self, self.stop, in_children=True)

    def forget(self) -> None:
        """Start afresh in a forked child: its threads are not there."""
        self.ring = self.direct = self._feed = None  # natively left behind, locks and all
        self._budget = self._new_budget()

    def _new_budget(self) -> Budget:
        """What all rings share: a batch of an earlier one may still be in the user's hands."""
        most = self.settings.batch_budget
        return Budget() if most is None else Budget(most)

    def start(self, make: Callable[[], Feed], clock: Clock, rows: int, first_step: int, end_step: int | None) -> None:
        """Fill batches of so many rows from a step of the clock on, to `end_step` if there is one."""
        self.pause()
        feed = self._feed = self._feed or make()
        settings = self.settings
        depth = self._depth(feed, clock, rows)
        try:
            self.ring = Ring(
                feed,
                clock,
                first_step,
                settings.threads,
                depth,
                self._budget,
                settings.pad_last,
                settings.steps_per_update,
                *(() if end_step is None else (end_step,)),
            )
        except BudgetFull:
            raise in_use_error(self._budget) from None

    def extend(self, make: Callable[[], Feed], clock: Clock, end_step: int | None) -> Feed | None:
        """Fill the steps that are not begun by another feed, which holds the rows of all of them, up to a later end.

        Gives the feed before, which nothing uses any more; None where only a new start helps: the clock is another one,
        or threads need more room.
        """
        if self.ring is None:
            return None
        feed = make()
        if not self.ring.extend(feed, clock, *(() if end_step is None else (end_step,))):
            return None
        before, self._feed = self._feed, feed
        return before

    def take(self) -> Batch:
        """Give the next batch, waiting for it if need be."""
        ring = self.ring
        try:
            if ring is None:
                raise RingClosed
            batch = ring.take()
        except RingClosed:
            raise closed_error() from None
        except DataError as error:
            raise data_error(error) from None
        if batch is None:
            raise in_use_error(self._budget)
        return batch

    def fill(self, make: Callable[[], Feed], clock: Clock, rows: int, step: int) -> Batch:
        """Fill the batch of one step of the clock in this thread, while no others fill."""
        feed = self._feed = self._feed or make()
        settings = self.settings
        if settings.memory_budget is not None:
            self._depth(feed, clock, rows)  # refuses what threads would refuse
        direct = self.direct
        if direct is None:
            direct = DirectFill(feed, self._budget, settings.pad_last, settings.steps_per_update)
            self.direct = direct
        try:
            batch = direct.take(clock, step)
        except RingClosed:
            raise closed_error() from None
        except BudgetFull:
            batch = None
        except DataError as error:
            raise data_error(error) from None
        if batch is None:
            raise in_use_error(self._budget)
        return batch

    def threads_pay(self, clock: Clock, rows: int) -> bool:
        """Whether batches of this size were filled one by one for as long as it costs to start threads in vain.

        So whatever sizes follow, all of it costs at most about twice as much as the better of both ways.
        """
        if self.direct is None or self._feed is None:
            return False
        batches, spent_ns = self.direct.since_change
        if spent_ns < START_NS:
            return False
        return spent_ns - START_NS >= self._depth(self._feed, clock, rows) * spent_ns // batches

    def pause(self) -> None:
        """Stop the threads, and direct filling; what they read stays open."""
        ring, self.ring = self.ring, None
        direct, self.direct = self.direct, None
        if ring is not None:
            self._past = self._past.plus(ring.counters)
            ring.close()
        if direct is not None:
            self._past = self._past.plus(direct.counters)
            direct.stop()

    def stop(self) -> None:
        """Stop the threads, and close what they read."""
        self.pause()
        self._feed = None

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        filling = self.ring or self.direct
        return self._past if filling is None else self._past.plus(filling.counters)

    @property
    def ready(self) -> int:
        """Batches that wait to be taken."""
        return self.ring.ready if self.ring is not None else 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands, and of what the threads need."""
        return self._budget.used_bytes

    def _depth(self, feed: Feed, clock: Clock, rows: int) -> int:
        """How many batches of so many rows the ring holds, within the budget."""
        batch_bytes, scratch_bytes = feed.batch_bytes(rows), feed.scratch_bytes(clock, self.settings.threads)
        budget, beside_rows = self.settings.batch_budget, self.settings.beside_rows
        wanted = self.settings.prefetch or min(64, max(8, (1 << 20) // batch_bytes))
        if budget is None:
            return wanted
        needed = 2 * batch_bytes + scratch_bytes
        if budget < needed:
            half = ", half of it for batches" if beside_rows else ""
            least = 2 * needed if beside_rows else needed
            raise BudgetError(
                f"memory_budget is {self.settings.memory_budget} bytes{half}; the threads take {scratch_bytes}, a "
                f"batch {batch_bytes}, and two are needed: one in your hands and one being filled",
                hint=f"pass memory_budget={least} or more, a smaller batch_size or a smaller chunk_size",
            )
        return min(wanted, (budget - scratch_bytes) // batch_bytes - 1)


def in_use_error(budget: Budget) -> BudgetError:
    """Say that the consumers hold all batches."""
    return BudgetError(
        f"{budget.used_bytes} of the {budget.most_bytes} bytes that memory_budget allows for batches are still in use "
        "by your code, and another batch does not fit",
        hint="let go of old batches (batch.release(), or keep batch.copy() of what you need), "
        "or pass a larger memory_budget",
    )


def closed_error() -> ClosedError:
    """Say that there will be no more batches."""
    return ClosedError("this loader was closed", hint="make a new one, and load_state_dict() to resume")


def data_error(error: DataError) -> StoreError:
    """Say what the native core found wrong with the data, and what to try."""
    if isinstance(error, IdError):
        hint = "the tokenizer or model_config is not the one that these ids were made for"
    else:
        hint = "run `millstream verify` on the store; restore or prepare it again"
    return StoreError(str(error), hint=hint)


def bytes_for_batches(memory_budget: int) -> int:
    """What of a budget is for batches, where rows are kept in memory, too: half."""
    return memory_budget // 2
