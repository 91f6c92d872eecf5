"""Background: one thread that makes calls, in their order, for whoever does not want to wait for each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Makes calls on its own thread.

    An executor's threads are waited for before anything is told that the interpreter goes; one that waits for data
    would never end. This one ends when it is closed, and whoever has it closes it then.

    >>> calls = Background("example")
    >>> calls.submit(lambda: 6 * 7).result()
    42
    >>> calls.close()
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[T], Callable[[], T]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call made when those before it are."""
        made: Future[T] = Future()
        self._calls.put((made, call))
        return made

    def close(self) -> None:
        """Make no more calls, and wait for the one that is being made."""
        with suppress(Empty):
            while True:
                if (waiting := self._calls.get_nowait()) is not None:
                    waiting[0].cancel()
                    waiting[0].set_running_or_notify_cancel()  # else those who wait for several do not hear of it
        self._calls.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()


def _work(calls: SimpleQueue[Any]) -> None:
    while (waiting := calls.get()) is not None:
        made, call = waiting
        if made.set_running_or_notify_cancel():
            try:
                made.set_result(call())
            except BaseException as error:
                made.set_exception(error)
        del waiting, made, call  # what they hold is not kept until the next one comes
