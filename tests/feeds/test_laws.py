"""What every feed promises, whatever the rollouts travel by."""

from __future__ import annotations

import threading
import time

import pytest

from feeds.transports import (
    SMALL,
    Transport,
    as_json,
    has_ended,
    numbers_of,
    receive_all,
    receive_some,
    record,
    records,
)
from millstream.errors import ClosedError, RecordError, StateError
from millstream.feeds import Control, Gather
from millstream.rollouts import block_of


def test_what_is_put_is_received_once_and_as_it_was(transport: Transport) -> None:
    feed = transport.feed()
    with transport.source() as source:
        source.put(record(0))
        source.put(records([1, 2, 3]))
        source.put(block_of(records(range(4, 30))))
        source.flush()
        source.put(record(30))
    assert numbers_of(receive_all(feed)) == list(range(31))
    assert feed.counters()["received"] == 31
    assert feed.receive(timeout_s=0) == []


def test_whoever_seeks_a_cursor_receives_exactly_the_rest_in_the_same_order(transport: Transport) -> None:
    feed = transport.feed()
    first = transport.source()
    with transport.source() as second:
        for number in range(0, 24, 2):
            first.put(record(number))
            second.put(record(number + 1))
    first.close()
    begin = feed.cursor
    arrivals = receive_all(feed)
    everything = numbers_of(arrivals)
    assert sorted(everything) == list(range(24))
    for place in (0, len(arrivals) // 2, len(arrivals)):
        cursor = arrivals[place - 1].cursor if place else begin
        feed.seek(as_json(cursor))
        assert feed.cursor == cursor
        assert numbers_of(receive_all(feed)) == everything[len(numbers_of(arrivals[:place])) :]
    assert feed.cursor == arrivals[-1].cursor


def test_what_is_released_is_gone_and_the_rest_is_not(transport: Transport) -> None:
    feed = transport.feed()
    with transport.source() as source:
        for number in range(20):
            source.put(record(number))
    begin, arrivals = feed.cursor, receive_all(feed)
    middle = arrivals[len(arrivals) // 2]
    feed.release(as_json(middle.cursor))
    feed.seek(middle.cursor)
    assert numbers_of(receive_all(feed)) == numbers_of(arrivals[len(arrivals) // 2 + 1 :])
    with pytest.raises(StateError, match=r"released|kept|resume"):
        feed.seek(begin)
        feed.receive(timeout_s=0)


def test_a_feed_ends_when_all_producers_have_closed_and_everything_was_received(transport: Transport) -> None:
    feed = transport.feed()
    assert not has_ended(feed)
    first, second = transport.source(), transport.source()
    first.put(record(0))
    first.close()
    assert numbers_of(receive_some(feed, 1)) == [0]
    assert feed.receive(timeout_s=0.05) == []
    assert not has_ended(feed)
    second.put(record(1))
    second.close()
    assert not has_ended(feed)
    assert numbers_of(receive_some(feed, 1)) == [1]
    assert has_ended(feed)
    began = time.monotonic()
    assert feed.receive(timeout_s=30) == []
    assert time.monotonic() - began < 10


def test_nothing_is_put_behind_the_end(transport: Transport) -> None:
    transport.feed()
    source = transport.source()
    source.close()
    source.close()
    with pytest.raises(ClosedError, match="closed"):
        source.put(record(0))


def test_a_bad_record_is_refused_where_it_is_put_and_named(transport: Transport) -> None:
    feed = transport.feed()
    with transport.source() as source:
        source.put(record(0))
        with pytest.raises(RecordError, match="'broken'"):
            source.put(record(1, rollout_id="broken", loss_mask=[True]))
        source.put(record(2))
    assert numbers_of(receive_all(feed)) == [0, 2]


def test_what_is_gathered_goes_out_by_itself(transport: Transport) -> None:
    feed = transport.feed()
    source = transport.source()
    source.put(record(0))
    assert numbers_of(receive_some(feed, 1)) == [0]
    source.close()


def test_a_large_put_arrives_in_pieces_that_are_not_too_large(transport: Transport) -> None:
    feed = transport.feed()
    with transport.source(Gather(most_bytes=2000, seconds=60)) as source:
        source.put(records(range(200)))
    arrivals = receive_all(feed)
    assert numbers_of(arrivals) == list(range(200))
    if transport.survives:
        assert max(arrival.block.nbytes for arrival in arrivals) <= 2000


def test_any_number_of_threads_may_put(transport: Transport) -> None:
    feed = transport.feed()
    shared = transport.source()

    def put(numbers: range) -> None:
        with transport.source() as own:
            for number in numbers:
                (own if number % 2 else shared).put(record(number))

    threads = [threading.Thread(target=put, args=(range(start, start + 25),)) for start in range(0, 100, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    found = numbers_of(receive_all(feed))
    assert sorted(found) == list(range(100))
    for start in range(0, 100, 25):
        own = [number for number in found if number in range(start, start + 25) and number % 2]
        assert own == sorted(own)


def test_producers_hear_the_trainers_latest_word(transport: Transport) -> None:
    feed = transport.feed()
    with transport.source() as source:
        assert source.control() == Control()
        for control in (Control(3, 8), Control(4)):
            feed.tell(control)
            assert source.control() == control


def test_a_feed_that_is_opened_again_gives_what_was_not_released(lasting: Transport) -> None:
    feed = lasting.feed()
    with lasting.source(SMALL) as source:
        for number in range(20):
            source.put(record(number))
    arrivals = receive_all(feed)
    place = len(arrivals) // 3
    cursor = as_json(arrivals[place].cursor)
    feed.release(cursor)
    feed.close()
    again, rest = lasting.feed(), numbers_of(arrivals[place + 1 :])
    kept = numbers_of(receive_all(again))  # as little as it can let go of separately
    assert kept[-len(rest) :] == rest
    assert len(kept) < 20
    again.seek(cursor)
    assert numbers_of(receive_all(again)) == rest
    again.close()
