"""Where a feed is, as it is written down."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from feeds.redis_server import RedisServer
from millstream import RolloutDataLoader
from millstream.errors import LoaderError, WaitTimeout
from millstream.feeds import HttpFeed, MemoryFeed, SpoolFeed, open_feed, open_source
from millstream.feeds.http_source import HttpSource
from millstream.feeds.redis_feed import RedisFeed
from millstream.feeds.redis_source import RedisSource
from millstream.feeds.spool import SpoolSource


def test_an_address_says_which_way_it_is(tmp_path: Path, redis_server: RedisServer) -> None:
    url = redis_server.url("opening")
    assert type(open_feed(url)) is RedisFeed
    assert type(open_source(url)) is RedisSource
    assert type(open_source(tmp_path)) is SpoolSource
    assert type(open_source(str(tmp_path))) is SpoolSource
    spool = open_feed(tmp_path)
    assert type(spool) is SpoolFeed
    spool.close()
    http = open_feed("http://127.0.0.1", directory=tmp_path)
    assert isinstance(http, HttpFeed)
    assert type(open_source(http.url, token=http.token)) is HttpSource
    http.close()


def test_what_is_open_stays_what_it_is() -> None:
    feed = MemoryFeed()
    source = feed.source()
    assert open_feed(feed) is feed
    assert open_source(source) is source
    with pytest.raises(LoaderError, match="follow"):
        open_feed(feed, follow=True)


def test_a_way_that_is_unknown_is_said() -> None:
    with pytest.raises(LoaderError, match="kafka://"):
        open_feed("kafka://host/topic")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("https://h/x.jsonl", "folder"),
        ("redis://localhost:99999/x", "Port out of range"),
        ("redis:///x", "no host"),
        ("redis://[x/y", "Invalid IPv6"),
    ],
)
def test_an_address_that_cannot_be_is_said(where: str, said: str) -> None:
    for act in (open_feed, lambda url: RolloutDataLoader(url, live={"group_size": 2}, batch_size=2)):
        with pytest.raises(LoaderError, match=said) as caught:
            act(where)
        assert caught.value.hint


def test_a_port_of_http_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="Port out of range"):
        open_feed("http://localhost:99999", directory=tmp_path)
    with pytest.raises(LoaderError, match="Port out of range"):
        open_source("http://localhost:99999", token="secret")


def test_a_loader_of_a_server_that_is_away_ends_in_time() -> None:
    with socket.socket() as taken:  # bound and not listening: nothing answers there
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/away"
        loader = RolloutDataLoader(url, batch_size=2, live={"group_size": 2, "timeout_s": 0.2})
        with loader, pytest.raises(WaitTimeout, match=r"Redis at 127\.0\.0\.1:.* is away"):
            loader.get_batch()
