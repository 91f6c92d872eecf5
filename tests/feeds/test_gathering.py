"""What is gathered is sent by itself, whatever fails on the way."""

from __future__ import annotations

import threading

import pytest

from feeds.transports import record
from millstream.errors import StoreError, WaitWarning
from millstream.feeds.feed import Control
from millstream.feeds.gathering import Encoded, Gather, GatheringSource


class Failing(GatheringSource):
    """Sends nothing at first."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Gather(seconds=0.001))
        self.sent, self._errors = threading.Event(), [error]

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
