"""Waiting has a limit that is checked, ends when it is closed, and says what for where it takes long."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import BatchPool, MemoryFeed, RolloutDataLoader
from millstream.errors import BusyError, ClosedError, LoaderError, WaitTimeout, WaitWarning
from millstream.feeds import open_feed, open_source
from millstream.stages import Deadline, FunctionStage, Queue, Reconnect, Waits, checked_timeout, poll, retry


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


NO_SECONDS = [float("nan"), -1, "5", True, [1]]


@pytest.mark.parametrize("wrong", NO_SECONDS, ids=repr)
def test_what_is_no_number_of_seconds_is_refused_wherever_one_waits(wrong: Any, tmp_path: Path) -> None:
    redis = "redis://127.0.0.1:1/feed"
    calls: list[Callable[[], Any]] = [
        lambda: Deadline(wrong),
        lambda: Queue[int]().get(wrong),
        lambda: FunctionStage(Queue[int](), function=lambda item: [item]).join(wrong),
        lambda: _full_pool().allocate(1, 4, wrong),
        lambda: MemoryFeed().receive(wrong),
        lambda: MemoryFeed(timeout_s=wrong),
        lambda: open_feed(tmp_path / "spool").receive(wrong),
        lambda: open_feed(redis).receive(wrong),
        lambda: open_feed(redis, patience_s=wrong),
        lambda: open_source(redis, timeout_s=wrong),
        lambda: RolloutDataLoader(MemoryFeed(), live={"timeout_s": wrong}),
    ]
    for call in calls:
        with pytest.raises(LoaderError, match=r"(timeout|patience)_s=.* is no number of seconds\n.*pass 0 or more"):
            call()


def _full_pool() -> BatchPool:
    pool = BatchPool(1)
    pool.held = pool.allocate(1, 4)  # type: ignore[attr-defined]
    return pool


def test_seconds_of_any_kind_are_numbers_of_seconds() -> None:
    assert [checked_timeout(each) for each in (0, 1.5, np.float32(0.5), np.int64(3), float("inf"))] == [
        *(0.0, 1.5, 0.5, 3.0, float("inf"))
    ]


def test_looking_ends_with_what_is_found_with_the_time_and_when_it_is_stopped() -> None:
    looks = iter([None, None, 0])
    assert poll(lambda: next(looks)) == 0, "what is found may be false"
    assert poll(lambda: None, Deadline(0.01)) is None
    stopping = threading.Event()
    waiting = threading.Thread(target=lambda: poll(lambda: None, pauses_s=(3600, 3600), stopping=stopping))
    waiting.start()
    stopping.set()
    waiting.join(60)
    assert not waiting.is_alive()


def test_who_tries_again_gets_the_result_or_the_last_error_and_every_other_error_at_once() -> None:
    failures: list[Exception] = [BusyError("a"), BusyError("b")]

    def act() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    assert retry(act, BusyError) == "done"
    failures += [ValueError("another")]
    with pytest.raises(ValueError, match="another"):
        retry(act, BusyError)
    failures += [BusyError("the first")]
    with pytest.raises(BusyError, match="the first"):
        retry(act, BusyError, 0)


def away() -> None:
    raise ConnectionError("refused")


def test_who_waits_long_for_a_server_is_told_once_per_absence_for_whom_and_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.0)
    server = Reconnect("Redis at example:6379", 3600.0, (ConnectionError,))
    for _ in range(2):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                assert server.ask_until(Deadline(0), away) is None
        assert [(each.category, each.filename) for each in told] == [(WaitWarning, __file__)]
        assert "waiting for Redis at example:6379 for 0 s, up to 3600 s (patience_s): refused" in str(told[0].message)
        assert server.ask(lambda: "back") == "back"
    assert server.reconnected == 2


def test_a_trainer_that_waits_for_a_dead_redis_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.05)
    feed = open_feed("redis://127.0.0.1:1/feed")
    with pytest.warns(WaitWarning, match=r"waiting for Redis at 127\.0\.0\.1:1 .*up to 3600 s"):
        assert feed.receive(0.5) == []


def test_a_server_that_stays_away_is_an_error_and_closing_ends_the_wait_for_it() -> None:
    with pytest.raises(WaitTimeout, match="waited 0 s for the server: refused"):
        Reconnect("the server", 0, (ConnectionError,)).ask(away)
    server, caught = Reconnect("the server", 3600, (ConnectionError,)), list[ClosedError]()
    began = threading.Event()

    def refuse() -> None:
        began.set()
        away()

    def wait() -> None:
        with pytest.raises(ClosedError, match="the server is away: refused, and it was closed meanwhile") as raised:
            server.ask(refuse)
        caught.append(raised.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    began.wait()
    server.stop()
    waiting.join(60)
    assert caught


def test_closing_a_spool_ends_the_wait_of_its_consumer(tmp_path: Path) -> None:
    feed = open_feed(tmp_path / "spool")
    received: list[object] = []
    waiting = threading.Thread(target=lambda: received.append(feed.receive(3600)))
    waiting.start()
    feed.close()
    waiting.join(60)
    assert received == [[]]
