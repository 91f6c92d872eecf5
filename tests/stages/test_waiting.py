"""Who is taken away from waiting passes the notice on that may have been his."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from millstream.stages.waiting import Waits


class Interrupted(threading.Condition):
    """A condition whose only waiter is interrupted just when it was notified."""

    notices = 0

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> Any:
        raise KeyboardInterrupt

    def notify(self, n: int = 1) -> None:
        self.notices += n


def test_an_interrupted_waiter_wakes_another_one() -> None:
    changed, waits = Interrupted(), Waits()
    with changed, pytest.raises(KeyboardInterrupt):
        waits.until(lambda: False, changed, None, "something")
    assert changed.notices == 1
    assert (waits.count, waits.waiting) == (1, 0)
