"""Trying again while somebody is away, for so long."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar, cast

from millstream.errors import WaitTimeout

Value = TypeVar("Value")
PAUSES_S = (0.02, 2.0)

log = logging.getLogger("millstream.feeds")


class Patience:
    """How long somebody may be away, and how often it came back. One thread at a time.

    >>> answers = iter([None, "here"])
    >>> def ask() -> str:
    ...     if (answer := next(answers)) is None:
    ...         raise ConnectionError("nobody there")
    ...     return answer
    >>> patience = Patience("the server", 5.0, (ConnectionError,))
    >>> patience.until_done(ask), patience.reconnected
    ('here', 1)

    Args:
        whom: Who is waited for.
        most_s: How long it may be away; then it is an error.
        errors: What says that it is away.
    """

    def __init__(self, whom: str, most_s: float, errors: tuple[type[Exception], ...]) -> None:
        self.reconnected = 0
        self._whom, self._most_s, self._errors = whom, most_s, errors
        self._away_since: float | None = None
        self.away: str | None = None
        """Who is away, and what was said of it last."""

    def until_done(self, act: Callable[[], Value]) -> Value:
        """Do something, again and again while nobody is there."""
        return cast(Value, self.attempt(act, math.inf))

    def attempt(self, act: Callable[[], Value], deadline: float) -> Value | None:
        """Do something, again and again while nobody is there, until a time of the monotonic clock: then None."""
        pause_s = PAUSES_S[0]
        while True:
            try:
                done = act()
            except self._errors as error:
                self._note_away(error)
            else:
                self._note_back()
                return done
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSES_S[1])

    def _note_away(self, error: Exception) -> None:
        self.away = f"{self._whom} is away: {error}"
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.warning("%s is away, and waited for: %s", self._whom, error)
        if time.monotonic() - self._away_since > self._most_s:
            raise WaitTimeout(
                f"waited {self._most_s:g} s for {self._whom}: {error}",
                hint="look whether it runs and can be reached, or pass a longer patience_s",
            ) from error

    def _note_back(self) -> None:
        if self._away_since is not None:
            self._away_since = self.away = None
            self.reconnected += 1
            log.warning("%s is back", self._whom)
