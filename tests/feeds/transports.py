"""Ways from producers to the trainer, as the laws see them: any number of sources, a feed that can be opened again."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

from feeds.redis_server import RedisServer, free_port
from millstream.feeds import Arrival, Feed, Gather, HttpFeed, MemoryFeed, RolloutSource, open_feed, open_source

SMALL = Gather(most_bytes=1500, most_rollouts=5, seconds=0.05)


class Transport(ABC):
    """A place for rollouts, empty at first."""

    survives = True
    """Whether rollouts outlive the trainer's process."""

    @abstractmethod
    def feed(self) -> Feed:
        """Open the trainer's end; the one before was closed, or its process killed."""

    @abstractmethod
    def address(self) -> tuple[str, dict[str, Any]]:
        """What another process gives to `open_source`."""

    def source(self, gather: Gather = SMALL, **settings: Any) -> RolloutSource:
        where, more = self.address()
        return open_source(where, gather=gather, **more, **settings)

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Leave nothing behind."""


class Memory(Transport):
    survives = False

    def __init__(self) -> None:
        self._feed = MemoryFeed()

    def feed(self) -> MemoryFeed:
        return self._feed

    def address(self) -> tuple[str, dict[str, Any]]:
        raise AssertionError("a queue is nowhere else")

    def source(self, gather: Gather = SMALL, **_settings: Any) -> RolloutSource:
        return self._feed.source()


class Spool(Transport):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def feed(self) -> Feed:
        return open_feed(self.folder)

    def address(self) -> tuple[str, dict[str, Any]]:
        return os.fspath(self.folder), {}


class RedisStream(Transport):
    def __init__(self, server: RedisServer) -> None:
        self.url = server.url(uuid4().hex)

    def feed(self) -> Feed:
        return open_feed(self.url)

    def address(self) -> tuple[str, dict[str, Any]]:
        return self.url, {}


class Http(Transport):
    """Producers begin before the trainer opens its end, so a first one listens until it does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port = folder, free_port()
        self._open: HttpFeed | None = None
        self._waiting = True
        self._reopen()

    def feed(self) -> Feed:
        if not self._waiting:
            self._reopen()
        self._waiting = False
        assert self._open is not None
        return self._open

    def address(self) -> tuple[str, dict[str, Any]]:
        return f"http://127.0.0.1:{self._port}", {"token": "secret"}

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _reopen(self) -> None:
        self.close()
        self._open = HttpFeed(self.folder, port=self._port, token="secret")


def record(number: int, **fields: Any) -> dict[str, Any]:
    """A rollout whose tokens say which it is."""
    length = 1 + number % 7
    return {
        "rollout_id": str(number),
        "group_id": number // 4,
        "token_ids": [number, *range(length)],
        "loss_mask": [False] + [True] * length,
        "reward": number / 2,
        "finish": "stop",
        **fields,
    }


def records(*numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [record(number) for each in numbers for number in each]


def numbers_of(arrivals: Iterable[Arrival]) -> list[int]:
    """Which rollouts these are; each must be whole."""
    found = []
    for arrival in arrivals:
        for row, name in enumerate(arrival.block["rollout_id"].tolist()):
            expected = record(int(name))
            assert arrival.block.of(row, "token_ids").tolist() == expected["token_ids"]
            assert arrival.block["reward"][row] == expected["reward"]
            found.append(int(name))
    return found


def has_ended(feed: Feed) -> bool:
    """Asked anew each time: a checker of types takes a property for what it was."""
    return feed.ended


def receive_all(feed: Feed) -> list[Arrival]:
    """Everything until the end."""
    arrivals: list[Arrival] = []
    while not feed.ended:
        arrivals += feed.receive(timeout_s=5)
    return arrivals


def receive_some(feed: Feed, rollouts: int) -> list[Arrival]:
    """As much as comes until there are so many."""
    arrivals: list[Arrival] = []
    while sum(len(arrival.block) for arrival in arrivals) < rollouts:
        came = feed.receive(timeout_s=10)
        assert came, f"only {sum(len(arrival.block) for arrival in arrivals)} of {rollouts} came"
        arrivals += came
    return arrivals


def as_json(cursor: Any) -> Any:
    """A cursor as it comes back from a state."""
    text = json.dumps(cursor)
    assert len(text) < 500
    return json.loads(text)
