"""The queue: bounded, and what goes wrong in a producer reaches the trainer."""

from __future__ import annotations

import threading

import pytest

from feeds.transports import numbers_of, receive_all, receive_some, record, records
from millstream.errors import ClosedError, StateError, WaitTimeout
from millstream.feeds import MemoryFeed


def test_who_puts_more_than_fits_waits_for_room() -> None:
    feed = MemoryFeed(most_rollouts=3, timeout_s=0.05)
    source = feed.source()
    source.put(records(range(3)))
    with pytest.raises(WaitTimeout, match="room: 3 rollouts"):
        source.put(record(3))
    assert numbers_of(feed.receive(timeout_s=0)) == [0, 1, 2]
    source.put(records(range(3, 9)))  # more than ever fits goes in alone
    assert numbers_of(feed.receive(timeout_s=0)) == [3, 4, 5, 6, 7, 8]


def test_bytes_are_bounded_too() -> None:
    feed = MemoryFeed(most_bytes=2000)
    thread = threading.Thread(target=feed.source().put, args=(records(range(200)),))
    thread.start()
    arrivals = receive_some(feed, 200)
    thread.join()
    assert numbers_of(arrivals) == list(range(200))
    assert max(arrival.block.nbytes for arrival in arrivals) <= 2000


def test_a_producers_error_reaches_the_trainer_behind_what_was_put() -> None:
    feed = MemoryFeed()
    with pytest.raises(ZeroDivisionError), feed.source() as source:
        source.put(record(0))
        raise ZeroDivisionError("the sampler broke")
    assert numbers_of(feed.receive(timeout_s=0)) == [0]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="the sampler broke"):
            feed.receive(timeout_s=0)
    assert not feed.ended


def test_ctrl_c_in_a_producer_is_no_regular_end() -> None:
    feed = MemoryFeed()
    with pytest.raises(KeyboardInterrupt), feed.source():
        raise KeyboardInterrupt
    with pytest.raises(ClosedError, match="KeyboardInterrupt"):
        feed.receive(timeout_s=0)


def test_a_closed_feed_takes_nothing_and_wakes_who_waits() -> None:
    feed = MemoryFeed(most_rollouts=1)
    source = feed.source()
    source.put(record(0))
    refused = []

    def put() -> None:
        try:
            source.put(record(1))
        except ClosedError as error:
            refused.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    feed.close()
    thread.join(timeout=10)
    assert len(refused) == 1


def test_a_cursor_may_lie_inside_what_was_put_together() -> None:
    feed = MemoryFeed()
    with feed.source() as source:
        source.put(records(range(6)))
        source.put(records(range(6, 8)))
    receive_all(feed)
    feed.seek({**feed.cursor, "rollouts": 2})
    assert numbers_of(receive_all(feed)) == [2, 3, 4, 5, 6, 7]
    feed.release({**feed.cursor, "rollouts": 2})
    with pytest.raises(StateError, match="first kept: 2"):
        feed.seek({**feed.cursor, "rollouts": 1})


def test_a_cursor_of_a_process_that_is_gone_is_a_new_beginning() -> None:
    feed = MemoryFeed()
    with feed.source() as source:
        source.put(record(0))
    feed.seek({"memory": "of long ago", "rollouts": 17})
    assert numbers_of(receive_all(feed)) == [0]


def test_who_saves_states_and_commits_none_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    feed = MemoryFeed(most_bytes=1000)
    source = feed.source()
    for number in range(60):
        source.put(record(number))
        [arrival] = feed.receive(timeout_s=0)
        if number < 30:
            feed.release(arrival.cursor)
    assert [each.getMessage().count("commit(state)") for each in caplog.records] == [1]
