"""What is gathered is sent by itself, whatever fails on the way."""

from __future__ import annotations

import threading

import pytest

from feeds.transports import record
from millstream.errors import BusyError, ClosedError, StoreError, WaitWarning
from millstream.feeds import Control, Gather
from millstream.feeds.gathering import MOST_TRIES, Encoded, GatheringSource


class Failing(GatheringSource):
    """Sends nothing at first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(Gather(seconds=0.001))
        self.sent, self._errors = threading.Event(), list(errors)

    def control(self) -> Control:
        return Control()

    def _send(self, blocks: list[Encoded]) -> None:
        if self._errors:
            raise self._errors.pop()
        self.sent.set()

    def _end(self) -> None:
        pass


@pytest.mark.parametrize("error", [StoreError("full", hint="free some space"), WaitWarning("the server is away")])
def test_what_could_not_be_sent_is_tried_again_without_being_asked(error: Exception) -> None:
    """A WaitWarning is raised where warnings are errors."""
    with Failing(error) as source:
        source.put(record(1))
        assert source.sent.wait(60)


FULL = StoreError("full", hint="free some space")
BUSY = BusyError("another producer of this name has begun", hint="give each producer its own name")


def wait_until_given_up(source: GatheringSource) -> None:
    """Wait until nothing is tried any more without being asked."""
    while True:
        with source._lock:
            timer = source._timer
        if timer is None:
            return
        timer.join()


def test_what_fails_again_and_again_is_not_tried_without_end_and_the_next_put_says_why() -> None:
    with Failing(*[FULL] * (MOST_TRIES + 3)) as source:
        source.put(record(1))
        wait_until_given_up(source)
        assert len(source._errors) == 2
        with pytest.raises(StoreError, match="full"):
            source.put(record(2))
        with pytest.raises(StoreError, match="full"):
            source.flush()
        source.put(record(3))  # there is room again
        assert source.sent.is_set()


def test_a_name_that_another_producer_has_is_given_up_at_once_and_by_closing() -> None:
    source = Failing(*[BUSY] * 3)
    source.put([record(1), record(2)])
    wait_until_given_up(source)
    assert len(source._errors) == 2
    with pytest.raises(BusyError):
        source.put(record(3))
    with pytest.raises(BusyError, match="this source is closed, and 2 rollouts in it did not arrive") as told:
        source.close()
    assert told.value.hint == "give each producer its own name, and put them again"
    source.close()
    with pytest.raises(ClosedError):
        source.put(record(3))


def test_rollouts_on_their_way_are_counted_when_they_are_given_up() -> None:
    source = Failing(*[BUSY] * 2)
    source._gather = Gather(most_rollouts=3, seconds=60)
    source.put([record(number) for number in range(3)])
    with pytest.raises(BusyError, match="3 rollouts in it did not arrive"):
        source.close()


def test_closing_that_fails_leaves_nothing_at_work_and_can_be_tried_again() -> None:
    source = Failing(FULL)
    source._gather = Gather(seconds=60)
    source.put(record(1))
    with pytest.raises(StoreError, match="full"):
        source.close()
    assert source._timer is None and not source.sent.is_set()
    source.close()
    assert source.sent.is_set()
