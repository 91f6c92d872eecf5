"""What is written through the disk's few functions is there, in whatever pieces it comes and goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.storage import disk


@given(parts=st.lists(st.binary(max_size=9), max_size=20))
@examples(50)
def test_parts_are_written_end_to_end(parts: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("disk") / "file"
    fd = disk.create(path)
    disk.write_synced(fd, [memoryview(part) for part in parts])
    os.close(fd)
    assert path.read_bytes() == b"".join(parts)


def test_more_parts_than_the_system_takes_at_once_are_written(tmp_path: Path) -> None:
    parts = [b"%d," % number for number in range(3 * os.sysconf("SC_IOV_MAX"))]
    fd = disk.create(tmp_path / "file")
    disk.write_synced(fd, parts)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


def test_what_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    fd = disk.create(tmp_path / "file")
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.write_synced(fd, [b"x"])
    with pytest.raises(TypeError):
        disk.write_synced(fd, ["no bytes"])  # type: ignore[list-item]
