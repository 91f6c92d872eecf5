"""MemoryFeed: rollouts from threads of the trainer's own process, through a bounded queue.

Nothing survives the process. A cursor of another feed, of a run that crashed, say, therefore means a new beginning.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from uuid import uuid4

import numpy as np

from millstream.errors import ClosedError, StateError, WaitTimeout
from millstream.feeds.feed import Arrival, Control, Cursor, Puttable, RolloutSource
from millstream.feeds.gathering import log, pieces
from millstream.rollouts import RolloutBlock, block_of
from millstream.stages import checked_timeout


class MemoryFeed:
    """A queue of rollouts in one process: any number of sources, one trainer.

    >>> feed = MemoryFeed()
    >>> with feed.source() as source:
    ...     source.put({"rollout_id": "a", "group_id": 1, "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0,
    ...                 "finish": "stop"})
    >>> [arrival.block["rollout_id"].tolist() for arrival in feed.receive(timeout_s=0)], feed.ended
    ([['a']], True)

    Args:
        most_rollouts: Most rollouts that wait to be received; a put of more waits for room.
        most_bytes: Most bytes that wait; more that are kept for states are worth a warning.
        timeout_s: How long a put waits for room; None: as long as it takes.
    """

    def __init__(
        self, *, most_rollouts: int = 65_536, most_bytes: int = 1 << 30, timeout_s: float | None = None
    ) -> None:
        self.most_rollouts, self.most_bytes, self.timeout_s = most_rollouts, most_bytes, checked_timeout(timeout_s)
        self._id = uuid4().hex
        self._changed = threading.Condition()
        self._waiting: deque[RolloutBlock] = deque()
        self._kept: deque[tuple[int, RolloutBlock]] = deque()  # received and not released, with the place after it
        self._waiting_rollouts = self._waiting_bytes = self._kept_bytes = 0
        self._warned = False
        self._place = self._open = self._opened = self._received = 0
        self._control = Control()
        self._closed = False
        self._error: BaseException | None = None

    def source(self) -> RolloutSource:
        """A new place to put rollouts in; the feed ends when all of them are closed."""
        with self._changed:
            self._open += 1
            self._opened += 1
        return _MemorySource(self)

    @property
    def cursor(self) -> Cursor:
        """How many rollouts were received."""
        return self._cursor(self._place)

    @property
    def ended(self) -> bool:
        """Whether all sources were closed, and everything was received."""
        with self._changed:
            return self._opened > 0 and self._open == 0 and not self._waiting and self._error is None

    def receive(self, timeout_s: float) -> list[Arrival]:
        """Give what was put; after the last of it, raise the error of a source that failed, if one did."""
        limit_s = checked_timeout(timeout_s)
        with self._changed:
            self._changed.wait_for(self._has_news, None if limit_s is None else min(limit_s, threading.TIMEOUT_MAX))
            if not self._waiting and self._error is not None:
                self._fail(self._error)
            arrivals = []
            while self._waiting:
                block = self._waiting.popleft()
                self._count(block, -1)
                self._place += len(block)
                self._received += len(block)
                self._kept.append((self._place, block))
                self._kept_bytes += block.nbytes
                arrivals.append(Arrival(block, self._cursor(self._place)))
            self._changed.notify_all()
        if self._kept_bytes > self.most_bytes and not self._warned:
            log.warning(
                "a feed in memory keeps %d MB for states that were saved: commit(state) lets go of what lies before it",
                self._kept_bytes >> 20,
            )
            self._warned = True
        return arrivals

    def seek(self, cursor: Cursor) -> None:
        """Go back to a place that was not released; a cursor of another feed changes nothing."""
        if cursor.get("memory") != self._id:
            return
        place = int(cursor["rollouts"])
        with self._changed:
            if not self._released <= place <= self._place:
                raise StateError(
                    f"rollout {place} of this feed is not kept any more (first kept: {self._released})",
                    hint="seek before a later state is committed",
                )
            while self._place > place:
                end, block = self._kept.pop()
                self._place = max(place, end - len(block))
                if cut := self._place - (end - len(block)):
                    self._kept.append((place, block.select(np.arange(cut))))
                    block = block.select(np.arange(cut, len(block)))
                self._waiting.appendleft(block)
                self._count(block, 1)
            self._kept_bytes = sum(block.nbytes for _, block in self._kept)

    def release(self, cursor: Cursor) -> None:
        """Forget what was received up to a place."""
        if cursor.get("memory") != self._id:
            return
        with self._changed:
            while self._kept and self._kept[0][0] <= int(cursor["rollouts"]):
                self._kept_bytes -= self._kept.popleft()[1].nbytes

    def tell(self, control: Control) -> None:
        """Tell all sources what is wanted."""
        self._control = control

    def counters(self) -> dict[str, int]:
        """Count."""
        with self._changed:
            return {"received": self._received, "kept": sum(len(block) for _, block in self._kept)}

    def close(self) -> None:
        """Take nothing more: a put raises ClosedError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, block: RolloutBlock) -> None:
        """Take rollouts from a source, when there is room."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._has_room(block), self.timeout_s):
                raise WaitTimeout(
                    f"waited {self.timeout_s} s for room: {self._waiting_rollouts} rollouts are in the feed",
                    hint="the trainer is slower than its producers: follow `control()`, or pass a longer timeout_s",
                )
            if self._closed:
                raise ClosedError("the feed was closed; the rollouts are not in it", hint="stop making rollouts")
            self._waiting.append(block)
            self._count(block, 1)
            self._changed.notify_all()

    def leave(self, error: BaseException | None) -> None:
        """Hear that a source puts nothing more, and what went wrong with it."""
        with self._changed:
            self._open -= 1
            self._error = self._error or error
            self._changed.notify_all()

    @property
    def control(self) -> Control:
        """The trainer's latest word."""
        return self._control

    @property
    def _released(self) -> int:
        return self._kept[0][0] - len(self._kept[0][1]) if self._kept else self._place

    def _cursor(self, place: int) -> Cursor:
        return {"memory": self._id, "rollouts": place}

    def _has_news(self) -> bool:
        return bool(self._waiting) or self._error is not None or (self._opened > 0 and self._open == 0)

    def _has_room(self, block: RolloutBlock) -> bool:
        rollouts, size = self._waiting_rollouts + len(block), self._waiting_bytes + block.nbytes
        return not self._waiting or (rollouts <= self.most_rollouts and size <= self.most_bytes)

    def _count(self, block: RolloutBlock, sign: int) -> None:
        self._waiting_rollouts += sign * len(block)
        self._waiting_bytes += sign * block.nbytes

    @staticmethod
    def _fail(error: BaseException) -> None:
        if isinstance(error, Exception):
            raise error
        # Ctrl-C there is no Ctrl-C here, but no regular end either.
        raise ClosedError(
            f"a source was closed by {type(error).__name__}", hint="mend the producer: its error stands above"
        ) from error


class _MemorySource(RolloutSource):
    def __init__(self, feed: MemoryFeed) -> None:
        self._feed = feed
        self._closed = False

    def put(self, rollouts: Puttable) -> None:
        """Give rollouts to the trainer; waits for room."""
        block = block_of(rollouts)
        if self._closed:
            raise ClosedError("this source was closed; the rollouts are not in it", hint="open another one")
        for piece in pieces(block, self._feed.most_bytes):
            self._feed.put(piece)

    def flush(self) -> None:
        """Nothing is gathered here, and nothing survives the process."""

    def control(self) -> Control:
        """The trainer's latest word."""
        return self._feed.control

    def close(self) -> None:
        """Say that nothing more comes from here."""
        self._leave(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        if not self._closed:
            self._closed = True
            self._feed.leave(error)
