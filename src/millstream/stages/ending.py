"""How a queue ends: once, and what each of those who put in and take out is told from then on."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn

from millstream.errors import ClosedError, QueueClosed, Stopped


class Ending:
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
        """Tell whoever wants to put something in, if it is over."""
        if self.stopped:
            raise self._stopped(queue)
        if self.closed:
            raise ClosedError(
                f"{queue} was closed and takes no more", hint="end the producer, or make a new queue"
            ) from self._error

    def tell(self, queue: object) -> NoReturn:
        """Tell whoever has taken everything out."""
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
    """The error of whoever waits at something that was stopped."""
    return Stopped(f"{what} was stopped", hint="this is how its threads end; start another pipeline to go on")


def left_behind(what: object) -> ClosedError:
    """The error of a forked child that asks for what threads of its parent do."""
    return ClosedError(
        f"{what} was at work when this process was forked, and its threads are in the other one",
        hint="make and start pipelines, stages and queues in the process that uses them",
    )
