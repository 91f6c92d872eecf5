"""BatchQueue: batches on their way from the threads that make them to the threads that train on them.

Bounded by batches and by bytes. It ends once, for all: after `close()` nothing goes in, what is
inside comes out, and then consumers get the end, or what went wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millstream._core import Batch
from millstream.batches.batch import TrainingBatch
from millstream.batches.self_play import SelfPlayBatch
from millstream.errors import BatchError
from millstream.stages import Queue
from millstream.tensors import backend, framework_of

PLAIN = frozenset((int, float, bool, str, type(None)))
"""What metadata mostly lists, and what holds no buffer."""


@dataclass(frozen=True)
class QueueStats:
    """What a queue holds, what went through it, and how long both sides waited."""

    size: int
    bytes: int
    enqueued: int
    dequeued: int
    producer_waits: int
    producer_wait_s: float
    """Seconds in which producers waited for room, summed over threads."""
    consumer_waits: int
    consumer_wait_s: float
    """Seconds in which consumers waited for a batch."""


class BatchQueue:
    """First in, first out, for any number of producers and consumers.

    Leaving a `with` block closes the queue; an exception that leaves it goes to the consumers, after the batches that
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
    millstream.errors.QueueClosed: this queue was closed, and everything in it was taken
    ...

    Args:
        capacity: Most batches inside.
        budget_bytes: Most bytes of the buffers that the batches inside hold when they are put in; None: no limit.
    """

    def __init__(self, capacity: int = 8, *, budget_bytes: int | None = None) -> None:
        self.capacity, self.budget_bytes = capacity, budget_bytes
        self._queue: Queue[Any] = Queue(capacity, budget_bytes=budget_bytes, weigh=batch_bytes)
        self._producer = self._queue.producer()

    def enqueue(self, batch: TrainingBatch | SelfPlayBatch, timeout_s: float | None = None) -> None:
        """Put a batch in, waiting for room; raises ClosedError, also when the queue is closed meanwhile."""
        self._producer.put(batch, timeout_s)

    def try_enqueue(self, batch: TrainingBatch | SelfPlayBatch) -> bool:
        """Put a batch in if there is room now, and say whether there was; raises ClosedError."""
        return self._producer.try_put(batch)

    def dequeue(self, timeout_s: float | None = None) -> Any:
        """Take the oldest batch, waiting for it; raises the producer's error or ClosedError when there will be none."""
        return self._queue.get(timeout_s)

    def try_dequeue(self) -> Any:
        """Take the oldest batch if there is one now, else None; at the end raises as `dequeue` does."""
        return self._queue.try_get()

    def peek(self) -> Any:
        """Look at the oldest batch without taking it; None when there is none."""
        return self._queue.peek()

    def size(self) -> int:
        """Count the batches inside."""
        return self._queue.size

    def __iter__(self) -> Iterator[Any]:
        """Take batches until the queue is closed and empty; raises the producer's error."""
        return iter(self._queue)

    def clear(self) -> int:
        """Drop what is inside, and say how many batches that were; open or closed, the queue stays as it is."""
        return self._queue.clear()

    def close(self, error: BaseException | None = None) -> None:
        """Let nothing more in and wake all that wait. The first call counts; later ones change nothing.

        Args:
            error: What went wrong in the producer; consumers get it when they have taken everything else.
        """
        self._queue.close(error)

    @property
    def closed(self) -> bool:
        """Whether nothing more goes in; there may still be batches inside."""
        return self._queue.closed

    def stats(self) -> QueueStats:
        """Sum up.

        >>> queue = BatchQueue()
        >>> queue.enqueue(TrainingBatch.empty(2, 8))
        >>> queue.stats().bytes, queue.stats().producer_waits
        (256, 0)
        """
        counters = self._queue.counters()
        return QueueStats(
            size=counters["size"],
            bytes=counters["bytes"],
            enqueued=counters["put"],
            dequeued=counters["got"],
            producer_waits=counters["put_waits"],
            producer_wait_s=counters["put_wait_s"],
            consumer_waits=counters["get_waits"],
            consumer_wait_s=counters["get_wait_s"],
        )

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error)


def batch_bytes(batch: TrainingBatch | SelfPlayBatch) -> int:
    """Count the bytes of all buffers that a batch holds, each once, however many tensors look at it.

    Those are its tensors, the masks that were made, and what its metadata has of arrays. A view holds the whole buffer.

    >>> import numpy as np
    >>> batch = TrainingBatch.empty(2, 8)
    >>> batch_bytes(batch), batch_bytes(batch.split(2)[0])
    (256, 256)
    >>> _ = batch.loss_mask  # made when it is asked for
    >>> batch.metadata["scores"] = np.zeros((2, 8))
    >>> batch_bytes(batch)
    448
    """
    if not isinstance(batch, TrainingBatch | SelfPlayBatch):
        raise BatchError(f"a {type(batch).__name__} is no batch", hint="enqueue a TrainingBatch or a SelfPlayBatch")
    if (batch.planes if isinstance(batch, SelfPlayBatch) else batch.input_ids) is None:
        raise BatchError("this batch was released", hint="enqueue it before release(), or enqueue batch.copy()")
    total = end = 0
    for start, size in sorted(_buffers(batch)):
        total += max(0, start + size - max(start, end))
        end = max(end, start + size)
    return total


def _buffers(held: object) -> Iterator[tuple[int, int]]:
    """Address and bytes of every buffer that is found in batches, dicts and lists."""
    if (framework := framework_of(held)) is not None:
        yield from backend(framework).buffers(held)
    elif isinstance(held, bytes | bytearray):
        yield id(held), len(held)
    elif isinstance(held, Batch):  # all its columns lie in one buffer, which begins with the first
        yield held.inputs_and_labels[0].ctypes.data, held.nbytes
    elif isinstance(held, TrainingBatch | SelfPlayBatch):
        for name in (SelfPlayBatch if isinstance(held, SelfPlayBatch) else TrainingBatch).__slots__:
            yield from _buffers(getattr(held, name))
    elif isinstance(held, Mapping):
        yield from _buffers(list(held.values()))
    elif isinstance(held, list | tuple) and not PLAIN.issuperset(map(type, held)):
        for each in held:
            yield from _buffers(each)
