"""What is written through the disk's few functions is there, in whatever pieces it comes and goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.store import disk


@given(parts=st.lists(st.binary(max_size=9), max_size=20), most=st.integers(1, 30))
@examples(50)
def test_parts_are_written_end_to_end_however_little_the_system_takes_at_once(
    parts: list[bytes], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def pwritev(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        return os.pwrite(fd, b"".join(buffers)[:most], offset)

    path = tmp_path_factory.mktemp("disk") / "file"
    fd = disk.create(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        disk.write_parts(fd, parts, 3)
    os.close(fd)
    assert path.read_bytes() == (b"\0\0\0" if any(parts) else b"") + b"".join(parts)


def test_more_parts_than_the_system_takes_at_once_are_written(tmp_path: Path) -> None:
    parts = [b"%d," % number for number in range(3 * os.sysconf("SC_IOV_MAX"))]
    fd = disk.create(tmp_path / "file")
    disk.write_parts(fd, parts, 0)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
