"""Where rollouts go, as one writes it down -> the two ends of a feed."""

from __future__ import annotations

import os
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from millstream.errors import LoaderError
from millstream.feeds.feed import Feed, RolloutSource
from millstream.feeds.http_feed import HttpFeed
from millstream.feeds.http_source import HttpSource
from millstream.feeds.memory_feed import MemoryFeed
from millstream.feeds.spool import SpoolFeed, SpoolSource

Where: TypeAlias = str | os.PathLike[str]
_WAYS = {"redis": "redis", "rediss": "redis", "http": "http", "https": "http"}


def open_feed(where: Where | Feed, **settings: Any) -> Feed:
    """Open the trainer's end.

    >>> feed = MemoryFeed()
    >>> open_feed(feed) is feed
    True

    Args:
        where: The folder of a spool, `redis://host:port/name`, `http://127.0.0.1:port` (with `directory=`, the spool
            that it writes to), or a feed.
        settings: Of `SpoolFeed`, `RedisFeed` or `HttpFeed`.
    """
    if not isinstance(where, str | os.PathLike):
        _refuse(settings)
        return where
    scheme = _scheme(where)
    if scheme == "redis":
        from millstream.feeds.redis_feed import RedisFeed

        return RedisFeed(str(where), **settings)
    if scheme == "http":
        if "directory" not in settings:
            hint = 'open_feed("http://127.0.0.1:8000", directory=…), the spool that it writes to; files are no feed'
            raise LoaderError(f"{where}: an address to listen at needs a folder", hint=hint)
        try:
            address = urlsplit(str(where))
            host, port = address.hostname or "127.0.0.1", address.port or 0
        except ValueError as error:
            raise LoaderError(f"{where}: {error}", hint="http://host:port") from None
        return HttpFeed(host=host, port=port, **settings)
    return SpoolFeed(where, **settings)


def open_source(where: Where | RolloutSource | MemoryFeed, **settings: Any) -> RolloutSource:
    """Open a producer's end.

    >>> with open_source(MemoryFeed()) as source:
    ...     source.control().groups_wanted is None
    True

    Args:
        where: The folder of a spool, `redis://host:port/name`, `http://host:port` (with `token=`), a source, or the
            `MemoryFeed` of this process.
        settings: Of `SpoolSource`, `RedisSource` or `HttpSource`.
    """
    if not isinstance(where, str | os.PathLike):
        _refuse(settings)
        return where.source() if isinstance(where, MemoryFeed) else where
    scheme = _scheme(where)
    if scheme == "redis":
        from millstream.feeds.redis_source import RedisSource

        return RedisSource(str(where), **settings)
    return HttpSource(str(where), **settings) if scheme == "http" else SpoolSource(where, **settings)


def _scheme(where: Where) -> str:
    scheme, separator, _ = os.fspath(where).partition("://")
    if not separator:
        return "folder"
    if (scheme := scheme.lower()) not in _WAYS:
        raise LoaderError(f"{where}: no feed is reached by {scheme}://", hint="a folder, redis://… or http://…")
    return _WAYS[scheme]


def _refuse(settings: dict[str, Any]) -> None:
    if settings:
        raise LoaderError(f"a feed that is open takes no settings ({', '.join(settings)})", hint="open it with them")
