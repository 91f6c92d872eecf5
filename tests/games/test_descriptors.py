"""Open files are few, are shared, and are never closed under a reader."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from millstream.errors import ClosedError, RecordError
from millstream.games import Descriptors
from millstream.games.descriptors import FileIdentity


def _files(folder: Path, count: int) -> list[str]:
    for i in range(count):
        (folder / f"{i}").write_text(f"file {i}")
    return [str(folder / f"{i}") for i in range(count)]


def _lent(descriptors: Descriptors, path: str) -> AbstractContextManager[int]:
    return descriptors.lent(path, FileIdentity.of(path))


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_many_readers_of_many_files_never_hold_more_than_the_bound(tmp_path: Path) -> None:
    paths = _files(tmp_path, 50)
    before, most = _open_files(), 0
    with Descriptors(most=5) as descriptors, ThreadPoolExecutor(8) as threads:

        def read(i: int) -> bool:
            nonlocal most
            with _lent(descriptors, paths[i % 50]) as descriptor:
                most = max(most, len(descriptors))
                return os.pread(descriptor, 100, 0) == f"file {i % 50}".encode()

        assert all(threads.map(read, range(2000)))
    assert most == 5
    assert _open_files() <= before


def test_a_file_in_use_stays_open_whatever_else_is_read(tmp_path: Path) -> None:
    paths = _files(tmp_path, 20)
    with Descriptors(most=2) as descriptors, _lent(descriptors, paths[0]) as descriptor:
        for path in paths[1:]:
            with _lent(descriptors, path) as other:
                assert other != descriptor
        assert os.pread(descriptor, 100, 0) == b"file 0"


def test_who_needs_one_more_file_waits_for_a_free_one(tmp_path: Path) -> None:
    first, second = _files(tmp_path, 2)
    descriptors, got = Descriptors(most=1), threading.Event()

    def read() -> None:
        with _lent(descriptors, second):
            got.set()

    with _lent(descriptors, first):
        reader = threading.Thread(target=read)
        reader.start()
        assert not got.wait(0.05)
    assert got.wait(5)
    reader.join()
    descriptors.close()


def test_a_file_that_opens_slowly_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = _files(tmp_path, 2)
    opening, go_on, real = threading.Event(), threading.Event(), os.open

    def slowly(path: str, flags: int) -> int:
        if path == slow:
            opening.set()
            go_on.wait(10)
        return real(path, flags)

    monkeypatch.setattr("millstream.games.descriptors.os.open", slowly)
    with Descriptors() as descriptors, ThreadPoolExecutor(2) as threads:

        def read() -> bytes:
            with _lent(descriptors, slow) as descriptor:
                return os.pread(descriptor, 100, 0)

        readers = [threads.submit(read) for _ in range(2)]
        assert opening.wait(5)
        with _lent(descriptors, quick) as descriptor:
            assert os.pread(descriptor, 100, 0) == b"file 1"
        go_on.set()
        assert [reader.result(5) for reader in readers] == [b"file 0"] * 2


def test_a_removed_file_is_read_as_long_as_it_is_open(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    with Descriptors() as descriptors:
        identity = FileIdentity.of(path)
        with descriptors.lent(path, identity):
            Path(path).unlink()
        with descriptors.lent(path, identity) as descriptor:
            assert os.pread(descriptor, 100, 0) == b"file 0"
        descriptors.forget(path, identity)
        with pytest.raises(FileNotFoundError), descriptors.lent(path, identity):
            pass
        assert len(descriptors) == 0


def test_another_file_in_the_place_of_one_is_an_error(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    with Descriptors() as descriptors:
        identity = FileIdentity.of(path)
        (tmp_path / "new").write_text("another")
        (tmp_path / "new").replace(path)
        with pytest.raises(RecordError, match="changed"), descriptors.lent(path, identity):
            pass


def test_closing_ends_all_use_and_leaves_none_open(tmp_path: Path) -> None:
    paths = _files(tmp_path, 3)
    before = _open_files()
    descriptors = Descriptors()
    with _lent(descriptors, paths[0]) as descriptor:
        with _lent(descriptors, paths[1]):
            pass
        descriptors.close()
        assert os.pread(descriptor, 100, 0) == b"file 0"
    assert _open_files() == before
    with pytest.raises(ClosedError), _lent(descriptors, paths[2]):
        pass
