"""RolloutFiller: steps of rollouts, dealt out to ranks.

Of a fixed set, a thread makes the next batches ahead, where the trainer leaves it time for that. A feed receives, cuts
and rates rollout batches ahead itself.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, NamedTuple, Protocol

from millstream.batches import Counters, TrainingBatch, closed_error
from millstream.errors import LoaderError
from millstream.loaders import LoaderSettings, PerRow, positive, transform_batch
from millstream.loaders.rollouts import Dealer, DealtStep, MicroBatches
from millstream.loaders.runs import Locks
from millstream.stages import HomeProcess, Threads
from millstream.stats import Ledger

log = logging.getLogger("millstream.loaders")
AHEAD = 1
"""Batches that are made ahead, unless `prefetch` says it."""
HAND_OVER_NS = 100_000
"""What it costs to have a batch made by another thread: a trainer that takes less time for a step gains nothing."""
PATIENCE = 8
"""How many more steps without that time than with it there are before no more is made ahead."""


class RolloutRun(Protocol):
    """A run over rollouts, as far as a filler asks it."""

    locks: Locks
    settings: LoaderSettings
    step: int
    place: Any
    """What `coming` may change, for a way back."""

    def coming(self, batch_size: int) -> DealtStep:
        """Wait for the rollouts of the next step."""
        ...

    def later(self, number: int, batch_size: int) -> Callable[[], DealtStep] | None:
        """What makes the step that comes so many after the next one; None: that is not known yet."""
        ...

    def advance(self) -> None:
        """The next step was delivered."""
        ...

    def prefetch(self, batches: int) -> None:
        """Make so many ahead from now on."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of rollouts in memory."""
        ...

    @property
    def ready(self) -> int:
        """How much the run itself has made ahead."""
        ...


class AheadStep(NamedTuple):
    """A step that is made ahead."""

    asked: tuple[Any, int]
    """The place of the run and the batch size that it is for."""
    make: Callable[[], DealtStep]
    coming: Future[DealtStep]


