"""Open files are few, are shared, and are never closed under a reader."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millstream.errors import ClosedError, RecordError
from millstream.games.descriptors import Descriptors, FileIdentity


def _files(folder: Path, count: int) -> list[str]:
    for i in range(count):
        (folder / f"{i}").write_text(f"file {i}")
    return [str(folder / f"{i}") for i in range(count)]


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_many_readers_of_many_files_never_hold_more_than_the_bound(tmp_path: Path) -> None:
    paths = _files(tmp_path, 50)
    before, most = _open_files(), 0
    with Descriptors(most=5) as descriptors, ThreadPoolExecutor(8) as threads:

        def read(i: int) -> bool:
            nonlocal most
            with descriptors.lent(paths[i % 50]) as descriptor:
                most = max(most, len(descriptors))
                return os.pread(descriptor, 100, 0) == f"file {i % 50}".encode()

        assert all(threads.map(read, range(2000)))
    assert most == 5
    assert _open_files() <= before


def test_a_file_in_use_stays_open_whatever_else_is_read(tmp_path: Path) -> None:
    paths = _files(tmp_path, 20)
    with Descriptors(most=2) as descriptors, descriptors.lent(paths[0]) as descriptor:
        for path in paths[1:]:
            with descriptors.lent(path) as other:
                assert other != descriptor
        assert os.pread(descriptor, 100, 0) == b"file 0"


def test_who_needs_one_more_file_waits_for_a_free_one(tmp_path: Path) -> None:
    first, second = _files(tmp_path, 2)
    descriptors, got = Descriptors(most=1), threading.Event()

    def read() -> None:
        with descriptors.lent(second):
            got.set()

    with descriptors.lent(first):
        reader = threading.Thread(target=read)
        reader.start()
        assert not got.wait(0.05)
    assert got.wait(5)
    reader.join()
    descriptors.close()


def test_a_removed_file_is_read_as_long_as_it_is_open(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    with Descriptors() as descriptors:
        with descriptors.lent(path):
            Path(path).unlink()
        with descriptors.lent(path) as descriptor:
            assert os.pread(descriptor, 100, 0) == b"file 0"
        descriptors.forget(path)
        with pytest.raises(FileNotFoundError), descriptors.lent(path):
            pass
        assert len(descriptors) == 0


def test_another_file_in_the_place_of_one_is_an_error(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    with Descriptors() as descriptors:
        with descriptors.lent(path) as descriptor:
            identity = FileIdentity.of(descriptor)
        (tmp_path / "new").write_text("another")
        (tmp_path / "new").replace(path)
        with pytest.raises(RecordError, match="changed"), descriptors.lent(path, identity):
            pass


def test_closing_ends_all_use_and_leaves_none_open(tmp_path: Path) -> None:
    paths = _files(tmp_path, 3)
    before = _open_files()
    descriptors = Descriptors()
    with descriptors.lent(paths[0]) as descriptor:
        with descriptors.lent(paths[1]):
            pass
        descriptors.close()
        assert os.pread(descriptor, 100, 0) == b"file 0"
    assert _open_files() == before
    with pytest.raises(ClosedError), descriptors.lent(paths[2]):
        pass
