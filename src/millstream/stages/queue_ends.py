"""The two ends of a queue: producers put items in, and the end is told once to those who put and take.

A queue without producers is at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from millstream.errors import ClosedError, QueueClosed, Stopped

if TYPE_CHECKING:
    from millstream.stages.queue import Queue


T = TypeVar("T")


class Producer(Generic[T]):
    """One of those who put items into a queue. An exception that leaves its `with` block goes to the consumers, after
    the items that were put before it.

    >>> from millstream.stages.queue import Queue
    >>> queue = Queue()
    >>> first, second = queue.producer(), queue.producer()
    >>> first.put(1); first.close(); queue.closed
    False
    >>> second.close(); queue.closed
    True
    """

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue
        self._open = True

    def put(self, item: T, timeout_s: float | None = None) -> None:
        """Put an item in; raises ClosedError, also when the queue is closed meanwhile."""
        self._checked()._put([item], timeout_s)

    def put_many(self, items: Iterable[T], timeout_s: float | None = None) -> None:
        """Put items in, in this order; those after an elapsed `timeout_s` or a close are not in the queue."""
        self._checked()._put(list(items), timeout_s)

    def put_now(self, items: Sequence[T]) -> int:
        """Put as many items in as need no waiting, and say how many; raises ClosedError."""
        return self._checked()._put_now(items)

    def try_put(self, item: T) -> bool:
        """Put an item in if there is room now, and say whether there was; raises ClosedError."""
        return self._checked()._try_put(item)

    def close(self, error: BaseException | None = None) -> None:
        """Be gone; with an error, the queue closes at once and its consumers get it."""
        if self._open:
            self._open = False
            self._queue._leave(error)

    def _checked(self) -> Queue[T]:
        if not self._open:
            raise ClosedError("this producer was closed", hint="ask for another one with queue.producer()")
        return self._queue

    def __enter__(self) -> Producer[T]:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error)

    def __del__(self) -> None:
        self.close()


class QueueEnd:
    """Closed, regularly or by an error: what is inside still comes out. Or stopped, or left behind by a fork: nothing
    does."""

    def __init__(self) -> None:
        self.closed = self.stopped = self.over = self._left = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None

    def close(self, error: BaseException | None) -> None:
        """Let nothing more in; the first call counts."""
        if not self.closed:
            self.closed = self.over = True
            self._error, self._traceback = error, None if error is None else error.__traceback__

    def stop(self) -> None:
        """Give up."""
        self.stopped = self.over = True

    def leave(self) -> None:
        """Those at the other side are in another process."""
        self.stopped = self.over = self._left = True

    def refuse(self, queue: object) -> None:
        """Raise for a producer, if the queue is over."""
        if self.stopped:
            raise self._stopped(queue)
        if self.closed:
            raise ClosedError(
                f"{queue} was closed and takes no more", hint="end the producer, or make a new queue"
            ) from self._error

    def tell(self, queue: object) -> NoReturn:
        """Raise for a consumer that has taken everything."""
        if self.stopped:
            raise self._stopped(queue)
        if isinstance(self._error, Exception):
            raise self._error.with_traceback(self._traceback)  # as it was: each consumer would lengthen it
        if self._error is not None:  # Ctrl-C there is no Ctrl-C here, but no regular end either
            raise ClosedError(
                f"this queue was closed by {type(self._error).__name__}",
                hint="its producer was stopped: start it again",
            ) from self._error
        raise QueueClosed(
            "this queue was closed, and everything in it was taken",
            hint="iterate over the queue, which ends here, or make a new one",
        )

    def _stopped(self, queue: object) -> ClosedError:
        return left_behind(queue) if self._left else stopped(queue)


def stopped(what: object) -> Stopped:
    """The error of a wait for something that was stopped."""
    return Stopped(f"{what} was stopped", hint="this is how its threads end; start another pipeline to continue")


def left_behind(what: object) -> ClosedError:
    """The error of a forked child that asks for what threads of its parent do."""
    return ClosedError(
        f"{what} was at work when this process was forked, and its threads are in the other one",
        hint="make and start pipelines, stages and queues in the process that uses them",
    )
