"""Threads that read lanes ahead of the trainer. Which thread reads what, and when, changes nothing in what comes out.

A free thread takes the lane that would run dry first. A lane is read by one thread at a time; what was read waits in
the lane, up to a number of tokens, until the trainer takes it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from millstream.batches.engine import Counters, closed_error
from millstream.loaders.lane import EpochEnd, LaneReader, Piece, part_bytes
from millstream.stages.lifetime import after_fork, close_on_exit

STOP_S = 0.5
"""How long closing waits for threads that are in the middle of a chunk; they end by themselves after it."""
_EVEN_AN_EMPTY_ONE = 64
Lane = TypeVar("Lane", bound=Hashable)


@dataclass
class _Ahead:
    """What was read of one lane and waits to be taken."""

    reader: LaneReader
    most_tokens: int
    turn: int
    ready: deque[Piece | EpochEnd] = field(default_factory=deque)
    tokens: int = 0
    busy: bool = False
    wanted: bool = False
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A lane to be read, so many tokens ahead."""

    reader: LaneReader
    ahead_tokens: int


class LaneFeed(Generic[Lane]):
    """Reads some lanes, by whatever they are called, with some threads; once all of them hold `budget_bytes`, only what
    a row waits for."""

    def __init__(self, lanes: Mapping[Lane, Reading], *, threads: int, budget_bytes: int | None) -> None:
        self.counters = Counters()
        self.held_bytes = 0
        """Of what waits in lanes, and of what was taken and not let go."""
        self._lanes = {
            lane: _Ahead(reading.reader, reading.ahead_tokens, turn)
            for turn, (lane, reading) in enumerate(lanes.items())
        }
        self._budget_bytes = budget_bytes
        self._changed = threading.Condition()
        self._stopped = False
        after_fork(self._leave_behind)
        close_on_exit(self, self.stop)
        count = min(threads, len(self._lanes))
        self._threads = [
            threading.Thread(target=_work, args=(self, number > 0), daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, lane: Lane) -> Piece | EpochEnd:
        """The next piece of a lane, waiting for it if need be; raises what went wrong when it was read."""
        ahead = self._lanes[lane]
        with self._changed:
            began = time.perf_counter_ns()
            ahead.wanted = not ahead.ready
            if ahead.wanted:
                self._changed.notify_all()
            while not ahead.ready and ahead.error is None and not self._stopped:
                self._changed.wait()
            ahead.wanted = False
            self.counters.take_wait_ns += time.perf_counter_ns() - began
            if self._stopped:
                raise closed_error()
            if not ahead.ready:
                assert ahead.error is not None
                raise ahead.error
            piece = ahead.ready.popleft()
            ahead.tokens -= _cost(piece)
            self._changed.notify_all()
            return piece

    def let_go(self, count: int) -> None:
        """So many bytes of what was taken are no longer held."""
        with self._changed:
            self.held_bytes -= count
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        stop = time.monotonic() + STOP_S
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, stop - time.monotonic()))

    def _leave_behind(self) -> None:
        """In a forked child: the threads are not here, and one of them may hold the lock."""
        self._changed, self._threads = threading.Condition(), []

    def next_lane(self, *, at_leisure: bool) -> _Ahead | None:
        """The lane to read next, the one that is needed first or last; None when there is nothing to do."""
        full = self._budget_bytes is not None and self.held_bytes >= self._budget_bytes
        open_lanes = [
            lane
            for lane in self._lanes.values()
            if not lane.busy and lane.error is None and (lane.wanted or (lane.tokens < lane.most_tokens and not full))
        ]
        choose = max if at_leisure else min
        return choose(
            open_lanes, key=lambda lane: (not lane.wanted, lane.tokens / lane.most_tokens, lane.turn), default=None
        )


def _work(feed: LaneFeed[Any], at_leisure: bool) -> None:  # noqa: FBT001 - what a thread begins with
    """What each thread does. All but the first begin with a lane that is needed last: a tokenizer may have to be made
    for each of them, and the first batch does not wait for that."""
    changed = feed._changed
    while True:
        with changed:
            began = time.perf_counter_ns()
            while (lane := feed.next_lane(at_leisure=at_leisure)) is None and not feed._stopped:
                changed.wait()
            feed.counters.room_wait_ns += time.perf_counter_ns() - began
            if feed._stopped or lane is None:
                return
            lane.busy, at_leisure = True, False
        began = time.perf_counter_ns()
        piece, error = None, None
        try:
            piece = lane.reader.advance()
        except Exception as failure:
            error = failure
        with changed:
            lane.busy, lane.error = False, error
            feed.counters.filled += 1
            feed.counters.fill_ns += time.perf_counter_ns() - began
            if piece is not None:
                lane.ready.append(piece)
                lane.wanted = False  # whoever waits for it may be slow to wake, and the budget is for others too
                lane.tokens += _cost(piece)
                feed.held_bytes += _bytes(piece)
            changed.notify_all()


def _cost(piece: Piece | EpochEnd) -> int:
    """Tokens, and a little for the piece itself: a lane of empty pieces must not be read for ever."""
    return _EVEN_AN_EMPTY_ONE + (len(piece.part.tokens) if isinstance(piece, Piece) else 0)


def _bytes(piece: Piece | EpochEnd) -> int:
    return part_bytes(piece.part) if isinstance(piece, Piece) else 0
