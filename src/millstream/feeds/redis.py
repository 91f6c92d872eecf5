"""RedisSource: a producer that adds to a Redis stream (`XADD`)."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from millstream.errors import WaitTimeout
from millstream.feeds.feed import Control
from millstream.feeds.gathering import Encoded, Gather, GatheringSource
from millstream.feeds.redis_stream import AWAY, RedisStream
from millstream.stages import Deadline, checked_timeout, poll

_ROOM_PAUSES_S = (0.005, 0.25)


class RedisSource(GatheringSource):
    """Where a producer puts rollouts into a Redis stream.

    A piece that was sent twice because an answer was lost is received once.

    Args:
        url: `redis://host:port/name`.
        producer: A name that no other producer has; by default a new one.
        gather: When what was put is sent.
        most_entries: With so many entries that nobody has received, a put waits for room.
        timeout_s: How long it waits; None: as long as it takes.
        patience_s: How long the server may be away.
    """

    def __init__(
        self,
        url: str,
        *,
        producer: str | None = None,
        gather: Gather | None = None,
        most_entries: int = 256,
        timeout_s: float | None = None,
        patience_s: float = 600.0,
    ) -> None:
        super().__init__(gather)
        self.producer = producer or uuid4().hex
        self.most_entries, self.timeout_s = most_entries, checked_timeout(timeout_s)
        self._stream = RedisStream(url, patience_s)
        self._session, self._sent = uuid4().hex[:12], 0
        self._control = Control()
        self._stream.ask(lambda: self._add_entries([], b"open"))

    def control(self) -> Control:
        """The trainer's latest word; the one before, while the server is away."""
        with suppress(*AWAY):
            self._control = Control.from_json(self._stream.client.get(self._stream.key("control")) or b"")
        return self._control

    def _send(self, blocks: list[Encoded]) -> None:
        entries = [b"".join(block) for block in blocks]
        self._wait_for_room()
        try:
            self._stream.ask(lambda: self._add_entries(entries, b"open"))
        finally:  # also when it failed: a number that may have arrived never stands for something else
            self._sent += len(entries)

    def _end(self) -> None:
        self._stream.ask(lambda: self._add_entries([], b"closed"))
        self._stream.client.close()

    def _add_entries(self, entries: list[bytes], state: bytes) -> None:
        pipeline = self._stream.commands()
        pipeline.set(self._stream.key("id"), uuid4().hex, nx=True)
        pipeline.hset(self._stream.key("producers"), self.producer, state)
        for number, entry in enumerate(entries, self._sent):
            fields = {"producer": f"{self.producer}/{self._session}", "number": number, "blocks": entry}
            pipeline.xadd(self._stream.name, fields)
        pipeline.execute()

    def _wait_for_room(self) -> None:
        waiting = 0

        def has_room() -> bool | None:
            nonlocal waiting
            waiting = self._stream.ask(self._unreceived)
            return waiting < self.most_entries or None

        if poll(has_room, Deadline(self.timeout_s), pauses_s=_ROOM_PAUSES_S) is None:
            raise WaitTimeout(
                f"waited {self.timeout_s} s for room: {waiting} entries are in the stream",
                hint="the trainer is slower than its producers: follow `control()`, or pass a longer timeout_s",
            )

    def _unreceived(self) -> int:
        pipeline = self._stream.commands()
        entries, held = pipeline.xlen(self._stream.name).get(self._stream.key("held")).execute()
        return int(entries) - int(held or 0)
