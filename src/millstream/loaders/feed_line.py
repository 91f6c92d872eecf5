"""What a feed has brought and nobody has let in yet, in line: what the line does not hold, the feed gives again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millstream.feeds import Arrival, Feed
from millstream.feeds.feed import Cursor
from millstream.rollouts import RolloutBlock
from millstream.stages.lifetime import defer_sigint


class FeedLine:
    """Arrivals of a feed that stands at a place, first in first out."""

    def __init__(self, feed: Feed, cursor: Cursor) -> None:
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
        """Put what has come in line. Who interrupts that, and goes on, gets it again."""
        if self._is_receiving:
            self._feed.seek(self.cursor)
            self._waiting.clear()
        self._is_receiving = True
        self._waiting.extend(self._feed.receive(timeout_s))
        self._is_receiving = False

    def let_in(self, arrive: Callable[[RolloutBlock], None]) -> None:
        """Let in what is first in line, whole or not at all. What is refused stays: the place is that before it."""
        with defer_sigint():
            arrive(self._waiting[0].block)
            self.cursor = self._waiting.popleft().cursor
