"""What a feed has brought: arrivals in line, places that the intake can go back to, and cuts ahead of the trainer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.admission import Cut
from millstream.feeds import Arrival, Feed
from millstream.feeds.feed import Cursor
from millstream.loaders.feed_steps import RolloutBatch
from millstream.rollouts import RolloutBlock
from millstream.stages.lifetime import defer_sigint
from millstream.storage import Position


class FeedLine:
    """Arrivals of a feed, first in first out. What the line does not hold, the feed gives again."""

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
        """Put what has come in line. After an interruption the feed gives it again."""
        if self._is_receiving:
            self._feed.seek(self.cursor)
            self._waiting.clear()
        self._is_receiving = True
        self._waiting.extend(self._feed.receive(timeout_s))
        self._is_receiving = False

    def let_in(self, arrive: Callable[[RolloutBlock], None], since: list[Arrival]) -> None:
        """Let in what is first in line, whole or not at all. What is refused stays: the place is that before it."""
        with defer_sigint():
            first = self._waiting[0]
            arrive(first.block)
            self._waiting.popleft()
            self.cursor = first.cursor
            since.append(first)

    def put_back(self, arrivals: list[Arrival], cursor: Cursor) -> None:
        """Have some that were let in come again: the place is that before them."""
        self._waiting.extendleft(reversed(arrivals))
        self.cursor = cursor


@dataclass(frozen=True, eq=False)
class Base:
    """Where the intake stood before it tried for a rollout batch."""

    mark: Any
    """Of what decides."""
    cursor: Cursor
    position: Position
    """Of the journal."""
    since: list[Arrival] = field(default_factory=list)
    """What was let in until the next base."""


@dataclass(eq=False)
class Ahead:
    """A rollout batch that is cut and not handed over."""

    cut: Cut
    base: Base
    is_written: bool = False
    is_rated: bool = False
    rated: RolloutBatch | None = None
    """None: rating failed. It is tried again, and the error raised, when the trainer asks for the batch."""
