"""Batches of positions, made ahead of the trainer by one thread.

When another batch size is asked for, tensors of the wrong size become positions again and are made once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from millstream.batches import closed_error
from millstream.errors import BudgetError, ClosedError, QueueClosed
from millstream.selfplay.chunk_feed import Output, Shuffled, TensorMaker, Tensors, take_rows
from millstream.stages import Budget, Ordered, Threads, wait_for

HELD_S = 2.0
"""How long the trainer waits for a buffer that only itself can give back."""


class TensorPrefetch:
    """Makes the next batches while the trainer has the last one.

    Args:
        receive: Gives the next positions; raises QueueClosed when there are no more.
        rank: Whose rows are made.
        world_size: How many ranks there are.
        depth: How many batches are made ahead.
        budget: Bytes that batches may take.
        output: What tensors are made of.
        what_for: Says what is waited for, where a batch takes long.
    """

    def __init__(
        self,
        receive: Callable[[], Shuffled],
        *,
        rank: int,
        world_size: int,
        depth: int,
        budget: Budget,
        output: Output = "float32",
        what_for: Callable[[], str] = lambda: "positions",
    ) -> None:
        self._what_for = what_for
        self._receive, self._rank, self._ranks, self._budget = receive, rank, world_size, budget
        self._output: Output = output
        self.depth = depth
        self._thread = Threads(1, "millstream-tensors")
        self._made = Ordered[Tensors | None](self._thread, "batches ahead")
        self._waiting: list[Shuffled] = []
        self._ended = False
        self._stopping = threading.Event()
        self._maker: TensorMaker | None = None
        self._asked_s: float | None = None
        """Since when a consumer waits for a batch."""

    def next(self, batch_size: int) -> Tensors | None:
        """The batch of the next step, until it is `taken`; None when nothing is left.

        After Ctrl-C or a transform that fails, the next call gives the same rows.
        """
        if self._maker is None or self._maker.batch_size != batch_size:
            self._take_back()
            self._maker = TensorMaker(batch_size, self._rank, self._budget, self._stopped, self._output)
        while len(self._made) < 1 + self.depth:
            self._submit(self._maker)
        self._asked_s = time.monotonic()
        try:
            return self._result(0)  # where it fails, its positions wait again
        finally:
            self._asked_s = None

    def taken(self) -> None:
        """The batch is the trainer's: the one behind it is the next."""
        if self._maker is not None:  # else it is closed
            self._made.drop()
            self._submit(self._maker)

    def skip(self, rows: int) -> list[Shuffled]:
        """Go past so many rows of all ranks, which were given out before."""
        self._take_back()
        self._wait_for(rows)
        return take_rows(self._waiting, rows)

    def close(self) -> None:
        """Make no more; the stages that feed it must have stopped."""
        self._stopping.set()
        self._made.close()
        self._thread.close()
        self._maker = None  # it knows this one, which would wait for the collector

    def _submit(self, maker: TensorMaker) -> None:
        with self._closing():
            self._made.submit(self._make, maker)

    def _result(self, place: int) -> Tensors | None:
        with self._closing():
            return wait_for(partial(self._made.result, place), "a batch", self._what_for)

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Say that it is the loader that was closed."""
        try:
            yield
        except ClosedError:
            if self._stopping.is_set():
                raise closed_error() from None
            raise

    def _make(self, maker: TensorMaker) -> Tensors | None:
        """On the thread: collect the rows of a step, and make the tensors of this rank."""
        rows = maker.batch_size * self._ranks
        self._wait_for(rows)
        pieces = take_rows(self._waiting, rows)
        try:
            return maker.make(pieces) if any(map(len, pieces)) else None
        except BaseException:
            self._waiting[:0] = pieces
            raise

    def _stopped(self, seconds: float) -> bool:
        """Wait for a buffer; the consumer may hold all of them."""
        asked_s = self._asked_s
        if asked_s is not None and time.monotonic() - asked_s > HELD_S and not self._made.is_ready:
            raise BudgetError(
                "every buffer of the memory budget is in your hands",
                hint="let go of batches (release(), del), copy() what you keep, or raise memory_budget",
            )
        return self._stopping.wait(seconds)

    def _wait_for(self, rows: int) -> None:
        found = sum(map(len, self._waiting))
        while found < rows and not self._ended:
            try:
                piece = self._receive()
            except QueueClosed:
                self._ended = True
                return
            self._waiting.append(piece)
            found += len(piece)

    def _take_back(self) -> None:
        """Let what was made ahead be positions again."""
        pieces: list[Shuffled] = []
        for place in range(len(self._made)):
            tensors = self._result(place)
            pieces += [] if tensors is None else tensors.pieces
        self._made.clear()
        self._waiting[:0] = pieces
