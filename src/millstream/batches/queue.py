"""BatchQueue: batches on their way from the threads that make them to the threads that train on them.

Bounded by batches and by bytes. It ends once, and everybody hears of it: after `close()` nothing goes in, what is
inside comes out, and then consumers are told that it is over, or what went wrong.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from millstream.batches.batch import COLUMNS, TrainingBatch
from millstream.batches.waiting import Waits
from millstream.errors import BatchError, BudgetError, ClosedError, LoaderError


@dataclass(frozen=True)
class QueueStats:
    """What a queue holds, what went through it, and who waited for whom."""

    size: int
    bytes: int
    enqueued: int
    dequeued: int
    producer_waits: int
    producer_wait_s: float
    """Seconds in which producers waited for room, summed over threads; finished waits only."""
    consumer_waits: int
    consumer_wait_s: float
    """Seconds in which consumers waited for a batch."""


class BatchQueue:
    """First in, first out, for any number of producers and consumers.

    Leaving a `with` block closes the queue; an exception that leaves it goes to the consumers, behind the batches that
    were made before it.

    >>> queue = BatchQueue(capacity=4)
    >>> with queue:
    ...     for rows in (1, 2, 3):
    ...         queue.enqueue(TrainingBatch.empty(rows, 8))
    >>> queue.size(), queue.peek().metadata["rows"]
    (3, 1)
    >>> [batch.metadata["rows"] for batch in queue]
    [1, 2, 3]
    >>> queue.dequeue()
    Traceback (most recent call last):
    millstream.errors.ClosedError: this queue was closed, and everything in it was taken
    ...

    Args:
        capacity: Most batches inside.
        budget_bytes: Most bytes inside; None: no limit.
    """

    def __init__(self, capacity: int = 8, *, budget_bytes: int | None = None) -> None:
        if capacity < 1:
            raise LoaderError(f"a queue of capacity {capacity} takes no batch", hint="pass capacity=1 or more")
        self.capacity = capacity
        self.budget_bytes = budget_bytes
        # One condition and notify_all: a waiter that Ctrl-C takes away must not take the only notice with it.
        self._changed = threading.Condition()
        self._batches: deque[tuple[TrainingBatch, int]] = deque()
        self._bytes = self._enqueued = self._dequeued = 0
        self._producers, self._consumers = Waits(), Waits()
        self._closed = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None

    def enqueue(self, batch: TrainingBatch, timeout_s: float | None = None) -> None:
        """Put a batch in, waiting for room; raises ClosedError, also when the queue is closed meanwhile."""
        size = self._admitted(batch)
        with self._changed:
            self._producers.until(lambda: self._takes(size), self._changed, timeout_s, "room in the queue")
            self._put(batch, size)

    def try_enqueue(self, batch: TrainingBatch) -> bool:
        """Put a batch in if there is room now, and say whether there was; raises ClosedError."""
        size = self._admitted(batch)
        with self._changed:
            if not self._takes(size):
                return False
            self._put(batch, size)
            return True

    def dequeue(self, timeout_s: float | None = None) -> TrainingBatch:
        """Take the oldest batch, waiting for it; raises the producer's error or ClosedError when there will be none."""
        batch = self._next(timeout_s)
        if batch is None:
            raise ClosedError(
                "this queue was closed, and everything in it was taken",
                hint="iterate over the queue, which ends here, or make a new one",
            )
        return batch

    def try_dequeue(self) -> TrainingBatch | None:
        """Take the oldest batch if there is one now, else None; at the end raises as `dequeue` does."""
        with self._changed:
            return self.dequeue() if self._gives() else None

    def peek(self) -> TrainingBatch | None:
        """Look at the oldest batch without taking it; None when there is none."""
        with self._changed:
            return self._batches[0][0] if self._batches else None

    def size(self) -> int:
        """Count the batches inside."""
        return len(self._batches)

    def __iter__(self) -> Iterator[TrainingBatch]:
        """Take batches until the queue is closed and empty; raises the producer's error."""
        while (batch := self._next()) is not None:
            yield batch

    def clear(self) -> int:
        """Drop what is inside, and say how many batches that were; open or closed, the queue stays as it is."""
        with self._changed:
            dropped = len(self._batches)
            self._batches.clear()
            self._bytes = 0
            self._changed.notify_all()
        return dropped

    def close(self, error: BaseException | None = None) -> None:
        """Let nothing more in and wake everybody who waits. The first call counts; later ones change nothing.

        Args:
            error: What went wrong in the producer; consumers get it when they have taken everything else.
        """
        with self._changed:
            if not self._closed:
                self._closed, self._error = True, error
                self._traceback = None if error is None else error.__traceback__
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether nothing more goes in; there may still be batches inside."""
        return self._closed

    def stats(self) -> QueueStats:
        """Sum up.

        >>> queue = BatchQueue()
        >>> queue.enqueue(TrainingBatch.empty(2, 8))
        >>> queue.stats().bytes, queue.stats().producer_waits
        (256, 0)
        """
        with self._changed:
            producers, consumers = self._producers, self._consumers
            return QueueStats(
                size=len(self._batches),
                bytes=self._bytes,
                enqueued=self._enqueued,
                dequeued=self._dequeued,
                producer_waits=producers.count,
                producer_wait_s=producers.seconds,
                consumer_waits=consumers.count,
                consumer_wait_s=consumers.seconds,
            )

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error)

    def _admitted(self, batch: TrainingBatch) -> int:
        size = batch_bytes(batch)
        if self.budget_bytes is not None and size > self.budget_bytes:
            raise BudgetError(
                f"a batch of {size} bytes does not fit into a queue of {self.budget_bytes}",
                hint=f"pass budget_bytes={size} or more, or split the batch",
            )
        return size

    def _takes(self, size: int) -> bool:
        """Whether a producer need not wait: there is room, or there never will be."""
        fits = self.budget_bytes is None or self._bytes + size <= self.budget_bytes
        return self._closed or (fits and len(self._batches) < self.capacity)

    def _gives(self) -> bool:
        return self._closed or bool(self._batches)

    def _put(self, batch: TrainingBatch, size: int) -> None:
        if self._closed:
            raise ClosedError(
                "this queue was closed; the batch is not in it", hint="end the producer, or make a new queue"
            ) from self._error
        self._batches.append((batch, size))
        self._bytes += size
        self._enqueued += 1
        self._changed.notify_all()

    def _next(self, timeout_s: float | None = None) -> TrainingBatch | None:
        """Wait for the oldest batch and take it; at the end None, or the producer's error."""
        with self._changed:
            self._consumers.until(self._gives, self._changed, timeout_s, "a batch of the queue")
            if self._batches:
                batch, size = self._batches.popleft()
                self._bytes -= size
                self._dequeued += 1
                self._changed.notify_all()
                return batch
        if isinstance(self._error, Exception):
            raise self._error.with_traceback(self._traceback)  # as it was: each consumer would lengthen it
        if self._error is not None:  # Ctrl-C there is no Ctrl-C here, but no regular end either
            raise ClosedError(
                f"this queue was closed by {type(self._error).__name__}",
                hint="its producer was stopped: start it again",
            ) from self._error
        return None


def batch_bytes(batch: TrainingBatch) -> int:
    """Count the bytes of a batch's tensors; masks are made later and not in it.

    >>> batch_bytes(TrainingBatch.empty(2, 8))
    256
    """
    if batch.input_ids is None:
        raise BatchError("this batch was released", hint="enqueue it before release(), or enqueue batch.copy()")
    tensors = (*(getattr(batch, name) for name in COLUMNS), batch.cu_seqlens, batch.lengths)
    return sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)
