"""BatchPool: batches to be written into, over buffers that are used again and again.

A buffer comes back when the last tensor that looks at it is gone, so it is never handed out while it is in use;
`release` drops the batch's own tensors, which usually are the last.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches.batch import TrainingBatch
from millstream.batches.masks import NO_LOSS
from millstream.errors import BatchError, BudgetError, LoaderError
from millstream.stages import Waits
from millstream.tensors import backend

ALIGNMENT = 64
Buffer = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PoolStats:
    """What a pool holds, and how often it could help."""

    capacity: int
    in_use: int
    free: int
    bytes: int
    """Of all buffers, in use or free."""
    hits: int
    """Batches over a buffer that was used before."""
    misses: int
    """Batches for which memory was taken."""
    waits: int
    wait_s: float


class BatchPool:
    """At most `capacity` batches at a time, in memory that is taken once.

    >>> pool = BatchPool(capacity=2)
    >>> batch = pool.allocate(rows=8, length=16)
    >>> batch.input_ids[...] = 7
    >>> pool.release(batch)
    >>> again = pool.allocate(rows=4, length=16)  # nothing is left of what was in the buffer
    >>> int(again.input_ids.max()), int(again.labels.max())
    (0, -100)
    >>> stats = pool.stats()
    >>> stats.in_use, stats.free, stats.hits, stats.misses
    (1, 0, 1, 1)

    Args:
        capacity: Most batches in use; also most buffers kept.
        budget_bytes: Most bytes of all buffers; None: no limit.
        framework: "numpy" or "torch", whose tensors can be written into. For others fill a numpy batch and call
            `batch.to("jax")`.
    """

    def __init__(self, capacity: int, *, budget_bytes: int | None = None, framework: str = "numpy") -> None:
        if framework not in ("numpy", "torch"):
            raise LoaderError(
                f"batches of {framework!r} cannot be written into",
                hint=f"use framework='numpy' or 'torch', and batch.to({framework!r}) when a batch is full",
            )
        self.framework = framework
        self.budget_bytes = budget_bytes
        self._capacity = _checked(capacity)
        self._changed = threading.Condition(threading.RLock())
        self._free: list[Buffer] = []
        self._in_use = self._in_use_bytes = self._hits = self._misses = 0
        self._waits = Waits()
        # A buffer may come back in the middle of anything, also of our own work in this thread: it is put down here,
        # in one step that needs no lock, and counted on demand.
        self._returned: deque[Buffer] = deque()

    def allocate(self, rows: int, length: int, timeout_s: float | None = None) -> TrainingBatch:
        """Give a batch of zeros without loss, waiting until fewer than `capacity` are in use."""
        size = self._bytes_of(rows, length)
        with self._changed:
            self._waits.until(lambda: self._has_room(size), self._changed, timeout_s, "a batch of the pool")
            loan = self._lend(size)
        return self._batch(loan, rows, length)

    def try_allocate(self, rows: int, length: int) -> TrainingBatch | None:
        """Give a batch if that is possible now, else None."""
        size = self._bytes_of(rows, length)
        with self._changed:
            if not self._has_room(size):
                return None
            loan = self._lend(size)
        return self._batch(loan, rows, length)

    def release(self, batch: TrainingBatch) -> None:
        """Take a batch back: as `batch.release()`, and an error if it is not ours or was released before."""
        with self._changed:
            if not isinstance(batch, _PooledBatch) or batch.pool is not self:
                raise BatchError(
                    "this batch is not one of this pool",
                    hint="release what allocate() gave; copies, pieces and others have batch.release()",
                )
            if batch.loan is None:
                raise BatchError("this batch was released before", hint="release each batch once")
            batch.release()

    def resize(self, capacity: int) -> None:
        """Change the capacity. Batches in use stay; when it shrinks, surplus buffers go as they come back.

        >>> pool = BatchPool(capacity=1)
        >>> held = pool.allocate(1, 8)
        >>> pool.try_allocate(1, 8) is None
        True
        >>> pool.resize(2)
        >>> pool.try_allocate(1, 8) is None
        False
        """
        with self._changed:
            self._capacity = _checked(capacity)
            self._settle()
            self._changed.notify_all()

    def stats(self) -> PoolStats:
        """Sum up."""
        with self._changed:
            self._settle()
            held = self._in_use_bytes + sum(buffer.nbytes for buffer in self._free)
            return PoolStats(
                capacity=self._capacity,
                in_use=self._in_use,
                free=len(self._free),
                bytes=held,
                hits=self._hits,
                misses=self._misses,
                waits=self._waits.count,
                wait_s=self._waits.seconds,
            )

    def _bytes_of(self, rows: int, length: int) -> int:
        if rows < 0 or length < 0:
            raise BatchError(f"a batch cannot have {rows} rows of {length}", hint="pass 0 or more of both")
        size = 2 * _aligned(max(1, rows * length * int(backend(self.framework).ID_BYTES)))
        if self.budget_bytes is not None and size > self.budget_bytes:
            raise BudgetError(
                f"a batch of {size} bytes does not fit into a pool of {self.budget_bytes}",
                hint=f"pass budget_bytes={size} or more, or allocate fewer rows",
            )
        return size

    def _has_room(self, size: int) -> bool:
        """Whether a batch can be made now; free buffers are no obstacle, they can go."""
        self._settle()
        fits = self.budget_bytes is None or self._in_use_bytes + size <= self.budget_bytes
        return fits and self._in_use < self._capacity

    def _lend(self, size: int) -> _Loan:
        fitting = [buffer for buffer in reversed(self._free) if buffer.nbytes >= size]
        if fitting:
            buffer = min(fitting, key=lambda each: each.nbytes)  # of equal ones the last used, still warm in the cache
            self._free = [each for each in self._free if each is not buffer]
            self._hits += 1
        else:
            self._shrink_to(self._capacity - 1, size)
            buffer = _aligned_buffer(size)
            self._misses += 1
        self._in_use += 1
        self._in_use_bytes += buffer.nbytes
        return _Loan(self, buffer)

    def _settle(self) -> None:
        """Count what came back, and keep as much of it as the capacity allows."""
        while self._returned:
            buffer = self._returned.popleft()
            self._in_use -= 1
            self._in_use_bytes -= buffer.nbytes
            self._free.append(buffer)
        self._shrink_to(self._capacity)

    def _shrink_to(self, buffers: int, room_bytes: int = 0) -> None:
        """Let go of the free buffers that came back first, until the rest fits."""
        limit = float("inf") if self.budget_bytes is None else self.budget_bytes - room_bytes
        held = self._in_use_bytes + sum(buffer.nbytes for buffer in self._free)
        while self._free and (self._in_use + len(self._free) > buffers or held > limit):
            held -= self._free.pop(0).nbytes

    def _take_back(self, buffer: Buffer) -> None:
        self._returned.append(buffer)
        with self._changed:
            self._changed.notify_all()

    def _batch(self, loan: _Loan, rows: int, length: int) -> TrainingBatch:
        tensors = backend(self.framework)
        columns = np.asarray(loan).reshape(2, -1)
        used = rows * length * tensors.ID_BYTES
        ids, labels = (column[:used].view(f"i{tensors.ID_BYTES}").reshape(rows, length) for column in columns)
        ids[...] = 0
        labels[...] = NO_LOSS
        shared = tensors.share(ids), tensors.share(labels)
        return _PooledBatch(*shared, framework=self.framework, pool=self, loan=loan)


class _Loan:
    """What arrays over a buffer keep alive; its own end brings the buffer back."""

    def __init__(self, pool: BatchPool, buffer: Buffer) -> None:
        self._pool = pool
        self._buffer = buffer
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        self._pool._take_back(self._buffer)


class _PooledBatch(TrainingBatch):
    """A batch that knows its pool; copies and pieces of it are plain batches."""

    __slots__ = ("loan", "pool")

    def __init__(self, *tensors: Any, pool: BatchPool | None = None, loan: _Loan | None = None, **fields: Any) -> None:
        super().__init__(*tensors, **fields)
        self.pool, self.loan = pool, loan

    def release(self) -> None:
        super().release()
        self.loan = None


def _checked(capacity: int) -> int:
    if capacity < 1:
        raise LoaderError(f"a pool of capacity {capacity} has no batch", hint="pass capacity=1 or more")
    return capacity


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _aligned_buffer(size: int) -> Buffer:
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
