"""Where a feed is, as it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from feeds.redis_server import RedisServer
from millstream.errors import LoaderError
from millstream.feeds import HttpFeed, HttpSource, MemoryFeed, SpoolFeed, SpoolSource, open_feed, open_source
from millstream.feeds.redis import RedisSource
from millstream.feeds.redis_feed import RedisFeed


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
