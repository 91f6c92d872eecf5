"""Waiting and retrying: with a limit that is checked, without a busy loop, ended when what is waited for is closed.

A long wait gives a WaitWarning that says what it waits for.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeVar, cast

from millstream.errors import ClosedError, LoaderError, WaitTimeout, WaitWarning

Value = TypeVar("Value")
Pauses = tuple[float, float]
"""Seconds between two looks: at first, and at most."""
WORTH_SAYING_S = 5.0
"""A wait of this length is reported."""
AGAIN = 6
"""So many times as long until it is said again."""
POLL_S: Pauses = (0.001, 0.2)
RECONNECT_S: Pauses = (0.02, 2.0)


def checked_timeout(timeout_s: object, name: str = "timeout_s") -> float | None:
    """A number of seconds that was given, or None: no limit.

    >>> checked_timeout(2), checked_timeout(None)
    (2.0, None)
    >>> checked_timeout(float("nan"))
    Traceback (most recent call last):
    millstream.errors.LoaderError: timeout_s=nan is no number of seconds
    ...
    """
    if timeout_s is None:
        return None
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, Real) or not float(timeout_s) >= 0:
        raise LoaderError(
            f"{name}={timeout_s!r} is no number of seconds", hint="pass 0 or more, or None to wait without limit"
        )
    return float(timeout_s)


class Deadline:
    """When waiting ends.

    >>> Deadline(0).is_over, Deadline(None).left_s
    (True, inf)
    """

    def __init__(self, timeout_s: float | None, name: str = "timeout_s") -> None:
        limit_s = checked_timeout(timeout_s, name)
        self._end_s = math.inf if limit_s is None else time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.left_s <= 0


def poll(
    look: Callable[[], Value | None],
    deadline: Deadline | None = None,
    *,
    pauses_s: Pauses = POLL_S,
    stopping: threading.Event | None = None,
) -> Value | None:
    """Look until there is something, less and less often; None when time is over, or once `stopping` is set.

    >>> looks = iter([None, None, "here"])
    >>> poll(lambda: next(looks))
    'here'
    """
    deadline, stopping = deadline or Deadline(None), stopping or threading.Event()
    pause_s, longest_s = pauses_s
    while (found := look()) is None:
        left_s = deadline.left_s
        if left_s <= 0 or stopping.wait(min(pause_s, left_s)):
            return None
        pause_s = min(2 * pause_s, longest_s)
    return found


def retry(
    act: Callable[[], Value],
    errors: type[Exception],
    timeout_s: float | None = None,
    *,
    pauses_s: Pauses = (0.01, 0.1),
) -> Value:
    """Do something again while it raises such an error; after `timeout_s` that is raised.

    >>> answers = iter([ValueError("not yet"), "here"])
    >>> def ask() -> str:
    ...     if isinstance(answer := next(answers), Exception):
    ...         raise answer
    ...     return answer
    >>> retry(ask, ValueError)
    'here'
    """
    done: list[Value] = []
    deadline = Deadline(timeout_s)

    def attempt() -> bool | None:
        try:
            done.append(act())
        except errors:
            if deadline.is_over:
                raise
            return None
        return True

    while not done:
        poll(attempt, deadline, pauses_s=pauses_s)
    return done[0]


class Reconnect:
    """Asks what may be away for a while, and counts how often it came back. One thread at a time.

    >>> answers = iter([None, "here"])
    >>> def ask() -> str:
    ...     if (answer := next(answers)) is None:
    ...         raise ConnectionError("nothing there")
    ...     return answer
    >>> server = Reconnect("the server", 5.0, (ConnectionError,))
    >>> server.ask(ask), server.reconnected
    ('here', 1)

    Args:
        whom: What is waited for.
        patience_s: How long it may be away; then it is an error.
        errors: What says that it is away.
    """

    def __init__(self, whom: str, patience_s: float, errors: tuple[type[Exception], ...]) -> None:
        limit_s = checked_timeout(patience_s, "patience_s")
        self._patience_s = math.inf if limit_s is None else limit_s
        self._whom, self._errors = whom, errors
        self._away_since: float | None = None
        self._told = False
        self._stopping = threading.Event()
        self.reconnected = 0
        self.away: str | None = None
        """What is away, and its last error."""

    def ask(self, act: Callable[[], Value]) -> Value:
        """Do something, again and again while it is away."""
        return cast(Value, self.ask_until(Deadline(None), act))

    def ask_until(self, deadline: Deadline, act: Callable[[], Value]) -> Value | None:
        """Do something, again and again while it is away, until a deadline: then None."""
        done: list[Value] = []

        def attempt() -> bool | None:
            try:
                done.append(act())
            except self._errors as error:
                self._note_away(error)
                return None
            return True

        if poll(attempt, deadline, pauses_s=RECONNECT_S, stopping=self._stopping) is None:
            if self._stopping.is_set():
                raise ClosedError(f"{self.away}, and it was closed meanwhile", hint="make a new one")
            return None
        self._note_back()
        return done[0]

    def stop(self) -> None:
        """Wait no longer, now and later: a thread that waits is told that it was closed."""
        self._stopping.set()

    def _note_away(self, error: Exception) -> None:
        self.away = f"{self._whom} is away: {error}"
        if self._away_since is None:
            self._away_since, self._told = time.monotonic(), False
            _log.warning("%s is away, and waited for: %s", self._whom, error)
        waited_s = time.monotonic() - self._away_since
        if waited_s > self._patience_s:
            raise WaitTimeout(
                f"waited {self._patience_s:g} s for {self._whom}: {error}",
                hint="look whether it runs and can be reached, or pass a longer patience_s",
            ) from error
        if waited_s >= WORTH_SAYING_S and not self._told:
            self._told = True
            limit = "without limit" if self._patience_s == math.inf else f"up to {self._patience_s:g} s (patience_s)"
            warn(f"waiting for {self._whom} for {waited_s:.0f} s, {limit}: {error}")

    def _note_back(self) -> None:
        if self._away_since is not None:
            self._away_since = self.away = None
            self.reconnected += 1
            _log.warning("%s is back", self._whom)


_log = logging.getLogger("millstream.feeds")


@dataclass
class Waits:
    """How often and how long a condition was waited for, with those who wait now."""

    count: int = 0
    _finished_s: float = 0.0
    _began: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._began)

    @property
    def seconds(self) -> float:
        """Seconds of waiting, summed over threads; the caller holds the lock that `until` was called with."""
        now = time.perf_counter()
        return self._finished_s + sum(now - began for began in self._began)

    def until(
        self, ready: Callable[[], bool], changed: threading.Condition, timeout_s: float | None, wanted: str
    ) -> None:
        """Return when `ready` holds. The caller holds the lock of `changed`, which is notified when that may be."""
        limit_s = checked_timeout(timeout_s)
        if ready():
            return
        self.count += 1
        began = time.perf_counter()
        self._began.append(began)
        try:
            if not changed.wait_for(ready, None if limit_s is None else min(limit_s, threading.TIMEOUT_MAX)):
                raise WaitTimeout(f"waited {timeout_s} s for {wanted}", hint="pass a longer timeout_s, or None")
        except BaseException:
            changed.notify()  # Ctrl-C takes this waiter away, and must not take the only notice with it
            raise
        finally:
            self._began.remove(began)
            self._finished_s += time.perf_counter() - began


def wait_for(get: Callable[[float], Value], wanted: str, what_for: Callable[[], str]) -> Value:
    """Get what takes a number of seconds to wait, and raises WaitTimeout after them; warn if it takes long.

    >>> from millstream.stages.queue import Queue
    >>> queue = Queue()
    >>> queue.producer().put("a batch")
    >>> wait_for(queue.get, "a batch", lambda: "none is made")
    'a batch'
    """
    began_s, say_at_s = time.monotonic(), WORTH_SAYING_S
    while True:
        try:
            return get(max(0.0, began_s + say_at_s - time.monotonic()))
        except WaitTimeout:
            waited_s = time.monotonic() - began_s
            say_at_s = AGAIN * waited_s
            warn(f"waiting for {wanted} for {waited_s:.0f} s: {what_for()}")


def wait_at_stages(wait: Callable[..., None], timeout_s: float | None, maker: Any) -> None:
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
            warn(f"{said}: {hint}")
        wait(timeout_s=None)


def warn(said: str, category: type[Warning] = WaitWarning) -> None:
    """Warn at the line that called into this package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("millstream."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(said, category, stacklevel=depth)
