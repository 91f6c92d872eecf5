"""The engine: fronts the native ring, keeps it running through changes of plan and forks, and speaks our errors.

(feed, clock, step) -> batches in order. Threads are native, never take the GIL, and are gone after `close()`.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millstream._core import Batch, Clock, DataError, Feed, IdError, Plan, Ring, RingClosed, StoreFiles
from millstream.errors import BudgetError, ClosedError, StoreError
from millstream.store.layout import Layout

NO_LIMIT = 2**62


@dataclass(frozen=True)
class EngineSettings:
    """How much work is done ahead, by how many threads, in how much memory."""

    threads: int = 1
    prefetch: int | None = None
    """Batches kept ready; None: at least 8, and as many small ones as fill 1 MiB, up to 64."""
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
        self.turn = threading.RLock()
        """The lock of whoever asks for a batch."""
        self._ring: Ring | None = None
        self._past = Counters()
        _ENGINES.add(self)

    @property
    def running(self) -> bool:
        """Whether a ring of this process is at work."""
        return self._ring is not None

    def forget(self) -> None:
        """Start afresh in a forked child: threads are not there, and one of them may have held the lock."""
        self.turn = threading.RLock()
        self._ring = None  # natively left behind, locks and all

    def start(self, make: Callable[[], tuple[Feed, Clock, int]], first_step: int) -> None:
        """Fill batches from a step of the clock on. `make` gives feed, clock and rows of a batch."""
        self.stop()
        feed, clock, rows = make()
        depth, most = self._depth(feed.batch_bytes(rows))
        settings = self.settings
        self._ring = Ring(feed, clock, first_step, settings.threads, depth, most, settings.pad_last)

    def take(self) -> Batch:
        """Give the next batch, waiting for it if need be."""
        ring = self._ring
        try:
            if ring is None:
                raise RingClosed
            batch = ring.take()
        except RingClosed:
            raise closed_error() from None
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
        """Stop the threads."""
        ring, self._ring = self._ring, None
        if ring is not None:
            self._past = self._past.plus(ring.counters)
            ring.close()

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        ring = self._ring
        return self._past if ring is None else self._past.plus(ring.counters)

    @property
    def ready(self) -> int:
        """Batches that wait to be taken."""
        return self._ring.ready if self._ring is not None else 0

    @property
    def pool_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands."""
        return self._ring.pool_bytes if self._ring is not None else 0

    def _depth(self, batch_bytes: int) -> tuple[int, int]:
        """How many batches the ring holds, and how many buffers there may be in all."""
        budget = self.settings.memory_budget
        wanted = self.settings.prefetch or min(64, max(8, (1 << 20) // batch_bytes))
        if budget is None:
            return wanted, NO_LIMIT
        most = budget // batch_bytes
        if most < 2:
            raise BudgetError(
                f"memory_budget is {budget} bytes, a batch takes {batch_bytes} and two are needed: "
                "one in your hands and one being filled",
                hint=f"pass memory_budget={2 * batch_bytes} or more, a smaller batch_size or a smaller chunk_size",
            )
        return min(wanted, most - 1), most


_ENGINES: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_all() -> None:
    for engine in list(_ENGINES):
        engine.forget()


os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def _stop_all() -> None:
    """Leave no thread at work when the interpreter goes: a script may end without closing its loader."""
    for engine in list(_ENGINES):
        engine.stop()


def closed_error() -> ClosedError:
    """Say that there will be no more batches."""
    return ClosedError("this loader was closed", hint="make a new one, and load_state_dict() to go on")


def data_error(error: DataError) -> StoreError:
    """Say what the native core found wrong with the data, and what to try."""
    if isinstance(error, IdError):
        hint = "the tokenizer or model_config is not the one that these ids were made for"
    else:
        hint = "run `millstream verify` on the store; restore or prepare it again"
    return StoreError(str(error), hint=hint)
