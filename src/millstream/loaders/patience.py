"""Waiting for something that may never come: after some seconds it is said what for, then more and more seldom."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from millstream.errors import WaitWarning

T = TypeVar("T")
WORTH_SAYING_S = 5.0
"""Who waits so long wants to know what for."""
AGAIN = 6
"""So many times as long until it is said again."""


def patiently(made: Future[T], what_for: Callable[[], str]) -> T:
    """Wait for a result, and warn if that takes long; Ctrl-C ends the wait, and not what is waited for."""
    began_s, say_at_s = time.monotonic(), WORTH_SAYING_S
    while not made.done():
        wait([made], began_s + say_at_s - time.monotonic())
        waited_s = time.monotonic() - began_s
        if not made.done() and waited_s >= say_at_s:
            say_at_s = AGAIN * waited_s
            said = f"waiting for a batch for {waited_s:.0f} s: {what_for()}"
            warnings.warn(said, WaitWarning, stacklevel=_depth_of_the_caller())
    return made.result()


def _depth_of_the_caller() -> int:
    """How far up is whoever called into this package, as seen from the function that asks."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("millstream."):
        frame, depth = frame.f_back, depth + 1
    return depth
