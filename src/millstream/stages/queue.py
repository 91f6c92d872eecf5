"""Queue: items on their way from the threads that make them to the threads that use them.

Bounded, in items and if need be in bytes. It ends once. When its last producer is gone, nothing goes in and what is
inside comes out; then consumers get the end, or the error that caused it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, TypeVar, get_args

from millstream.errors import BudgetError, LoaderError, QueueClosed, WaitTimeout
from millstream.settings import at_least, byte_count
from millstream.stages.lifetime import after_fork
from millstream.stages.queue_ends import Producer, QueueEnd
from millstream.stages.wait import Waits, wait_at_stages

T = TypeVar("T")
Overflow = Literal["block", "drop_new", "keep_newest"]
SOME = "say how many items to take, from 1 on"


class Queue(Generic[T]):
    """First in, first out, for any number of producers and consumers.

    >>> queue = Queue(capacity=4)
    >>> with queue.producer() as producer:
    ...     producer.put_many("abc")
    >>> queue.get(), queue.get_many(8)
    ('a', ['b', 'c'])
    >>> queue.get()
    Traceback (most recent call last):
    millstream.errors.QueueClosed: this queue was closed, and everything in it was taken
    ...

    Args:
        capacity: Most items inside.
        overflow: What a full queue does with one more: `"block"`, its producer waits; `"drop_new"`, it is dropped;
            `"keep_newest"`, the oldest is dropped for it. Drops are counted.
        name: For messages.
        budget_bytes: Most bytes inside, or a size such as "1GB"; None: no limit.
        weigh: The bytes of an item, which `budget_bytes` needs.
    """

    def __init__(
        self,
        capacity: int = 16,
        overflow: Overflow = "block",
        name: str = "",
        *,
        budget_bytes: int | str | None = None,
        weigh: Callable[[T], int] | None = None,
    ) -> None:
        if isinstance(capacity, int) and capacity < 1:
            raise LoaderError(f"a queue of capacity {capacity} takes nothing", hint="pass capacity=1 or more")
        if overflow not in get_args(Overflow):
            raise LoaderError(f"there is no overflow={overflow!r}", hint=f"one of {', '.join(get_args(Overflow))}")
        self.capacity = at_least("capacity", capacity, hint="pass capacity=1 or more")
        self.overflow, self.name = overflow, name
        self.budget_bytes = None if budget_bytes is None else byte_count("budget_bytes", budget_bytes)
        if weigh is not None and not callable(weigh):
            raise LoaderError(f"weigh={weigh!r} cannot be called", hint="pass a function of an item, such as len")
        if budget_bytes is not None and weigh is None:
            raise LoaderError(
                f"budget_bytes={budget_bytes!r} limits nothing: no function says what an item weighs",
                hint="pass weigh=, a function that gives the bytes of an item, such as len",
            )
        self._maker: Callable[[], Any] = _no_stage
        self._weigh = weigh
        self._make_lock()
        self.at_work = False
        """Whether threads may be at it now: a forked child, which has none of them, cannot continue it."""
        self._items: deque[tuple[T, int]] = deque()
        self._producers = 0
        self._end = QueueEnd()
        self._bytes = self._put_count = self._got = self._dropped = 0
        self._putters, self._getters = Waits(), Waits()
        self._made = self._changed_at = time.perf_counter()
        self._item_seconds = 0.0
        after_fork(self._forget)

    def _make_lock(self) -> None:
        # Reentrant, since a forgotten producer may be collected, and so closed, in the middle of anything.
        self._lock = threading.RLock()
        self._not_empty, self._not_full = threading.Condition(self._lock), threading.Condition(self._lock)

    def _forget(self) -> None:
        """In a forked child: a thread that is not here may hold the lock, and others will never put or take."""
        self._make_lock()
        if (self.at_work or self._getters.count) and not self._end.over:
            self._end.leave()

    @property
    def maker(self) -> Any:
        """The stage whose output this is, if it is one, and there still is."""
        return self._maker()

    @maker.setter
    def maker(self, stage: Any) -> None:
        self._maker = weakref.ref(stage)  # it holds the queue: weakly, so that both are collected together

    def producer(self) -> Producer[T]:
        """A token to put items with; when the last one is closed, or forgotten, the queue closes."""
        with self._lock:
            self._end.refuse(self)
            self._producers += 1
            self.at_work = self.at_work or self.maker is None  # a stage says when it starts
        return Producer(self)

    def get(self, timeout_s: float | None = None) -> T:
        """Take the oldest item, waiting for it; raises QueueClosed, or what the producer failed with, at the end."""
        return self.get_many(1, timeout_s)[0]

    def get_many(self, most: int, timeout_s: float | None = None) -> list[T]:
        """Take up to `most` of the oldest items, at least one, waiting for that one."""
        if type(most) is not int or most < 1:  # asked here, since a call would cost a third of what taking an item does
            most = at_least("most", most, hint=SOME)
        with self._lock:
            if not self._gives():
                wait = partial(self._getters.until, self._gives, self._not_empty, wanted=f"an item of {self}")
                wait_at_stages(wait, timeout_s, self.maker)
            return self._take(most)

    def get_now(self, most: int) -> list[T]:
        """Take up to `most` of the oldest items that are there now, perhaps none; at the end raises as `get` does."""
        if type(most) is not int or most < 1:
            most = at_least("most", most, hint=SOME)
        with self._lock:
            return self._take(most) if self._gives() else []

    def try_get(self) -> T | None:
        """Take the oldest item if there is one now, else None; at the end raises as `get` does."""
        taken = self.get_now(1)
        return taken[0] if taken else None

    def peek(self) -> T | None:
        """Look at the oldest item without taking it; None when there is none."""
        with self._lock:
            return self._items[0][0] if self._items else None

    def __iter__(self) -> Iterator[T]:
        """Take items until the queue is closed and empty."""
        while True:
            try:
                item = self.get()
            except QueueClosed:
                return
            yield item

    @property
    def size(self) -> int:
        """How many items are inside."""
        return len(self._items)

    def has_room(self, timeout_s: float) -> bool:
        """Whether a producer need not wait, or not after so long."""
        with self._lock, contextlib.suppress(WaitTimeout):
            if self.overflow == "block":
                self._putters.until(partial(self._takes, 0), self._not_full, timeout_s, f"room in {self}")
            return True
        return False

    def total(self, measure: Callable[[T], int]) -> int:
        """What a measure of the items that are inside adds up to."""
        with self._lock:
            return sum(measure(item) for item, _ in self._items)

    @property
    def closed(self) -> bool:
        """Whether nothing more goes in; there may still be items inside."""
        return self._end.closed

    def close(self, error: BaseException | None = None) -> None:
        """Let nothing more in and wake all waiting threads. The first call counts; later ones change nothing.

        Args:
            error: What went wrong in the producer; consumers get it when they have taken everything else.
        """
        with self._lock:
            self._end.close(error)
            self._wake_all()

    def stop(self) -> None:
        """Give up: every call that waits, and every later one, raises Stopped. What is inside stays there."""
        with self._lock:
            self._end.stop()
            self._wake_all()

    def clear(self) -> int:
        """Drop what is inside, and say how many items that were; open or closed, the queue stays as it is."""
        with self._lock:
            self._look()
            dropped = len(self._items)
            self._items.clear()
            self._bytes = 0
            self._dropped += dropped
            self._not_full.notify_all()
        return dropped

    def counters(self) -> dict[str, Any]:
        """What went through, and which side waited: `put` = `got` + `dropped` + `size`, at any time.

        `fill_mean` is the mean share of the capacity that was taken up, `fill_s` the seconds it would have been full
        for. Near 1, the consumer is slow; near 0, the producer is.

        >>> queue = Queue(capacity=2, overflow="drop_new")
        >>> queue.producer().put_many("abc")
        >>> [queue.counters()[name] for name in ("put", "got", "dropped", "size")]
        [3, 0, 1, 2]
        """
        with self._lock:
            self._look()
            fill_s = self._item_seconds / self.capacity
            return {
                "capacity": self.capacity,
                "size": len(self._items),
                "bytes": self._bytes,
                "put": self._put_count,
                "got": self._got,
                "dropped": self._dropped,
                "fill_mean": fill_s / max(1e-9, self._changed_at - self._made),
                "fill_s": fill_s,
                "put_waits": self._putters.count,
                "put_wait_s": self._putters.seconds,
                "get_waits": self._getters.count,
                "get_wait_s": self._getters.seconds,
            }

    def __repr__(self) -> str:
        return f"the queue {self.name!r}" if self.name else "the queue"

    def _put(self, items: list[T], timeout_s: float | None) -> None:
        """Put each item in, as many as fit under one lock."""
        weighed = self._weighed(items)
        with self._lock:
            self._end.refuse(self)
            done = self._put_some(weighed, 0)
            while done < len(weighed):
                size = weighed[done][1]
                self._putters.until(partial(self._takes, size), self._not_full, timeout_s, f"room in {self}")
                self._end.refuse(self)
                done = self._put_some(weighed, done)

    def _put_now(self, items: Sequence[T]) -> int:
        weighed = self._weighed(items)
        with self._lock:
            self._end.refuse(self)
            return self._put_some(weighed, 0)

    def _try_put(self, item: T) -> bool:
        weighed = self._weighed((item,))
        with self._lock:
            self._end.refuse(self)
            return self._fits(weighed[0][1]) and self._put_some(weighed, 0) == 1

    def _put_some(self, weighed: Sequence[tuple[T, int]], done: int) -> int:
        """Put items in from number `done` on, and give the number of the first that has to wait for room."""
        self._look()
        begun, before = done, len(self._items)
        for item, size in islice(weighed, done, None):
            if not self._fits(size):
                if self.overflow == "block":
                    break
                if self.overflow == "drop_new":
                    self._dropped += 1
                    done += 1
                    continue
                self._make_room(size)
            self._items.append((item, size))
            self._bytes += size
            done += 1
        self._put_count += done - begun
        if self._getters.waiting:
            self._not_empty.notify(len(self._items) - before)
        return done

    def _make_room(self, size: int) -> None:
        """Let the oldest items go."""
        while not self._fits(size):
            self._bytes -= self._items.popleft()[1]
            self._dropped += 1

    def _take(self, most: int) -> list[T]:
        """Take what is there; raise the end if there is nothing."""
        if self._end.stopped or not self._items:
            self._end.tell(self)
        self._look()
        taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
        self._got += len(taken)
        if self.budget_bytes is not None:
            self._bytes -= sum(size for _, size in taken)
            self._not_full.notify_all()  # the one who waits longest may wait for more bytes than this
        elif self._putters.waiting:
            self._not_full.notify(len(taken))
        return [item for item, _ in taken]

    def _weighed(self, items: Sequence[T]) -> list[tuple[T, int]]:
        if self._weigh is None:
            return [(item, 0) for item in items]
        return [(item, self._weight(item)) for item in items]

    def _weight(self, item: T) -> int:
        assert self._weigh is not None
        size = self._weigh(item)
        if self.budget_bytes is not None and size > self.budget_bytes:
            raise BudgetError(
                f"an item of {size} bytes does not fit into a queue of {self.budget_bytes}",
                hint=f"pass budget_bytes={size} or more, or split it",
            )
        return size

    def _fits(self, size: int) -> bool:
        within = self.budget_bytes is None or self._bytes + size <= self.budget_bytes
        return len(self._items) < self.capacity and within

    def _takes(self, size: int) -> bool:
        """Whether a producer need not wait: there is room, or there never will be."""
        return self._end.over or self._fits(size)

    def _gives(self) -> bool:
        return self._end.over or bool(self._items)

    def _look(self) -> None:
        """Count how long the queue was as full as it is, before that changes."""
        now = time.perf_counter()
        self._item_seconds += len(self._items) * (now - self._changed_at)
        self._changed_at = now

    def _wake_all(self) -> None:
        self._not_empty.notify_all()
        self._not_full.notify_all()

    def _leave(self, error: BaseException | None) -> None:
        with self._lock:
            self._producers -= 1
            if error is not None or self._producers == 0:
                self.close(error)


def _no_stage() -> None:
    return None
