"""SourceStage: makes items on one thread, out of nothing or out of inputs that it reads as it likes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

from millstream.stages.stage import Out, Stage


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
