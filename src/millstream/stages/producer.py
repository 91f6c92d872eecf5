"""Producer: the right to put items into a queue. A queue without producers is at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.errors import ClosedError

if TYPE_CHECKING:
    from millstream.stages.queue import Queue

T = TypeVar("T")


class Producer(Generic[T]):
    """One of those who put items into a queue. An exception that leaves its `with` block goes to the consumers, behind
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
        """Put items in, in this order; those behind a `timeout_s` that went by or a close are not in the queue."""
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
