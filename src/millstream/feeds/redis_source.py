"""RedisSource: a producer that adds to a Redis stream (`XADD`); and the stream, the one place that knows redis-py.

    NAME                 the stream; an entry: producer, number, blocks of rollouts end to end
    NAME:id              of this stream: a server that lost its memory has another one
    NAME:producers       of each whether it is open
    NAME:held            how many entries were received and are not released
    NAME:received        the last entry that was received: other ranks go no further
    NAME:released        the last entry that was released
    NAME:control         the trainer's word

The server must not evict keys (`maxmemory-policy noeviction`, the default). What it forgets when it dies without
persistence is lost, and counted as `begun_anew`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

from millstream.errors import LoaderError, MissingExtra, StoreError, WaitTimeout
from millstream.feeds.feed import Control
from millstream.feeds.gathering import Encoded, Gather, GatheringSource
from millstream.stages import Deadline, Reconnect, checked_timeout, poll

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise MissingExtra.of("redis", "redis") from error

Value = TypeVar("Value")
AWAY = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
)
"""What a server says that is not there, or not ready."""
_ROOM_PAUSES_S = (0.005, 0.25)


def _address(url: str) -> str:
    """Host and port of a server.

    >>> _address("redis://localhost/name")
    'localhost:6379'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise LoaderError(f"{url}: {error}", hint="redis://host:port/name") from None
    if not host:
        raise LoaderError(f"{url}: this names no host", hint="redis://host:port/name")
    return f"{host}:{port or 6379}"


class RedisStream:
    """A stream, for both of its ends.

    Args:
        url: `redis://host:port/name`.
        patience_s: How long the server may be away.
        consumes: Whether this is the end that takes out: the server is told, as long as the connection lives.
    """

    def __init__(self, url: str, patience_s: float, *, consumes: bool = False) -> None:
        address, parts = _address(url), urlsplit(url)
        self.name = parts.path.strip("/")
        if not self.name:
            raise LoaderError(f"{url}: this names no stream", hint="redis://host:port/name")
        self._own_name = f"millstream:{quote(self.name)}:{uuid4().hex}"
        self.client: Any = redis.Redis.from_url(
            urlunsplit((parts.scheme, parts.netloc, "", parts.query, "")),
            socket_timeout=30,
            socket_connect_timeout=5,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            redis_connect_func=self._set_name if consumes else None,
        )
        self._server = Reconnect(f"Redis at {address}", patience_s, AWAY)

    def _set_name(self, connection: Any) -> None:
        """Give the connection a name; a server that refuses does not list other connections either."""
        connection.on_connect()
        with suppress(redis.exceptions.ResponseError):
            connection.send_command("CLIENT", "SETNAME", self._own_name)
            connection.read_response()

    def has_other_consumer(self) -> bool:
        """Whether another consumer of this stream is connected to the server."""
        try:
            names = [each["name"] for each in self.client.client_list()]
        except redis.exceptions.ResponseError:
            return False
        ours = self._own_name.rpartition(":")[0]
        return any(name.rpartition(":")[0] == ours and name != self._own_name for name in names)

    @property
    def reconnected(self) -> int:
        """How often the server came back."""
        return self._server.reconnected

    @property
    def away(self) -> str | None:
        """What is said of the server while it is away."""
        return self._server.away

    def key(self, of: str) -> str:
        """The name of what is kept beside the stream."""
        return f"{self.name}:{of}"

    def commands(self, *, together: bool = False) -> Any:
        """Commands for one journey to the server; `together`: all of them or none."""
        return self.client.pipeline(transaction=together)

    def ask(self, act: Callable[[], Value]) -> Value:
        """Ask the server, as long as patience lasts."""
        return self._server.ask(lambda: self._with_our_errors(act))

    def ask_until(self, deadline: Deadline, act: Callable[[], Value]) -> Value | None:
        """Ask the server until a deadline; None: it is away, and patience still lasts."""
        return self._server.ask_until(deadline, lambda: self._with_our_errors(act))

    def close(self) -> None:
        """Close the connection, and wait no longer for a server that is away."""
        self._server.stop()
        self.client.close()

    def _with_our_errors(self, act: Callable[[], Value]) -> Value:
        try:
            return act()
        except redis.exceptions.AuthenticationError as error:
            raise LoaderError(f"Redis: {error}", hint="redis://user:password@host:port/name") from error
        except AWAY:
            raise
        except redis.exceptions.ResponseError as error:
            raise StoreError(
                f"Redis: {self.name}: {error}", hint="choose a name that nothing else uses on this server"
            ) from error


class RedisSource(GatheringSource):
    """Where a producer puts rollouts into a Redis stream.

    A piece that was sent twice because an answer was lost is received once.

    Args:
        url: `redis://host:port/name`.
        producer: A name that no other producer has; by default a new one.
        gather: When what was put is sent.
        most_entries: With so many entries that are not received, a put waits for room.
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
