"""What is particular about Redis: repeats, room, entries of others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from feeds.redis_server import RedisServer
from feeds.transports import SMALL, numbers_of, receive_all, receive_some, record, records
from millstream import RolloutDataLoader
from millstream.errors import BusyError, LoaderError, StoreError, WaitTimeout
from millstream.feeds import Control, Gather
from millstream.feeds.redis_feed import RedisFeed
from millstream.feeds.redis_source import RedisSource
from rollouts.samples import random_rollouts

ONE = Gather(most_rollouts=1)


@pytest.fixture
def name() -> str:
    return uuid4().hex


@pytest.fixture
def client(redis_server: RedisServer) -> Any:
    return redis.Redis(port=redis_server.port)


def test_an_entry_whose_answer_was_lost_is_sent_again_and_received_once(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, source = RedisFeed(redis_server.url(name)), RedisSource(redis_server.url(name), gather=ONE)
    pipeline, lost = redis.client.Pipeline, iter([False, True, False, True])
    execute = pipeline.execute

    def losing(self: Any) -> Any:
        adds = any(command[0][0] == "XADD" for command in self.command_stack)
        answer = execute(self)
        if adds and next(lost, False):
            raise redis.exceptions.ConnectionError("lost")
        return answer

    monkeypatch.setattr(pipeline, "execute", losing)
    for number in range(3):
        source.put(record(number))
    source.close()
    assert numbers_of(receive_all(feed)) == [0, 1, 2]
    assert feed.counters()["repeated"] == 2


def test_other_ranks_receive_what_the_first_has_received_and_leave_everything_as_it_is(
    redis_server: RedisServer, name: str, client: Any
) -> None:
    """Nor do they hold more than the first one: it takes no more than it has room for."""
    first, second = RedisFeed(redis_server.url(name)), RedisFeed(redis_server.url(name), follow=True)
    source = RedisSource(redis_server.url(name), gather=ONE)
    for number in range(3):
        source.put(record(number))
    source.flush()
    assert second.receive(0.05) == []
    numbers, arrivals = numbers_of(first.receive(1)), second.receive(1)
    assert numbers_of(arrivals) == numbers == [0, 1, 2]
    first.tell(Control(3))
    second.tell(Control(9))
    second.release(arrivals[-1].cursor)
    second.receive(0)
    assert (client.get(f"{name}:held"), client.xlen(name), source.control().policy_version) == (b"3", 3, 3)
    first.release(arrivals[-1].cursor)
    first.receive(0)
    assert (client.get(f"{name}:held"), client.xlen(name)) == (b"0", 0)
    source.close()
    assert (first.ended, second.ended) == (True, True)


def test_the_loaders_of_two_ranks_share_the_batches_of_a_stream(
    redis_server: RedisServer, name: str, tmp_path: Path
) -> None:
    with RedisSource(redis_server.url(name)) as source:
        source.put([{**rollout, "policy_version": 0} for rollout in random_rollouts(groups=4)])
    how: dict[str, Any] = {"live": {"groups_per_batch": 2, "group_size": 4, "timeout_s": 20}, "batch_size": 4}
    how |= {"framework": "numpy", "cache_dir": tmp_path, "world_size": 2}
    ranks = [RolloutDataLoader(redis_server.url(name), rank=rank, **how) for rank in (0, 1)]
    with ranks[0] as first, ranks[1] as second:
        for _ in range(2):
            rows = [row for rank in (first, second) for row in rank.next().metadata["rollout_id"]]
            assert len(set(rows)) == 8
            first.commit(first.state_dict())
        assert list(first) == list(second) == []


def test_a_second_trainer_on_a_stream_is_refused_and_the_first_goes_on(
    redis_server: RedisServer, name: str, tmp_path: Path
) -> None:
    with RedisSource(redis_server.url(name)) as source:
        source.put([{**rollout, "policy_version": 0} for rollout in random_rollouts(groups=4)])
    how: dict[str, Any] = {"live": {"groups_per_batch": 2, "group_size": 4, "timeout_s": 20}, "framework": "numpy"}

    def opened(folder: str) -> Any:
        return RolloutDataLoader(redis_server.url(name), cache_dir=tmp_path / folder, batch_size=8, **how)

    with opened("first") as first:
        first.next()
        with pytest.raises(BusyError, match="another consumer takes from this stream"):
            opened("second").next()
        assert RedisFeed(redis_server.url(f"{name}:other")).receive(0) == []
        state = first.state_dict()
        first.commit(state)
        assert len(list(first)) == 1
    with opened("first") as again:
        again.load_state_dict(state)
        assert len(list(again)) == 1


def test_a_producer_waits_for_room_and_nothing_is_trimmed(redis_server: RedisServer, name: str, client: Any) -> None:
    feed = RedisFeed(redis_server.url(name))
    source = RedisSource(redis_server.url(name), gather=ONE, most_entries=3, timeout_s=0.1)
    for number in range(4):
        source.put(record(number))
    with pytest.raises(WaitTimeout, match="room: 3 entries"):
        source.flush()
    source.timeout_s = None
    closing = threading.Thread(target=source.close)
    closing.start()
    assert numbers_of(receive_some(feed, 4)) == [0, 1, 2, 3]  # what was received makes room, though it is kept
    closing.join()
    assert client.xlen(name) == 4
    feed.release(feed.cursor)
    assert client.xlen(name) == 0
    assert feed.ended


def test_what_was_received_before_a_place_still_counts_as_received_behind_a_seek(
    redis_server: RedisServer, name: str, client: Any
) -> None:
    """Else producers would wait for room that is never made."""
    feed, source = RedisFeed(redis_server.url(name)), RedisSource(redis_server.url(name), gather=ONE)
    for number in range(3):
        source.put(record(number))
    source.flush()
    arrivals = receive_some(feed, 3)
    feed.seek(arrivals[1].cursor)
    assert numbers_of(feed.receive(1)) == [2]
    assert client.get(f"{name}:held") == b"3"


@pytest.mark.parametrize("fields", [{"blocks": b"nonsense", "producer": "x", "number": 0}, {"other": "thing"}])
def test_an_entry_that_is_none_of_ours_is_counted_or_an_error(
    fields: Any, redis_server: RedisServer, name: str, client: Any
) -> None:
    with RedisSource(redis_server.url(name), gather=ONE) as source:
        source.put(record(0))
        source.flush()  # else the other entry may come first
        client.xadd(name, fields)
        source.put(record(1))
    feed = RedisFeed(redis_server.url(name))
    assert numbers_of(receive_all(feed)) == [0, 1]
    assert (feed.counters()["damaged"], feed.counters()["repeated"]) == (1, 0)
    feed.close()
    strict = RedisFeed(redis_server.url(name), on_bad="error")
    assert numbers_of(strict.receive(timeout_s=1)) == [0]
    for _ in range(2):
        with pytest.raises(StoreError, match="entry"):
            strict.receive(timeout_s=1)


def test_entries_are_not_too_large(redis_server: RedisServer, name: str, client: Any) -> None:
    with RedisSource(redis_server.url(name), gather=Gather(most_bytes=1000, seconds=60)) as source:
        source.put(records(range(100)))
        for number in range(100, 200):
            source.put(record(number))
    sizes = [len(fields[b"blocks"]) for _, fields in client.xrange(name)]
    assert len(sizes) > 5
    assert max(sizes) <= 4000  # a thousand of columns, and names and gaps
    feed = RedisFeed(redis_server.url(name))
    assert numbers_of(receive_all(feed)) == list(range(200))


def test_a_name_that_means_something_else_is_said(redis_server: RedisServer, name: str, client: Any) -> None:
    client.set(name, "a word")
    source = RedisSource(redis_server.url(name), gather=SMALL)
    source.put(record(0))
    with pytest.raises(StoreError, match=r"WRONGTYPE(.|\n)*choose a name"):
        source.flush()
    client.delete(name)
    source.close()
    with pytest.raises(LoaderError, match="names no stream"):
        RedisFeed("redis://127.0.0.1:1")
