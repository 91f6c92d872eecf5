"""Who writes a log is missed when it was there, has gone, and nothing is left to read."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from millstream.errors import BusyError
from millstream.storage import Lock, lock, staged, staging_folder
from millstream.storage.lock import GONE_S, LOOK_S, Presence, is_held


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


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_lock_whose_last_holder_removes_it_in_between_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, flock, removed = tmp_path / kind, fcntl.flock, list[Path]()

    def removing(fd: int, operation: int) -> None:
        if not removed:
            removed.append(path)
            path.rmdir() if path.is_dir() else path.unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", removing)
    held = Lock(path, folder=kind == "folder")

    assert removed == [path]
    assert is_held(path)
    held.release()
    assert not is_held(path)


def test_a_store_is_prepared_where_another_process_has_just_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flock, removed = staging_folder(tmp_path / "corpus"), fcntl.flock, list[Path]()

    def finishing(fd: int, operation: int) -> None:
        if not removed:
            removed.append(folder)
            folder.rmdir()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", finishing)
    with staged(tmp_path / "corpus") as path:
        path.mkdir()

    assert removed == [folder]
    assert (tmp_path / "corpus").is_dir()


def test_a_folder_stays_when_its_lock_is_released_and_tells_who_comes_meanwhile(tmp_path: Path) -> None:
    held = Lock(tmp_path / "folder", folder=True)
    with pytest.raises(BusyError, match="somebody prepares it"):
        Lock(tmp_path / "folder", folder=True, busy="somebody prepares it")
    held.release()
    assert (tmp_path / "folder").is_dir()
    Lock(tmp_path / "folder", folder=True).release()