class RolloutFiller:
    """Deals out the steps of a run, and makes their batches ahead where it is known what comes.

    A batch that no thread has begun when it is asked for is made by the asking thread. The thread that makes it changes
    nothing about it.
    """

    def __init__(self, run: RolloutRun, dealer: Dealer, delivery: RolloutDelivery, prefetch: int | None) -> None:
        self._run, self._dealer, self._delivery = run, dealer, delivery
        self._before = run.step, run.place
        self._most, self._always = prefetch or AHEAD, prefetch is not None
        self._short = 0
        """How many more steps left no time to make a batch meanwhile than did, up to PATIENCE."""
        self._size: int | None = None
        """Of the step that the trainer makes itself: once it is made, the next one is made ahead."""
        self._made: deque[AheadStep] = deque()
        self._threads: Threads | None = None
        self._process, self._closed = HomeProcess(), False

    def take(self, batch_size: int) -> DealtStep:
        """Wait for the rollouts of the next step."""
        left_ns = time.monotonic_ns() - self._delivery.made_at_ns
        self._short = max(0, self._short - 1) if left_ns > HAND_OVER_NS else min(PATIENCE, self._short + 1)
        self._before, self._size = (self._run.step, self._run.place), None
        size = positive("batch_size", batch_size)
        step = self._made_ahead(size)
        if step is None:
            step, self._size = self._run.coming(size), size
        else:
            self._fill(size, first=1)
        return step

    def _made_ahead(self, batch_size: int) -> DealtStep | None:
        """The next step, if it was to be made ahead; what a thread failed at is tried again by the trainer."""
        if self._process.left:  # a forked child has none of its parent's threads
            self._made, self._process = deque(), HomeProcess()
        if not self._made:
            return None
        asked, make, coming = self._made[0]
        if asked == (self._run.place, batch_size):
            self._made.popleft()
            if not self._closed and coming.cancel():  # to wait until a thread wakes up would take longer
                return make()
            try:
                return coming.result()
            except CancelledError:
                raise closed_error() from None
            except Exception as error:
                log.debug("a batch could not be made ahead: %r", error)
        self.stop()
        return None

    def _fill(self, batch_size: int, first: int) -> None:
        """Make steps ahead, from the one that comes so many after the next."""
        run, micro = self._run, self._delivery.makes_micro
        if self._short >= PATIENCE and not self._always:
            return
        for number in range(first + len(self._made), first + self._most):
            later = run.later(number, batch_size)
            if later is None or self._closed:
                return
            if self._threads is None:
                self._threads = Threads(1, "millstream-rollouts")
            schedule, step = run.place
            make = partial(_made, later, micro=micro)
            self._made.append(AheadStep(((schedule, step + number), batch_size), make, self._threads.submit(make)))

    def taken(self, filled: DealtStep) -> None:
        """Move on by one step."""
        self._run.advance()
        if self._size is not None:
            began = time.monotonic_ns()
            self._fill(self._size, first=0)
            self._delivery.made_at_ns += time.monotonic_ns() - began  # a thread that wakes up is not the trainer

    def give_back(self, error: BaseException, filled: DealtStep | None, step: int) -> None:
        """Stand where the run stood before `take`; Ctrl-C may have come before that noted where."""
        if self._before[0] == step:
            self._run.place = self._before[1]
        self.stop()

    def prefetch(self, batches: int) -> None:
        """Make so many batches ahead from now on, and start."""
        with self._run.locks.asking:
            self.stop()
            self._most, self._always = batches, True
            self._run.prefetch(batches)
            self._fill(self._run.settings.batch_size, first=0)

    def stop(self) -> None:
        """Drop what was made ahead."""
        if self._process.left:
            self._made.clear()
        while self._made:
            self._made.pop().coming.cancel()

    def close(self) -> None:
        """Stop the thread."""
        self._closed = True
        threads = self._threads
        if threads is not None and not self._process.left:
            threads.close()

    @property
    def counters(self) -> Counters:
        """The trainer asks for batches one by one."""
        return Counters()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of batches, also of those in the user's hands, and of rollouts."""
        return {"batches": self._dealer.buffers.used_bytes, "rollouts": self._run.held_bytes}

    @property
    def ready(self) -> int:
        """Batches, or rollout batches of a feed, that are made ahead."""
        return self._run.ready + sum(each.coming.done() for each in tuple(self._made))

    @property
    def figures(self) -> dict[str, Any]:
        """Nothing more."""
        return {}


def _made(make: Callable[[], DealtStep], *, micro: bool) -> DealtStep:
    step = make()
    step.prepare(micro=micro)
    return step


class RolloutDelivery:
    """Makes batches, or micro-batches, of a step."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        if any(isinstance(transform, PerRow) for transform in transforms):
            raise LoaderError(
                "a transform of rows would change tokens under their log-probabilities",
                hint="pass functions batch -> batch, or change the records before they get here",
            )
        self._transforms, self.ledger = transforms, Ledger()
        self.makes_micro = False
        """Whether the last step was asked for in micro-batches."""
        self.made_at_ns = 0
        """When its batches were made; transforms and the trainer come after."""

    def finish(self, filled: DealtStep) -> tuple[TrainingBatch, int]:
        """Make one batch of all rollouts of this rank."""
        self.makes_micro = False
        made = filled.batch()
        self.made_at_ns = time.monotonic_ns()
        batch = self._transformed(made)
        return batch, batch.metadata["rows"]

    def finish_micro(self, filled: DealtStep) -> tuple[MicroBatches, int]:
        """Make micro-batches of at most so many tokens."""
        self.makes_micro = True
        found = filled.micro_batches()
        self.made_at_ns = time.monotonic_ns()
        found[:] = [self._transformed(batch) for batch in found]
        return found, sum(batch.metadata["rows"] for batch in found)

    def _transformed(self, batch: TrainingBatch) -> TrainingBatch:
        for transform in self._transforms:
            batch = transform_batch(transform, batch)
        return batch
