"""Passes over the window of which nothing comes: the next one waits, longer and longer, until something does."""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 0.01
LONGEST_S = 1.0
ON_THEIR_WAY = 1024
"""Games that may be drawn before anything is known of the first of them."""


class Barren:
    """Says how long to wait before a pass, so that games which nobody wants are not read over and over.

    >>> came = [0]
    >>> barren = Barren(lambda: came[0])
    >>> [barren.pause_s(draws) for draws in (7040, 9000, 9040, 9080)]
    [0.0, 0.01, 0.02, 0.04]
    >>> came[0] += 1
    >>> barren.pause_s(9120)
    0.0

    Args:
        came: Gives how many games have come through to where they are needed.
    """

    def __init__(self, came: Callable[[], int]) -> None:
        self._came, self._before, self._next_s = came, 0, FIRST_S
        self._since: int | None = None  # a run that is gone on with has made draws before

    def pause_s(self, draws: int) -> float:
        """A pass is over, at this draw: no time where some games came through, or may still do so."""
        if (came := self._came()) > self._before or self._since is None:
            self._before, self._since, self._next_s = came, draws, FIRST_S
        if draws - self._since < ON_THEIR_WAY:
            return 0.0
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return pause_s
