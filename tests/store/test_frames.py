from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import Frame, hash_blocks, open_body, xxh64
from millstream.store.frames import parse_frame, read_frame


@given(st.binary(max_size=300))
def test_our_hash_is_the_hash_of_the_reference_library(data: bytes) -> None:
    assert xxh64(data) == xxhash.xxh64_intdigest(data)


@given(st.binary(max_size=300), st.integers(1, 64))
def test_each_block_has_the_hash_of_its_bytes(data: bytes, block: int) -> None:
    found = hash_blocks(np.frombuffer(data, np.uint8), block)

    wanted = [xxhash.xxh64_intdigest(data[i : i + block]) for i in range(0, len(data), block)]
    assert found.tolist() == wanted


@given(st.integers(1, 1 << 40), st.integers(1, 65536), st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 40))
def test_a_frame_comes_back_as_it_was_written(count: int, bound: int, tag: int, documents: int) -> None:
    frame = Frame("T", count, bound, tag, documents, "uint16")

    assert parse_frame(Path("x.bin"), frame.encode(), 64 + 2 * count, "T") == frame


@given(st.binary(max_size=80), st.integers(0, 1 << 64), st.sampled_from("TDCS"))
def test_any_bytes_are_a_frame_or_an_error(data: bytes, size: int, kind: str) -> None:
    with pytest.raises((StoreError, TypeError)):  # TypeError: a size beyond 64 bits
        parse_frame(Path("x.bin"), data, size, kind)


@given(st.integers(0, 59), st.integers(1, 255))
def test_a_changed_byte_in_a_frame_is_noticed(place: int, flip: int) -> None:
    data = bytearray(Frame("D", 3, 9, 1).encode())
    data[place] ^= flip

    with pytest.raises(StoreError):
        parse_frame(Path("x.idx"), bytes(data), 88, "D")


def test_a_view_of_a_body_is_read_only_and_not_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(Frame("D", 2, 9, 1).encode() + np.array([4, 9], "<u8").tobytes())

    frame, numbers = open_body(path, "D")
    body = numbers.view()

    assert frame.count == 2
    assert body.tolist() == [4, 9]
    assert not body.flags.writeable
    assert not body.flags.owndata


def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "folder.bin").mkdir()

    for name in ("pipe.bin", "folder.bin"):
        with pytest.raises(StoreError, match="not a regular file"):
            read_frame(tmp_path / name, "T")
    with pytest.raises(StoreError, match="missing"):
        read_frame(tmp_path / "nothing.bin", "T")
