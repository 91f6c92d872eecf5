"""Every complete file of a folder is found once, in order; what happens to it later is told."""

from __future__ import annotations

import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import LoaderError, SourceError
from millstream.selfplay import Arrival, FileFound, ScanComplete
from millstream.selfplay.chunk_feed import Discovery

_END = bytes(1024)
"""The end of an archive."""
_HOWS = pytest.mark.parametrize("poll_s", [None, 0.05], ids=["told", "polling"])


def _told(arrival: Arrival) -> str:
    """The name of a found file, or -name for one that is gone."""
    if isinstance(arrival, ScanComplete):
        return "complete"
    return ("" if isinstance(arrival, FileFound) else "-") + Path(arrival.path).name


def _once(folder: Path) -> list[str]:
    discovery = Discovery(folder, watch=False)
    discovery.start()
    return [_told(each) for each in discovery.output()]


class Watched:
    """A folder that is watched, and what was told of it."""

    def __init__(self, discovery: Discovery) -> None:
        self.discovery, self.arrivals = discovery, list[Arrival]()

    def until(self, *names: str, timeout_s: float = 10) -> list[str]:
        """What is told until all of these are."""
        missing, told, deadline = set(names), list[str](), time.monotonic() + timeout_s
        while missing:
            arrival = self.discovery.output().get(deadline - time.monotonic())
            self.arrivals.append(arrival)
            told.append(_told(arrival))
            missing.discard(told[-1])
        return told

    def nothing_for(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self.discovery.output().try_get() is None


@contextmanager
def _watched(folder: Path, poll_s: float | None = None) -> Iterator[Watched]:
    discovery = Discovery(folder, poll_s=poll_s)
    discovery.start()
    try:
        yield Watched(discovery)
    finally:
        started = time.monotonic()
        discovery.stop()
        assert discovery.join(5)
        assert time.monotonic() - started < 1
        assert discovery.error is None


@pytest.fixture(autouse=True)
def no_thread_survives(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._UNTOLD_QUIET_S", 0.3)
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._TICK_S", 0.1)
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._POLL_S", 0.1)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def _write(path: Path, data: bytes = _END) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_files_come_by_name_whatever_their_folder_and_then_the_scan_is_complete(tmp_path: Path) -> None:
    for name in ("z/a.tar", "a/c.gz", "b.tar", "y/x/d", "z/b.tar"):
        _write(tmp_path / name)
    assert _once(tmp_path) == ["a.tar", "b.tar", "b.tar", "c.gz", "d", "complete"]


def test_hidden_and_temporary_names_are_passed_over(tmp_path: Path) -> None:
    for name in (".a.gz", "a.gz.tmp", "a.part", "a~", ".git/a.gz", "x.tmp/a.gz", "good.gz"):
        _write(tmp_path / name)
    assert _once(tmp_path) == ["good.gz", "complete"]


def test_ten_thousand_files_are_found(tmp_path: Path) -> None:
    for i in range(10_000):
        (tmp_path / f"{i:05d}.gz").touch()
    assert _once(tmp_path) == [*(f"{i:05d}.gz" for i in range(10_000)), "complete"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere/there.gz")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "root")
    (tmp_path / "elsewhere/self").symlink_to(tmp_path / "elsewhere")
    _write(tmp_path / "root/here.gz")
    (tmp_path / "root/loop").symlink_to(tmp_path / "root")
    (tmp_path / "root/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root/nowhere.gz").symlink_to(tmp_path / "nowhere")
    assert _once(tmp_path / "root") == ["here.gz", "there.gz", "complete"]


def test_a_file_that_still_grows_is_no_part_of_one_pass(tmp_path: Path) -> None:
    _write(tmp_path / "whole.gz")
    stop = threading.Event()

    def grow() -> None:
        with (tmp_path / "growing.gz").open("ab", buffering=0) as file:
            while not stop.wait(0.01):
                file.write(b"more")

    writer = threading.Thread(target=grow)
    writer.start()
    discovery = Discovery(tmp_path, watch=False)
    discovery.start()
    assert [_told(each) for each in discovery.output()] == ["whole.gz", "complete"]
    assert discovery.counters()["drops"] == {"still being written": 1}
    stop.set()
    writer.join()


def test_an_archive_without_its_end_is_not_complete(tmp_path: Path) -> None:
    _write(tmp_path / "open.tar", b"x" * 1024)
    assert _once(tmp_path) == ["complete"]
    os.utime(tmp_path / "open.tar", (0, 0))  # nobody has written to it for long
    assert _once(tmp_path) == ["open.tar", "complete"]


@_HOWS
def test_files_that_come_later_are_found_when_they_are_closed(tmp_path: Path, poll_s: float | None) -> None:
    _write(tmp_path / "a.tar")
    with _watched(tmp_path, poll_s) as watched:
        assert watched.until("complete") == ["a.tar", "complete"]
        with (tmp_path / "b.tar").open("wb", buffering=0) as file:
            for _ in range(10):
                file.write(b"data" * 128)
                time.sleep(0.02)
            file.write(_END)
        assert watched.until("b.tar") == ["b.tar"]
        last = watched.arrivals[-1]
        assert isinstance(last, FileFound)
        assert last.size == 10 * 512 + 1024


@_HOWS
def test_files_that_are_moved_in_or_renamed_or_removed_are_told(tmp_path: Path, poll_s: float | None) -> None:
    _write(tmp_path / "root/a.tar")
    with _watched(tmp_path / "root", poll_s) as watched:
        watched.until("complete")
        _write(tmp_path / "outside.tar").rename(tmp_path / "root/b.tar")
        watched.until("b.tar")
        (tmp_path / "root/b.tar").rename(tmp_path / "root/c.tar")
        assert sorted(watched.until("-b.tar", "c.tar")) == ["-b.tar", "c.tar"]
        (tmp_path / "root/a.tar").unlink()
        assert watched.until("-a.tar") == ["-a.tar"]
        _write(tmp_path / "root/d.tar.tmp").rename(tmp_path / "root/d.tar")
        assert watched.until("d.tar") == ["d.tar"]
        (tmp_path / "root/c.tar").rename(tmp_path / "c.tar")
        assert watched.until("-c.tar") == ["-c.tar"]


@_HOWS
def test_a_file_that_is_written_again_is_gone_and_found(tmp_path: Path, poll_s: float | None) -> None:
    _write(tmp_path / "a.tar")
    with _watched(tmp_path, poll_s) as watched:
        watched.until("complete")
        _write(tmp_path / "new.tmp", bytes(2048)).replace(tmp_path / "a.tar")
        assert watched.until("a.tar") == ["-a.tar", "a.tar"]


@_HOWS
def test_new_folders_are_watched_and_removed_ones_take_their_files_along(tmp_path: Path, poll_s: float | None) -> None:
    with _watched(tmp_path, poll_s) as watched:
        watched.until("complete")
        _write(tmp_path / "x/y/a.tar")
        watched.until("a.tar")
        _write(tmp_path / "x/y/b.tar")
        watched.until("b.tar")
        (tmp_path / "x").rename(tmp_path / "z")
        watched.until("-a.tar", "-b.tar", "a.tar", "b.tar")
        shutil.rmtree(tmp_path / "z")
        watched.until("-a.tar", "-b.tar")
        assert watched.discovery.gauges()["files"] == 0


@_HOWS
def test_a_link_that_is_made_later_doubles_nothing(tmp_path: Path, poll_s: float | None) -> None:
    _write(tmp_path / "run1/a.tar")
    with _watched(tmp_path, poll_s) as watched:
        watched.until("complete")
        (tmp_path / "latest").symlink_to("run1")
        (tmp_path / "latest.tar").symlink_to("run1/a.tar")
        _write(tmp_path / "run1/b.tar")
        assert watched.until("b.tar") == ["b.tar"]
        assert watched.nothing_for(0.5)
        assert watched.discovery.counters()["drops"] == {"link to another file here": 1}


@_HOWS
def test_a_folder_may_come_later_and_go_and_come_back(tmp_path: Path, poll_s: float | None) -> None:
    root = tmp_path / "root"
    with _watched(root, poll_s) as watched:
        assert watched.until("complete") == ["complete"]
        _write(root / "a.tar")
        watched.until("a.tar")
        root.rename(tmp_path / "away")
        assert watched.nothing_for(0.3)
        (tmp_path / "away").rename(root)
        _write(root / "b.tar")
        assert watched.until("b.tar") == ["b.tar"]


@_HOWS
def test_a_folder_that_stays_away_takes_its_files_along_until_it_is_back(
    tmp_path: Path, poll_s: float | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._AWAY_S", 0.2)
    root = tmp_path / "root"
    _write(root / "a.tar")
    _write(root / "x/b.tar")
    with _watched(root, poll_s) as watched:
        watched.until("complete")
        root.rename(tmp_path / "away")
        assert watched.until("-a.tar", "-b.tar") == ["-a.tar", "-b.tar"]
        (tmp_path / "away").rename(root)
        assert watched.until("a.tar", "b.tar") == ["a.tar", "b.tar"]
        shutil.rmtree(root)
        watched.until("-a.tar", "-b.tar")
    assert "root is gone, and with it 2 files" in caplog.text


def test_a_link_in_a_circle_hides_nothing_but_itself_and_is_counted_once(tmp_path: Path) -> None:
    _write(tmp_path / "a.tar")
    (tmp_path / "self.gz").symlink_to(tmp_path / "self.gz")
    (tmp_path / "there").symlink_to(tmp_path / "back")
    (tmp_path / "back").symlink_to(tmp_path / "there")
    with _watched(tmp_path, poll_s=0.02) as watched:
        assert watched.until("complete") == ["a.tar", "complete"]
        _write(tmp_path / "b.tar")
        watched.until("b.tar")
        assert watched.discovery.counters()["drops"] == {"link in a circle": 3}


def test_files_are_told_once_though_the_writer_is_quick(tmp_path: Path) -> None:
    with _watched(tmp_path) as watched:
        watched.until("complete")
        for i in range(500):
            _write(tmp_path / f"{i % 7}/{i}.tar.tmp").rename(tmp_path / f"{i % 7}/{i}.tar")
        told = watched.until(*(f"{i}.tar" for i in range(500)))
        assert sorted(told) == sorted(f"{i}.tar" for i in range(500))


def test_a_folder_that_leaves_and_comes_back_makes_no_noise(tmp_path: Path) -> None:
    (tmp_path / "root/x/y").mkdir(parents=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with _watched(tmp_path / "root") as watched:
            watched.until("complete")
            for number in range(2):
                (tmp_path / "root/x").rename(tmp_path / "x")
                (tmp_path / "x").rename(tmp_path / "root/x")
                _write(tmp_path / f"root/x/y/{number}.tar")
                watched.until(f"{number}.tar")
    assert [str(each.message) for each in warned] == []


def test_a_folder_that_may_not_be_read_is_counted_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "closed/a.tar")
    _write(tmp_path / "open/b.tar")
    real: Callable[[str | int], object] = os.scandir
    closed = threading.Event()

    def scandir(path: str | int) -> object:
        if closed.is_set() and str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("millstream.selfplay.folder.os.scandir", scandir)
    with _watched(tmp_path, poll_s=0.02) as watched:
        watched.until("complete")
        closed.set()
        assert watched.nothing_for(0.2)
        assert watched.discovery.counters()["drops"] == {"folder: permission denied": 1}


def test_without_the_library_the_folder_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "watchdog", None)
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._POLL_S", 0.05)
    with _watched(tmp_path) as watched:
        watched.until("complete")
        _write(tmp_path / "a.tar")
        watched.until("a.tar")
        assert watched.discovery.gauges()["watching"] == 0


def test_when_the_system_has_no_more_watches_the_folder_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("watchdog.observers.inotify_c.InotifyFD.add_callback", refuse)
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._POLL_S", 0.05)
    with _watched(tmp_path) as watched:
        watched.until("complete")
        _write(tmp_path / "a.tar")
        assert "a.tar" in watched.until("a.tar")
        assert watched.discovery.gauges()["watching"] == 0


def test_what_the_system_does_not_tell_is_found_by_looking_at_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._ALL_AGAIN_S", 0.1)
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery.Watcher.dispatch", lambda *_: None)
    with _watched(tmp_path) as watched:
        watched.until("complete")
        _write(tmp_path / "a.tar")
        assert "a.tar" in watched.until("a.tar")
        (tmp_path / "a.tar").unlink()
        assert "-a.tar" in watched.until("-a.tar")
        assert watched.discovery.gauges()["watching"] == 1  # and still nobody told


def test_too_many_notifications_are_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.selfplay.chunk_feed.discovery._MOST_HINTS", 3)
    with _watched(tmp_path) as watched:
        watched.until("complete")
        for i in range(100):
            _write(tmp_path / f"{i}.tar")
        told = watched.until(*(f"{i}.tar" for i in range(100)))
        assert len(told) == 100


def test_another_folder_of_the_same_name_is_watched_in_its_place(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _write(root / "a.tar")
    with _watched(root) as watched:
        watched.until("complete")
        shutil.rmtree(root)
        _write(root / "b.tar")
        watched.until("-a.tar", "b.tar")
        _write(root / "c.tar")
        watched.until("c.tar")
        assert watched.discovery.gauges()["watching"] == 1


def test_a_long_pause_between_two_looks_does_not_hold_up_who_stops(tmp_path: Path) -> None:
    with _watched(tmp_path, poll_s=3600) as watched:
        watched.until("complete")
        began = time.monotonic()
        watched.discovery.stop()
        assert watched.discovery.join(5)
        assert time.monotonic() - began < 1


def test_a_missing_folder_that_is_not_watched_is_an_error(tmp_path: Path) -> None:
    discovery = Discovery(tmp_path / "none", watch=False)
    discovery.start()
    with pytest.raises(Exception, match="there is no such folder") as error:
        discovery.output().get()
    assert isinstance(error.value.__cause__, SourceError)
    with pytest.raises(LoaderError, match="poll_s"):
        Discovery(tmp_path, poll_s=0)


def test_who_stops_while_nobody_takes_what_was_found_is_not_held_up(tmp_path: Path) -> None:
    for i in range(50):
        _write(tmp_path / f"{i}.gz")
    discovery = Discovery(tmp_path, capacity=2)
    discovery.start()
    time.sleep(0.3)
    discovery.stop()
    assert discovery.join(1)
    assert discovery.error is None


def test_a_file_in_the_place_of_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"a\.tar is a file, and no folder"):
        Discovery(_write(tmp_path / "a.tar"))


@pytest.mark.parametrize("path", [None, 5, b"games"])
def test_what_is_no_path_is_said_to_be_none(path: Any) -> None:
    with pytest.raises(SourceError, match="is not the path of a folder of games") as refused:
        Discovery(path)
    assert refused.value.hint


def test_a_time_between_two_looks_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="poll_s='often' is no time"):
        Discovery(tmp_path, poll_s="often")  # type: ignore[arg-type]
