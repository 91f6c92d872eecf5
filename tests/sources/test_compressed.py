"""Compressed files: the same records as plain ones; what is cut, damaged or a bomb is one bad record with its place."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import FileFailure, Reading, format_named, layout_of
from millstream.sources.decompress import compression_of, decompressed, zstd_frames
from sources.samples import PACKERS, judge, see, write

PACKED = [ending for ending in PACKERS if ending]
LINES = b"".join(b'{"text": "line number %d"}\n' % number for number in range(20_000))


def unpack(raw: bytes, cuts: int = 7, limit: int = 1000) -> bytes:
    blocks = (raw[at : at + cuts] for at in range(0, len(raw), cuts))
    return b"".join(decompressed(blocks, compression_of(raw) or "", limit, 1 << 40))


@given(st.lists(st.binary(max_size=300), min_size=1), st.sampled_from(PACKED), st.integers(1, 50))
def test_members_and_frames_one_after_another_are_one_stream_however_it_is_cut(
    pieces: list[bytes], ending: str, cuts: int
) -> None:
    pack = PACKERS[".zst" if ending == ".zstd" else ending]

    assert unpack(b"".join(map(pack, pieces)), cuts) == b"".join(pieces)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(PACKED), st.data())
def test_a_cut_or_changed_file_never_passes_for_a_whole_one(content: bytes, ending: str, data: st.DataObject) -> None:
    raw = PACKERS[".zst" if ending == ".zstd" else ending](content)
    cut = data.draw(st.integers(11, len(raw) - 1))
    seen = b""
    with pytest.raises(FileFailure, match=r"truncated|damaged"):
        for block in decompressed(iter([raw[:cut]]), compression_of(raw) or "", 1000, 1 << 40):
            seen += block
    assert content.startswith(seen)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(PACKED), st.data())
def test_noise_is_a_failure_of_the_file_and_nothing_else(content: bytes, ending: str, data: st.DataObject) -> None:
    raw = bytearray(PACKERS[ending](content))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    kind = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}.get(ending, "zstd")

    with contextlib.suppress(FileFailure):
        assert len(b"".join(decompressed(iter([bytes(raw)]), kind, 1000, 1 << 24))) <= 1 << 24
    zstd_frames(lambda place, count: bytes(raw[place : place + count]), len(raw))


@pytest.mark.parametrize("ending", PACKED)
def test_a_cut_file_keeps_what_came_before_and_says_where_it_ended(ending: str, tmp_path: Path) -> None:
    raw = PACKERS[ending](LINES)
    file = write(tmp_path / ("a.jsonl" + ending), raw[: len(raw) * 2 // 3])

    with pytest.raises(
        SourceError, match=r"truncated: the \w+ data ends in the middle; .* ends at byte [\d,]+"
    ) as caught:
        judge(file, chunk_bytes=1 << 16)
    seen = see(file, chunk_bytes=1 << 16, again=False)

    assert caught.value.hint is not None
    assert seen.reasons == ["truncated"]
    assert seen.texts == [f"line number {number}" for number in range(len(seen.texts))]
    assert ending == ".bz2" or len(seen.texts) > 5000
    (bad,) = seen.bad
    assert bad.row == len(seen.texts)
    assert LINES[bad.start : bad.stop] == (bad.raw or b"")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_file_that_fails_inside_a_record_that_is_too_long_is_reported_for_both(name: str, tmp_path: Path) -> None:
    raw = PACKERS[".gz"](b'text\n"' + random.Random(1).randbytes(2 << 20).hex().encode())

    seen = see(write(tmp_path / (name + ".gz"), raw[: len(raw) // 2]), max_document_bytes=1 << 16, chunk_bytes=1 << 12)

    assert "too long" in seen.reasons
    assert ("truncated" in seen.reasons) == (name == "a.jsonl")


@pytest.mark.parametrize("ending", PACKED)
def test_damage_in_the_middle_is_one_bad_record(ending: str, tmp_path: Path) -> None:
    raw = bytearray(PACKERS[ending](LINES))
    raw[len(raw) // 2 : len(raw) // 2 + 40] = bytes(range(100, 140))

    seen = see(write(tmp_path / ("a.jsonl" + ending), bytes(raw)), chunk_bytes=1 << 16, again=False)

    assert set(seen.reasons) <= {"damaged", "truncated", "not JSON", "not UTF-8", "no text in 'text'"}
    assert {"damaged", "truncated"} & set(seen.reasons)


BOMB = bytes(32 << 20)


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz", ".bz2"])
def test_a_bomb_is_stopped_by_both_limits(ending: str, tmp_path: Path) -> None:
    file = write(tmp_path / ("a.txt" + ending), PACKERS[ending](BOMB))

    limits: dict[str, dict[str, Any]] = {
        "max_expansion=200": {"max_expansion": 200},
        "max_decoded_bytes=9,999": {"max_decoded_bytes": 9999},
    }
    for limit, settings in limits.items():
        with pytest.raises(SourceError, match=rf"a.txt{ending}:1: expands too far: .*{limit}"):
            judge(file, documents="line", **settings)
        assert see(file, **settings).reasons == ["expands too far"]


def test_a_frame_that_lies_about_its_size_is_damaged(tmp_path: Path) -> None:
    frames = [bytearray(zstandard.ZstdCompressor().compress(b"one line\n" * 40)) for _ in range(3)]
    frames[1][5] ^= 1

    seen = see(write(tmp_path / "a.txt.zst", b"".join(frames)), documents="line", chunk_bytes=1)

    assert seen.reasons == ["damaged"]
    assert set(seen.texts) == {"one line"}


def test_the_first_bytes_decide_and_a_broken_promise_is_an_error(tmp_path: Path) -> None:
    packed = write(tmp_path / "a.jsonl", gzip.compress(LINES[:100]))
    plain = write(tmp_path / "b.jsonl.gz", LINES[:100])

    assert see(packed).texts[0] == "line number 0"
    with pytest.raises(SourceError, match=r"b.jsonl.gz:1: damaged: its name says gzip, but it begins with 7b 22"):
        judge(plain)
    assert see(plain).reasons == ["damaged"]


def test_frames_are_chunks_of_their_own_that_workers_decode(tmp_path: Path) -> None:
    pieces = [LINES[at : at + 50_000] for at in range(0, len(LINES), 50_000)]
    raw = b"".join(zstandard.ZstdCompressor().compress(piece) for piece in pieces)
    file, reading = write(tmp_path / "a.jsonl.zst", raw), Reading(chunk_bytes=50_000)
    format = format_named("jsonl")

    chunks = list(format.chunks(file, reading))

    assert len(layout_of(file, reading).frames) == len(chunks) == len(pieces)
    assert all(chunk.data is None for chunk in chunks)
    blocks = [format.read(chunk, file, reading).block for chunk in reversed(chunks)]
    texts = [record.text for block in reversed(blocks) for record in block]
    assert texts == [f"line number {number}" for number in range(20_000)]


def test_skippable_frames_and_frames_without_a_size_are_read(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    without = zstandard.ZstdCompressor(write_content_size=False).compress(b"two\n")
    raw = skippable + PACKERS[".zst"](b"one\n") + skippable + without + PACKERS[".zst"](b"three\n")

    for chunk_bytes in (1, 3, 100):
        seen = see(write(tmp_path / "a.txt.zst", raw), documents="line", chunk_bytes=chunk_bytes)

        assert seen.texts == ["one", "two", "three"]


@pytest.mark.parametrize("ending", PACKERS)
def test_an_empty_file_has_no_records(ending: str, tmp_path: Path) -> None:
    for name, raw in itertools.product(("a.txt", "a.jsonl", "a.csv", "a.tar"), (b"", PACKERS[ending](b""))):
        seen = see(write(tmp_path / (name + ending), raw), documents="line")

        assert (seen.records, seen.bad) == ([], [])


@pytest.mark.parametrize("ending", PACKERS)
def test_records_can_be_had_again_by_their_origin(ending: str, tmp_path: Path) -> None:
    file, reading = write(tmp_path / ("a.jsonl" + ending), PACKERS[ending](LINES)), Reading()
    start = LINES.index(b'{"text": "line number 12345"}')

    assert format_named("jsonl").raw(file, reading, 12345, start, start + 29) == b'{"text": "line number 12345"}'
