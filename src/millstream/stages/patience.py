"""Waiting for something that may never come: after some seconds it is said what for, then more and more seldom."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from millstream.errors import WaitTimeout, WaitWarning

T = TypeVar("T")
WORTH_SAYING_S = 5.0
"""Who waits so long wants to know what for."""
AGAIN = 6
"""So many times as long until it is said again."""


def patiently(get: Callable[[float], T], wanted: str, what_for: Callable[[], str]) -> T:
    """Get something that takes a number of seconds to wait, and raises WaitTimeout behind them; warn if it takes long.

    >>> from millstream.stages import Queue
    >>> queue = Queue()
    >>> queue.producer().put("a batch")
    >>> patiently(queue.get, "a batch", lambda: "nobody makes one")
    'a batch'
    """
    began_s, say_at_s = time.monotonic(), WORTH_SAYING_S
    while True:
        try:
            return get(max(0.0, began_s + say_at_s - time.monotonic()))
        except WaitTimeout:
            waited_s = time.monotonic() - began_s
            say_at_s = AGAIN * waited_s
            said = f"waiting for {wanted} for {waited_s:.0f} s: {what_for()}"
            warnings.warn(said, WaitWarning, stacklevel=_depth_of_the_caller())


def at_stages(wait: Callable[..., None], timeout_s: float | None, maker: Any) -> None:
    """Wait at the output of a stage; if nothing can come, since it or one before it was not started, that is said."""
    if maker is None or (timeout_s is None and not maker.not_started()):
        wait(timeout_s=timeout_s)
        return
    try:
        wait(timeout_s=WORTH_SAYING_S if timeout_s is None else timeout_s)
    except WaitTimeout as error:
        names = [repr(stage.name) for stage in maker.not_started()]
        said = f"{error.message}, and {' and '.join(names)} {'was' if len(names) == 1 else 'were'} not started"
        hint = "call start() of each stage, or make a Pipeline of them"
        if timeout_s is not None:
            raise WaitTimeout(said, hint=hint) if names else error from None
        if names:
            warnings.warn(f"{said}: {hint}", WaitWarning, stacklevel=_depth_of_the_caller())
        wait(timeout_s=None)


def result_of(made: Future[T]) -> Callable[[float], T]:
    """How to get a result patiently; Ctrl-C ends the wait, and not what is waited for."""

    def get(timeout_s: float) -> T:
        wait([made], timeout_s)
        if not made.done():
            raise WaitTimeout(f"waited {timeout_s} s for a result", hint="wait longer")
        return made.result()

    return get


def _depth_of_the_caller() -> int:
    """How far up is whoever called into this package, as seen from the function that asks."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("millstream."):
        frame, depth = frame.f_back, depth + 1
    return depth
