"""What a feed has brought: arrivals in line, and how they are let in, each once, however often it is interrupted."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from millstream.errors import MillstreamError
from millstream.feeds import Arrival, Cursor, Feed
from millstream.feeds.admission import Admission, FollowerAdmission
from millstream.rollouts import RolloutBlock, shown
from millstream.stages import defer_sigint

log = logging.getLogger("millstream.loaders")


class FeedLine:
    """Arrivals of a feed, first in first out. What the line does not hold, the feed gives again.

    Args:
        feed: Where they come from.
        cursor: The place in it behind everything that was let in.
        keep_aside: Takes rollouts that cannot be trained on, so that people can look at them.
    """

    def __init__(self, feed: Feed, cursor: Cursor, keep_aside: Callable[[RolloutBlock], None]) -> None:
        self._keep_aside = keep_aside
        self._feed, self.cursor = feed, cursor
        """The place in the feed behind everything that was let in."""
        self._waiting: deque[Arrival] = deque()
        self._is_receiving = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def ended(self) -> bool:
        """Whether nothing waits, and nothing more comes."""
        return not self._waiting and not self._is_receiving and self._feed.ended

    def receive(self, timeout_s: float) -> None:
        """Put what has come in line. After an interruption the feed gives it again."""
        if self._is_receiving:
            self._feed.seek(self.cursor)
            self._waiting.clear()
        self._is_receiving = True
        self._waiting.extend(self._feed.receive(timeout_s))
        self._is_receiving = False

    def let_in(self, decide: Admission | FollowerAdmission, since: list[Arrival]) -> None:
        """Let in what is first in line, whole or not at all. What is refused stays: the place is that before it."""
        with defer_sigint():
            first = self._waiting[0]
            self._arrive(decide, first.block)
            self._waiting.popleft()
            self.cursor = first.cursor
            since.append(first)

    def put_back(self, arrivals: list[Arrival], cursor: Cursor) -> None:
        """Have some that were let in come again: the place is that before them."""
        self._waiting.extendleft(reversed(arrivals))
        self.cursor = cursor

    def _arrive(self, decide: Admission | FollowerAdmission, block: RolloutBlock) -> None:
        """Let rollouts in. Those that looking at fails are set aside: the feed would give them again to every run."""
        try:
            decide.arrive(block, time.monotonic())
        except MillstreamError:
            raise
        except Exception as error:
            odd = [row for row in range(len(block)) if not _can_look(decide, block.select([row]))]
            if not odd:
                raise
            names = ", ".join(shown(block.rows["rollout_id"][row]) for row in odd[:3])
            log.warning("%d rollouts are left out, such as %s: %s", len(odd), names, shown(error))
            decide.arrive(block.select(np.setdiff1d(np.arange(len(block)), odd)), time.monotonic())
            decide.set_aside(block.select(odd))
            if isinstance(decide, Admission):
                self._keep_aside(block.select(odd))


def _can_look(decide: Admission | FollowerAdmission, block: RolloutBlock) -> bool:
    try:
        decide.look(block)
    except MillstreamError:  # it is refused in an orderly way
        pass
    except Exception:
        return False
    return True
