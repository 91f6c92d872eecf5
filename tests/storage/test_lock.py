"""Who writes a log is missed when it was there, has gone, and nothing is left to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.storage import Lock, Presence, is_held, lock
from millstream.storage.lock import GONE_S, LOOK_S


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lock, "time", clock)
    return clock


def silent_for(writer: Presence, clock: Clock, seconds: float) -> bool:
    """Look all the time; gives whether the writer is missed at last."""
    missed = False
    for _ in range(round(seconds / LOOK_S)):
        clock.now_s += LOOK_S * 1.01
        missed = writer.is_missed(silent=True)
    return missed


def test_a_lock_is_held_until_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    lock = Lock(path)
    assert is_held(path)
    assert is_held(path)
    lock.release()
    assert not is_held(path)
    path.touch()  # as one that was killed leaves it
    assert not is_held(path)


def test_a_writer_is_missed_after_it_was_away_for_long_and_not_while_it_is_there(tmp_path: Path, clock: Clock) -> None:
    lock = Lock(tmp_path / "lock")
    writer = Presence(tmp_path / "lock")
    assert not silent_for(writer, clock, 3 * GONE_S)
    lock.release()
    assert not silent_for(writer, clock, GONE_S - 1)
    lock = Lock(tmp_path / "lock")  # it came back
    assert not silent_for(writer, clock, 1)
    lock.release()
    assert not silent_for(writer, clock, GONE_S - 1)
    assert silent_for(writer, clock, 2)


def test_nobody_is_missed_as_long_as_there_is_something_to_read(tmp_path: Path, clock: Clock) -> None:
    lock = Lock(tmp_path / "lock")
    writer = Presence(tmp_path / "lock")
    lock.release()
    assert not silent_for(writer, clock, GONE_S - 1)
    clock.now_s += 3 * GONE_S
    assert not writer.is_missed(silent=False)
    assert not silent_for(writer, clock, GONE_S - 1)


def test_a_time_without_a_look_is_no_time_away(tmp_path: Path, clock: Clock) -> None:
    lock = Lock(tmp_path / "lock")
    writer = Presence(tmp_path / "lock")
    lock.release()
    clock.now_s += 3 * GONE_S
    assert not writer.is_missed(silent=True)


def test_who_was_never_seen_is_not_missed(tmp_path: Path, clock: Clock) -> None:
    assert not silent_for(Presence(tmp_path / "lock"), clock, 3 * GONE_S)


def test_who_comes_later_is_seen_when_it_says_something(tmp_path: Path, clock: Clock) -> None:
    writer = Presence(tmp_path / "lock")
    lock = Lock(tmp_path / "lock")
    assert not writer.is_missed(silent=False)
    lock.release()
    assert silent_for(writer, clock, GONE_S + 1)
