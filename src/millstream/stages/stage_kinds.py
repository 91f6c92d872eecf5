"""The kinds of stages to derive from or to use: MapStage, SourceStage, and the plainest of each."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from millstream.errors import LoaderError, QueueClosed
from millstream.stages.metrics import INPUT, OUTPUT
from millstream.stages.queue import Queue
from millstream.stages.queue_ends import stopped
from millstream.stages.stage import Out, Stage

In = TypeVar("In")
AHEAD = 2
"""Finished turns that wait for a slower one before them, per thread: more would only need memory."""


class MapStage(Stage[Out], Generic[In, Out]):
    """Works on each item of its input by itself. Results leave in the order of the input, whatever `threads` is.

    >>> class Halves(MapStage[int, int]):
    ...     def process(self, item):
    ...         if item % 2:
    ...             self.count("odd")
    ...             return
    ...         yield item // 2
    >>> queue = Queue()
    >>> halves = Halves(queue, threads=3)
    >>> halves.start()
    >>> with queue.producer() as producer:
    ...     producer.put_many(range(7))
    >>> list(halves.output()), halves.counters()["drops"]
    ([0, 1, 2, 3], {'odd': 3})
    """

    together: ClassVar[int] = 1
    """Items whose results leave together, if as many wait and fit into the output: where one takes no time, waking the
    next stage does."""

    def __init__(self, *inputs: Queue[Any] | Stage[Any], **settings: Any) -> None:
        super().__init__(*inputs, **settings)
        if len(inputs) != 1:
            raise LoaderError(
                f"{type(self).__name__} takes one input, not {len(inputs)}", hint="pass one queue or stage"
            )
        self._taking = threading.Lock()
        self._turns = threading.Condition()
        self._finished: dict[int, list[Out]] = {}
        self._taken = self._sent = 0
        self._sending = False
        self._working = self.threads
        self._together = min([self.together, *(queue.capacity for queue in self._queues.values())])

    @abstractmethod
    def process(self, item: In) -> Iterable[Out]:
        """What becomes of an item. Several threads call it at a time; no result may depend on which."""

    def finish(self) -> Iterable[Out]:
        """What is left to deliver after the last item: reservoirs, partial batches. Called once, by one thread."""
        return ()

    def loops(self) -> Sequence[Callable[[], None]]:
        """One loop per thread."""
        return [self._alone] if self.threads == 1 else [self._among_others] * self.threads

    def wake(self) -> None:
        """Wake threads that wait for a slower one."""
        with self._turns:
            self._turns.notify_all()

    def _alone(self) -> None:
        """Results leave as they are made: a stage that makes much of one item never holds all of it."""
        while True:
            try:
                items = self.inputs[0].get_many(self._together)
            except QueueClosed:
                break
            if self._together == 1:
                self.send(self.process(items[0]))
            else:
                self.send(self._all_of(items))
        self.send(self.finish())

    def _among_others(self) -> None:
        while (taken := self._take()) is not None:
            turn, items = taken
            self._deliver(turn, self._all_of(items))
        with self._turns:
            self._working -= 1
            if self._working:
                return
        self.send(self.finish())

    def _all_of(self, items: Sequence[In]) -> list[Out]:
        return [made for item in items if not self.stopping.is_set() for made in self.process(item)]

    def _take(self) -> tuple[int, list[In]] | None:
        """The next items, and their place in the order; None at the end."""
        with self._clocks.waiting(INPUT), self._taking:
            try:
                items = self.inputs[0].get_many(self._together)
            except QueueClosed:
                return None
            self._taken += 1
            return self._taken - 1, items

    def _deliver(self, turn: int, results: list[Out]) -> None:
        """Lay results down, and send all that are due, unless another thread is about it."""
        with self._turns:
            self._finished[turn] = results
            send, self._sending = not self._sending, True
        if send:
            while (due := self._next_due()) is not None:
                self.send(due)
        with self._turns, self._clocks.waiting(OUTPUT):
            self._turns.wait_for(lambda: len(self._finished) <= AHEAD * self.threads or self.stopping.is_set())
        if self.stopping.is_set():
            raise stopped(f"stage {self.name!r}")

    def _next_due(self) -> list[Out] | None:
        """The results whose turn it is; None, and no longer sending, if they are not there yet."""
        with self._turns:
            due = self._finished.pop(self._sent, None)
            self._sending = due is not None
            self._sent += self._sending
            self._turns.notify_all()
            return due


class SourceStage(Stage[Out]):
    """Makes items one after the other. Its inputs, if it has any, are `self.inputs`, to be read with `get`, `get_many`
    and `try_get`; an input's end that is not caught ends the stage.

    >>> class Countdown(SourceStage[int]):
    ...     def produce(self):
    ...         for number in (3, 2, 1):
    ...             self.stopping.wait(0.001)  # not time.sleep: stop() must end every wait
    ...             yield number
    >>> countdown = Countdown()
    >>> countdown.start()
    >>> list(countdown.output())
    [3, 2, 1]
    """

    one_thread = True

    @abstractmethod
    def produce(self) -> Iterator[Out]:
        """Make items; whatever waits here ends as soon as `self.stopping` is set."""

    def loops(self) -> Sequence[Callable[[], None]]:
        """One loop: what is made by one thread has an order."""
        return [lambda: self.send(self.produce())]


class IterableStage(SourceStage[Out]):
    """Gives the items of an iterable.

    >>> stage = IterableStage("abc")
    >>> stage.start()
    >>> list(stage.output())
    ['a', 'b', 'c']
    """

    def __init__(self, items: Iterable[Out], **settings: Any) -> None:
        super().__init__(**settings)
        self._items = items

    def produce(self) -> Iterator[Out]:
        """One after the other."""
        return iter(self._items)


class FunctionStage(MapStage[In, Out]):
    """Gives what a function makes of each item: any number of items."""

    def __init__(
        self, source: Queue[In] | Stage[In], *, function: Callable[[In], Iterable[Out]], **settings: Any
    ) -> None:
        super().__init__(source, **settings)
        self._function = function

    def process(self, item: In) -> Iterable[Out]:
        """Call the function."""
        return self._function(item)
