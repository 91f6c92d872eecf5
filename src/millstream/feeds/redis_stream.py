"""A stream on a Redis server, and the server's absence: the one place that knows redis-py.

    NAME                 the stream; an entry: producer, number, blocks of rollouts one behind the other
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

from millstream.errors import LoaderError, MissingExtra, StoreError
from millstream.stages import Deadline, Reconnect

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
            redis_connect_func=self._introduced if consumes else None,
        )
        self._server = Reconnect(f"Redis at {address}", patience_s, AWAY)

    def _introduced(self, connection: Any) -> None:
        """Say who is connected; a server that does not let us will not tell of others either."""
        connection.on_connect()
        with suppress(redis.exceptions.ResponseError):
            connection.send_command("CLIENT", "SETNAME", self._own_name)
            connection.read_response()

    def has_other_consumer(self) -> bool:
        """Whether somebody else who takes out of this stream is connected to the server."""
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
        return self._server.ask(lambda: self._understood(act))

    def ask_until(self, deadline: Deadline, act: Callable[[], Value]) -> Value | None:
        """Ask the server until a deadline; None: it is away, and patience still lasts."""
        return self._server.ask_until(deadline, lambda: self._understood(act))

    def close(self) -> None:
        """Close the connection, and wait no longer for a server that is away."""
        self._server.stop()
        self.client.close()

    def _understood(self, act: Callable[[], Value]) -> Value:
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
