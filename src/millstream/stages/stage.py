"""Stage: takes items from queues, works on them with its own threads, puts what it makes into queues.

The end of its input flows through a stage to its outputs. A failure stops it, goes to its consumers with the stage's
name, and stops its producers. `stop()` ends it in the middle of anything; that, too, spreads to both sides.
"""

from __future__ import annotations

import re
import reprlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from millstream.errors import ClosedError, LoaderError, MillstreamError, QueueClosed, RecipeError, StageError, Stopped
from millstream.settings import at_least
from millstream.stages.lifetime import after_fork, close_on_exit
from millstream.stages.metrics import INPUT, OUTPUT, Clocks
from millstream.stages.queue import Overflow, Queue
from millstream.stages.queue_ends import Producer, left_behind, stopped
from millstream.stages.wait import Deadline

T = TypeVar("T")
Out = TypeVar("Out")


class Stage(ABC, Generic[Out]):
    """What every stage has. To write one, begin with a `MapStage` or a `SourceStage`.

    >>> from millstream.stages.stage_kinds import FunctionStage
    >>> queue = Queue()
    >>> stage = FunctionStage(queue, function=lambda text: text.split(), threads=2)
    >>> stage.start()
    >>> with queue.producer() as producer:
    ...     producer.put_many(["the quick", "brown fox"])
    >>> list(stage.output())
    ['the', 'quick', 'brown', 'fox']
    >>> [stage.counters()[name] for name in ("in", "out")]
    [2, 4]

    Args:
        inputs: Queues, or stages whose only output is meant.
        name: For messages and counters; by default made of the name of the class.
        threads: How many threads work on items.
        capacity: Most items in each output.
        overflow: What a full output does with one more; see `Queue`.
    """

    takes: ClassVar[type | tuple[type, ...] | None] = None
    """What it can work on, if it cares; a stage that gives something else cannot be its input."""
    gives: ClassVar[type | None] = None
    one_thread: ClassVar[bool] = False
    """Whether it cannot share its work: what it keeps from one item for the next has an order."""
    loses_nothing: ClassVar[bool] = False
    """Whether all that it gives must arrive: it tells what happens, once."""
    outputs: tuple[str, ...] = ("",)
    """The names of its outputs; with more than one, `route` says which item goes where."""

    def __init__(
        self,
        *inputs: Queue[Any] | Stage[Any],
        name: str | None = None,
        threads: int = 1,
        capacity: int = 16,
        overflow: Overflow = "block",
    ) -> None:
        if isinstance(threads, int) and threads < 1:
            raise LoaderError(f"a stage cannot work with {threads} threads", hint="pass threads=1 or more")
        threads = at_least("threads", threads, hint="pass threads=1 or more")
        if self.one_thread and threads != 1:
            raise LoaderError(f"{type(self).__name__} works on one thread, not on {threads}", hint="leave out threads=")
        if self.loses_nothing and overflow != "block":
            told = f"{type(self).__name__} tells what happens, and overflow={overflow!r} would leave some of it out"
            raise LoaderError(told, hint="leave out overflow=; a stage after it may drop what it makes")
        self.name = name or _spoken(type(self).__name__)
        self.threads = threads
        self.error: StageError | None = None
        self.stopping = threading.Event()
        """Set when the stage shall end; a wait for something else than a queue waits for it, too."""
        self.on_failure: Callable[[StageError], None] | None = None
        """Called once, by the thread that failed."""
        self.counted: Callable[[str, int, int | None], None] | None = None
        """Hears of everything that is counted: why, how much, and its place in a run, if it has one."""
        self._clocks = Clocks()
        self.inputs = tuple(StageInput(self._clocks, self._joined(each)) for each in inputs)
        self._queues: dict[str, Queue[Out]] = {each: Queue(capacity, overflow) for each in self.outputs}
        for queue in self._queues.values():
            queue.maker = self
        self._producers: dict[str, Producer[Out]] = {each: queue.producer() for each, queue in self._queues.items()}
        self._lock = threading.Lock()
        self._reasons: Counter[str] = Counter()
        self._alive = 0
        self._workers: list[threading.Thread] = []
        self._left_behind = False

    def _joined(self, before: Queue[Any] | Stage[Any]) -> Queue[Any]:
        """The queue of an input; refuse what is none, and one of another type than the stage takes."""
        queue = before.output() if isinstance(before, Stage) else before
        if not isinstance(queue, Queue):
            raise LoaderError(
                f"{type(self).__name__} takes from a stage or a queue, not from {reprlib.repr(before)}",
                hint="pass the stage before it, or a Queue; IterableStage(items) gives items that are there already",
            )
        maker = queue.maker
        if self.takes is None or maker is None or maker.gives is None or issubclass(maker.gives, self.takes):
            return queue
        takes = self.takes if isinstance(self.takes, tuple) else (self.takes,)
        wanted = " or ".join(each.__name__ for each in takes)
        raise RecipeError(
            f"stage {self.name!r} takes {wanted}, but {maker.name!r} gives {maker.gives.__name__}",
            hint=f"put a stage between them that gives {wanted}, or change the input",
        )

    def upstream(self) -> Iterator[Stage[Any]]:
        """The stages that its items come from, the nearest first."""
        for intake in self.inputs:
            if intake.maker is not None:
                yield intake.maker
                yield from intake.maker.upstream()

    def not_started(self) -> list[Stage[Any]]:
        """Which of this stage and those before it were neither started nor stopped, the nearest first."""
        return [each for each in (self, *self.upstream()) if not each._workers and not each.stopping.is_set()]

    def output(self, name: str = "") -> Queue[Out]:
        """The queue that results come out of; a stage with several outputs wants to know which."""
        if not name and len(self._queues) == 1:
            return next(iter(self._queues.values()))
        if name not in self._queues:
            raise LoaderError(
                f"stage {self.name!r} has no output {name!r}",
                hint=f"it has {', '.join(map(repr, self._queues))}",
            )
        return self._queues[name]

    def route(self, item: Out) -> str:
        """Which output an item goes to, where there are several."""
        return self.outputs[0]

    @abstractmethod
    def loops(self) -> Sequence[Callable[[], None]]:
        """What each thread does until the input ends."""

    def start(self) -> None:
        """Start the threads."""
        if self.stopping.is_set():
            raise stopped(f"stage {self.name!r}")
        if self._workers:
            raise LoaderError(f"stage {self.name!r} was started before", hint="make a new one")
        for queue in (*self._queues.values(), *(intake.queue for intake in self.inputs)):
            queue.at_work = True
        loops = self.loops()
        self._alive = len(loops)
        self._workers = [
            threading.Thread(target=self._run, args=(loop,), name=f"millstream-{self.name}", daemon=True)
            for loop in loops
        ]
        after_fork(self._leave_behind)
        close_on_exit(self, self.stop, join=self.join)
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """End soon, in the middle of anything; waits at the inputs and outputs end with Stopped."""
        if self._left_behind:
            return
        self.stopping.set()
        for intake in self.inputs:
            intake.queue.stop()
        for queue in self._queues.values():
            queue.stop()
        self.wake()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the threads; False if some are still at work after `timeout_s`."""
        deadline = Deadline(timeout_s)
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(min(deadline.left_s, threading.TIMEOUT_MAX))
        return not any(worker.is_alive() for worker in self._workers)

    def count(self, reason: str, n: int = 1, *, at: int | None = None) -> None:
        """Count something that was dropped, by its reason; and at which place of a run, if it has one."""
        with self._lock:
            self._reasons[reason] += n
        if (counted := self.counted) is not None:
            counted(reason, n, at)

    def gauges(self) -> dict[str, float]:
        """Numbers of this kind of stage that go up and down; for subclasses."""
        return {}

    def counters(self) -> dict[str, Any]:
        """Items in and out, drops by reason, gauges, and what the threads did with their time, in seconds.

        `busy` is the share of work in the time of all threads. A stage near 1 is what the others wait for.
        """
        if self._left_behind:
            raise left_behind(f"stage {self.name!r}")
        busy_s, input_wait_s, output_wait_s = self._clocks.read()
        with self._lock:
            drops = dict(self._reasons)
        return {
            "threads": self.threads,
            "in": sum(intake.queue.counters()["got"] for intake in self.inputs),
            "out": sum(queue.counters()["put"] for queue in self._queues.values()),
            "drops": drops,
            "gauges": self.gauges(),
            "busy": busy_s / max(1e-9, busy_s + input_wait_s + output_wait_s),
            "busy_s": busy_s,
            "input_wait_s": input_wait_s,
            "output_wait_s": output_wait_s,
        }

    def send(self, items: Iterable[Out]) -> None:
        """Put items into the outputs, one after the other; for subclasses."""
        if isinstance(items, list) and len(self.outputs) == 1:
            self._put(self.outputs[0], items)
            return
        for item in items:
            self._put(self.outputs[0] if len(self.outputs) == 1 else self.route(item), (item,))

    def put_slowly(self, producer: Producer[Out], items: Sequence[Out]) -> None:
        """Put items into an output that is full; for subclasses that have something to do meanwhile."""
        producer.put_many(items)

    def wake(self) -> None:
        """Wake threads that wait for something else than a queue or `stopping`; for subclasses."""

    def _put(self, output: str, items: Sequence[Out]) -> None:
        if output not in self._producers:
            raise LoaderError(f"{output!r} is no output", hint=f"route() gives one of {self.outputs}")
        producer = self._producers[output]
        try:
            if (done := producer.put_now(items)) < len(items):
                with self._clocks.waiting(OUTPUT):
                    self.put_slowly(producer, items[done:])
        except Stopped:
            raise
        except ClosedError:  # by the consumer, who wants no more
            raise stopped(self._queues[output]) from None

    def _leave_behind(self) -> None:
        """In a forked child: its threads are not here, and one of them may hold the lock."""
        self._lock, self._left_behind = threading.Lock(), True

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            with self._clocks.running():
                loop()
        except QueueClosed:  # the end of an input that the stage reads by itself
            pass
        except Stopped:
            if self.error is None:  # else a consumer is to hear of that, and not of the end of its other threads
                self.stop()
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self._alive -= 1
                last = self._alive == 0
            if last:
                for producer in self._producers.values():
                    producer.close(self.error)

    def _fail(self, error: BaseException) -> None:
        """Keep the first error; what failed before this stage keeps the name of its own stage."""
        with self._lock:
            if self.error is not None or self.stopping.is_set():
                return
            self.error = error if isinstance(error, StageError) else failure_of(self.name, error)
        self.stopping.set()
        for queue in self._queues.values():
            queue.close(self.error)
        for intake in self.inputs:
            intake.queue.stop()
        self.wake()
        if (tell := self.on_failure) is not None:
            tell(self.error)


class StageInput(Generic[T]):
    """An input as its stage sees it: a queue at which the stage's threads are known to wait."""

    def __init__(self, clocks: Clocks, queue: Queue[T]) -> None:
        self.queue = queue
        self.maker = queue.maker  # which lives as long as a consumer takes from it
        self._clocks = clocks

    def get(self, timeout_s: float | None = None) -> T:
        """As `Queue.get`."""
        return self.get_many(1, timeout_s)[0]

    def get_many(self, most: int, timeout_s: float | None = None) -> list[T]:
        """As `Queue.get_many`."""
        if items := self.queue.get_now(most):
            return items
        with self._clocks.waiting(INPUT):
            return self.queue.get_many(most, timeout_s)

    def try_get(self) -> T | None:
        """As `Queue.try_get`."""
        return self.queue.try_get()


def _spoken(name: str) -> str:
    """The name of a class as a stage is called.

    >>> _spoken("ChunkReader"), _spoken("SplitStage")
    ('chunk_reader', 'split')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Stage") or name).lower()


def failure_of(stage: str, error: BaseException) -> StageError:
    """What a stage failed with, with its name."""
    if isinstance(error, MillstreamError):
        named = StageError(stage, error.message, hint=error.hint)
    else:
        named = StageError(stage, f"{type(error).__name__}: {error}", hint="the cause of this error has its traceback")
    named.__cause__ = error
    return named
