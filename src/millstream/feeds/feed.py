"""The two ends of a feed: `RolloutSource`, where rollouts are put in, and `Feed`, where the trainer takes them out.

A feed keeps what it received until it is released: `release(cursor)` follows a committed state. A feed that is opened
again with an older cursor gives everything after that once more, in the same order.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from millstream.rollouts import RolloutBlock

Cursor: TypeAlias = Mapping[str, Any]
"""A place in a feed: small, and readable JSON."""
Puttable: TypeAlias = RolloutBlock | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A record, some records (a group, say), or many in columns. Dataclasses with the fields of a record are taken, too."""


@dataclass(frozen=True)
class Control:
    """What the trainer tells producers."""

    policy_version: int = 0
    """The version that the coming step trains; producers should sample with these weights, or nearly these."""
    groups_wanted: int | None = None
    """How many more groups may be begun before the next word; None: as many as you like."""
    groups_until: int | None = None
    """The same, counted from the beginning of the run: a producer that is alone may begin groups until it has begun so
    many, whatever became of them. None: as many as you like."""
    closed: bool = False
    """Whether the trainer has closed the feed: what is put in now is not received."""

    def to_json(self) -> bytes:
        """As it is written down for others."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Control:
        """As it was written; what is not a word of a trainer is none.

        >>> Control.from_json(Control(3, 8).to_json()) == Control(3, 8), Control.from_json(b"?") == Control()
        (True, True)
        """
        try:
            said = json.loads(text)
            counts = (said["groups_wanted"], said["groups_until"])
            wanted, until = (None if count is None else int(count) for count in counts)
            return cls(int(said["policy_version"]), wanted, until, closed=said["closed"] is True)
        except (ValueError, KeyError, TypeError):
            return cls()


@dataclass(frozen=True)
class Arrival:
    """Some rollouts as they came in, together, and the place in the feed after them."""

    block: RolloutBlock
    cursor: Cursor


def arrivals_of(blocks: Sequence[RolloutBlock], *, skipped: int, before: Cursor, after: Cursor) -> list[Arrival]:
    """Blocks that came as one piece, each with its place: so many `blocks` after the piece before, or after this one.

    The first `skipped` were received earlier.
    """
    places = [{**before, "blocks": count} for count in range(1, len(blocks))] + [after]
    return [Arrival(*each) for each in zip(blocks, places, strict=False)][skipped:]


class RolloutSource(ABC):
    """Where rollouts are put in. Putting the same rollout id twice is the same as once.

    >>> from millstream import MemoryFeed
    >>> feed = MemoryFeed()
    >>> record = {"rollout_id": "a", "group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0}
    >>> with feed.source() as source:
    ...     source.put({**record, "finish": "stop"})
    >>> [len(arrival.block) for arrival in feed.receive(timeout_s=1)], feed.ended
    ([1], True)
    """

    @abstractmethod
    def put(self, rollouts: Puttable) -> None:
        """Give rollouts to the trainer. What is wrong with a record is raised here, where it was made.

        When it returns, small puts may still be gathered to larger ones; `flush()` waits until they are safe. When it
        raises because a disk is full or a server is away, put the same rollouts again later.
        """

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything that was put is where a crash of this process does not lose it."""

    @abstractmethod
    def control(self) -> Control:
        """The trainer's latest word."""

    @abstractmethod
    def close(self) -> None:
        """Flush, and say that nothing more comes from here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Feed(Protocol):
    """Where the trainer takes rollouts out. One thread at a time."""

    @property
    def cursor(self) -> Cursor:
        """The place after everything that was received."""
        ...

    @property
    def ended(self) -> bool:
        """Whether every producer has said that nothing more comes, and all of it was received."""
        ...

    def receive(self, timeout_s: float) -> list[Arrival]:
        """Give what has come in, in the order of the feed; waits so long for something, then gives nothing.

        A server that is gone is waited for, and asked again: a feed that comes back continues where it was.
        """
        ...

    def seek(self, cursor: Cursor) -> None:
        """Continue after a place at which a state was saved."""
        ...

    def release(self, cursor: Cursor) -> None:
        """Let go of everything up to a place: its state is committed."""
        ...

    def tell(self, control: Control) -> None:
        """Tell producers what is wanted."""
        ...

    def counters(self) -> dict[str, int]:
        """What became of what came in: `received`, `repeated` (the same id and content), `damaged`, `reconnected`, …"""
        ...

    def close(self) -> None:
        """Stop threads and close connections; what was not released stays where it is."""
        ...
