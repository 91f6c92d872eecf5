"""The engine: fronts the native ring, keeps it running through changes of plan and forks, and speaks our errors.

(feed, clock, step) -> batches in order. Threads are native, never take the GIL, and are gone after `close()`.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millstream._core import Batch, Clock, DataError, Feed, Plan, Ring, StoreFiles, fork_generation
from millstream.errors import BudgetError, StoreError
from millstream.store.layout import Layout

NO_LIMIT = 2**62


@dataclass(frozen=True)
class EngineSettings:
    """How much work is done ahead, by how many threads, in how much memory."""

    threads: int = 1
    prefetch: int = 8
    memory_budget: int | None = None
    pad_last: bool = False


@dataclass(frozen=True)
class Source:
    """A store as the engine sees it; `id_limit` is 0 where its ids were checked when it was opened."""

    layout: Layout
    id_limit: int = 0


def store_files(layout: Layout) -> StoreFiles:
    """Hand a store's layout to the native core; nothing is opened yet."""
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
    )


def make_feed(
    sources: Iterable[Source],
    plan: Plan,
    length: int,
    labels: str,
    documents: str,
    pad_id: int,
    id_bytes: int,
) -> Feed:
    """Join a plan with the stores it speaks of."""
    listed = list(sources)
    files = [store_files(source.layout) for source in listed]
    limits = [source.id_limit for source in listed]
    return Feed(files, limits, plan, length, labels, documents, pad_id, id_bytes)


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
        self._ring: Ring | None = None
        self._generation = fork_generation()
        self._past = Counters()
        _ENGINES.add(self)

    @property
    def running(self) -> bool:
        """Whether a ring of this process is at work."""
        return self._ring is not None and self._generation == fork_generation()

    def start(self, make: Callable[[], tuple[Feed, Clock, int]], first_step: int) -> None:
        """Fill batches from a step of the clock on. `make` gives feed, clock and rows of a batch."""
        self.stop()
        feed, clock, rows = make()
        depth, most = self._depth(feed.batch_bytes(rows))
        settings = self.settings
        self._generation = fork_generation()
        self._ring = Ring(feed, clock, first_step, settings.threads, depth, most, settings.pad_last)

    def take(self) -> Batch:
        """Give the next batch, waiting for it if need be."""
        ring = self._ring
        assert ring is not None, "an engine is started before it is asked"
        try:
            batch = ring.take()
        except DataError as error:
            raise data_error(error) from None
        if batch is None:
            raise BudgetError(
                f"all {ring.pool_bytes} bytes of batches that memory_budget allows are still in use by your code",
                hint="let go of old batches (batch.release(), or keep batch.copy() of what you need), "
                "or pass a larger memory_budget",
            )
        return batch

    def stop(self) -> None:
        """Stop the threads; a ring that a fork left behind is only forgotten."""
        if self.running:
            assert self._ring is not None
            self._past = self.counters
            self._ring.close()
        self._ring = None

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        return self._past.plus(self._ring.counters) if self.running and self._ring else self._past

    @property
    def ready(self) -> int:
        """Batches that wait to be taken."""
        return self._ring.ready if self.running and self._ring else 0

    @property
    def pool_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands."""
        return self._ring.pool_bytes if self.running and self._ring else 0

    def _depth(self, batch_bytes: int) -> tuple[int, int]:
        """How many batches the ring holds, and how many buffers there may be in all."""
        budget = self.settings.memory_budget
        if budget is None:
            return self.settings.prefetch, NO_LIMIT
        most = budget // batch_bytes
        if most < 2:
            raise BudgetError(
                f"memory_budget is {budget} bytes, a batch takes {batch_bytes} and two are needed: "
                "one in your hands and one being filled",
                hint=f"pass memory_budget={2 * batch_bytes} or more, a smaller batch_size or a smaller chunk_size",
            )
        return min(self.settings.prefetch, most - 1), most


_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Leave no thread at work when the interpreter goes: a script may end without closing its loader."""
    for engine in list(_ENGINES):
        engine.stop()


def data_error(error: DataError) -> StoreError:
    """Say what the native core found wrong with the data, and what to try."""
    return StoreError(str(error), hint="run `millstream verify` on the store; restore or prepare it again")
