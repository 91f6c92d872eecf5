"""What is read from a chunk is what the format says, bit by bit; anything else has a reason that can be counted."""

from __future__ import annotations

import gzip
import random
import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games import reference
from games.chunks import KINDS, LAYOUTS, Frames, play, zipped
from millstream._core import crc32, gunzip, gunzip_front
from millstream.errors import RecordError
from millstream.games import FRAME, FrameBlock, InputFormat, read_chunk
from millstream.games import codec as inflating
from millstream.games.codec import inflate, read_frames

_NAMES = {
    **{f"castling_{name}": name for name in ("us_ooo", "us_oo", "them_ooo", "them_oo")},
    "side_to_move_or_enpassant": "side",
    "rule50_count": "rule50",
    "invariance_info": "info",
    "dummy": "result",
}


REASONS = ("empty", "truncated", "unknown version", "unknown input format", "mixed versions", "bad result")


@cache
def played(version: int, layout: InputFormat, plies: int) -> Frames:
    return play(random.Random(version), version, layout, plies)[0]


def game(version: int = 6, layout: InputFormat = InputFormat.CLASSICAL, plies: int = 12) -> Frames:
    return played(version, layout, plies).copy()


def assert_same(block: FrameBlock, wanted: list[reference.Frame]) -> None:
    policy = block.policy()
    assert len(block) == len(wanted)
    for row, frame in enumerate(wanted):
        assert policy[row].tobytes() == frame["policy"].tobytes()
        assert block.fields["planes"][row].tobytes() == frame["planes"]
        for name in FRAME.names or ():
            if name not in ("planes", "_padding"):
                found, named = block.fields[name][row], frame[_NAMES.get(name, name)]
                assert np.array_equal(found, np.asarray(named, found.dtype), equal_nan=True), name


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_every_field_of_every_version_is_what_the_format_says(version: int, layout: InputFormat) -> None:
    frames = game(version, layout, plies=40)
    if version == 7:
        frames["reserved"] = np.arange(len(frames) * 8).reshape(-1, 8)
    raw = frames.tobytes()
    block = read_chunk(gzip.compress(raw))
    assert_same(block, reference.decode(raw))
    assert block.origins["ply"].tolist() == list(range(len(frames)))


@given(st.sampled_from(sorted(LAYOUTS)), st.lists(st.integers(0, 11), max_size=20))
def test_chosen_plies_are_those_of_the_whole_game(version: int, plies: list[int]) -> None:
    raw = game(version).tobytes()
    whole, chosen = read_frames(raw), read_frames(raw, np.array(plies, np.uint32))
    assert chosen.fields.tobytes() == whole.fields[plies].tobytes()
    assert chosen.policy().tobytes() == whole.policy()[plies].tobytes()
    assert chosen.origins["ply"].tolist() == plies


def test_entries_are_kept_unless_they_are_exactly_minus_one() -> None:
    frames = game(plies=3)
    kept = np.array([np.nan, -0.0, -1.0000001, np.inf, -np.inf, 1e-45], np.float32)
    frames["probabilities"][0, -6:] = kept
    frames["probabilities"][1] = 0.5
    frames["probabilities"][2] = -1
    block = read_frames(frames.tobytes())
    assert block.policy().tobytes() == frames["probabilities"].tobytes()
    assert np.diff(block.ends).tolist() == [1858, 0]


def reason_of(raw: bytes, plies: list[int] | None = None) -> str:
    with pytest.raises(RecordError) as caught:
        read_frames(raw, None if plies is None else np.array(plies, np.uint32), where="a.tar:3")
    assert caught.value.where == "a.tar:3"
    return caught.value.reason


def test_what_cannot_be_read_has_a_reason_that_can_be_counted() -> None:
    raw = game().tobytes()
    assert reason_of(b"") == "empty"
    assert reason_of(raw[:3]) == reason_of(raw[:-1]) == reason_of(raw + b"\0") == reason_of(raw, [12]) == "truncated"
    for version in (0, 2, 8, 70, 170):
        assert reason_of(version.to_bytes(4, "little") + raw[4:]) == "unknown version"
    for layout in (0, 6, 131, 134):
        assert reason_of(raw[:4] + layout.to_bytes(4, "little") + raw[8:]) == "unknown input format"
    mixed = game()
    mixed["version"][5] = 7
    assert reason_of(mixed.tobytes()) == "mixed versions"
    for version in (3, 4, 5):
        bad = game(version)
        bad["result"][2] = 2
        assert reason_of(bad.tobytes()) == "bad result"


def test_a_version_of_a_fork_is_named() -> None:
    with pytest.raises(RecordError, match="70, version 7 as a fork extends it"):
        read_frames((70).to_bytes(4, "little") + bytes(8396 + 2 * 7432 - 4))


@given(st.data())
def test_damaged_frames_are_frames_or_have_a_reason(data: st.DataObject) -> None:
    raw = bytearray(game(data.draw(st.sampled_from(sorted(LAYOUTS))), plies=3).tobytes())
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[place] = data.draw(st.integers(0, 255))
    stop = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    try:
        block = read_frames(bytes(raw[:stop]))
    except RecordError as error:
        assert error.reason in (
            "empty",
            "truncated",
            "unknown version",
            "unknown input format",
            "mixed versions",
            "bad result",
        )
    else:
        assert_same(block, reference.decode(bytes(raw[:stop])))


@given(st.binary(max_size=300))
def test_noise_is_no_chunk(noise: bytes) -> None:
    for read in (read_frames, read_chunk):
        with pytest.raises(RecordError):
            read(noise)


@pytest.fixture(params=["ours", "zlib"])
def either_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zlib":
        monkeypatch.setattr(inflating, "gunzip", lambda packed, size: None)


@pytest.mark.usefixtures("either_library")
def test_members_of_a_gzip_file_are_one_chunk_with_zeros_behind_it_or_not() -> None:
    frames = game()
    raw, half = frames.tobytes(), len(frames) // 2
    assert inflate(zipped(frames)) == inflate(zipped(frames) + bytes(512)) == raw
    assert inflate(zipped(frames[:half]) + zipped(frames[half:])) == raw
    assert inflate(zipped(frames) * 2) == raw * 2
    assert inflate(gzip.compress(b"") + zipped(frames)) == raw
    assert inflate(gzip.compress(raw, 0)) == inflate(gzip.compress(raw, 9)) == raw


@pytest.mark.usefixtures("either_library")
def test_sizes_are_not_believed() -> None:
    frames = game()
    packed, size = zipped(frames), frames.nbytes
    for wrong in (0, 1, size - 1, size + 1, 2**31, 2**32 - 1):
        with pytest.raises(RecordError, match="damaged gzip"):
            inflate(packed[:-4] + wrong.to_bytes(4, "little"))
    assert inflate(packed, limit=size) == frames.tobytes()
    with pytest.raises(RecordError, match="too long"):
        inflate(packed, limit=size - 1)
    with pytest.raises(RecordError, match="too long"):
        inflate(zipped(frames) * 2, limit=2 * size - 1)


@pytest.mark.usefixtures("either_library")
def test_damage_is_noticed() -> None:
    packed = zipped(game())
    for cut in (b"", packed[:5], packed[:-1], packed[: len(packed) // 2], packed + packed[:99]):
        with pytest.raises(RecordError, match=f"truncated: it is cut after {len(cut)} bytes"):
            inflate(cut)
    for bad in (packed + b"garbage", b"x" + packed, packed * 65):
        with pytest.raises(RecordError, match="damaged gzip"):
            inflate(bad)
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 1
    with pytest.raises(RecordError, match="damaged gzip"):
        inflate(bytes(flipped))


@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_what_is_unpacked_is_never_more_than_the_limit(raw: bytes, limit: int) -> None:
    packed = zlib.compress(raw, wbits=31)
    if len(raw) <= limit:
        assert inflate(packed, limit=limit) == raw
    else:
        with pytest.raises(RecordError, match="too long"):
            inflate(packed, limit=limit)


texts = st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 300)), max_size=30).map(
    lambda runs: b"".join(run * times for run, times in runs)
)


@given(
    texts, st.integers(0, 9), st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE])
)
def test_we_unpack_whatever_zlib_packs(raw: bytes, level: int, strategy: int) -> None:
    packer = zlib.compressobj(level, wbits=31, strategy=strategy)
    packed = packer.compress(raw) + packer.flush()
    assert gunzip(packed, len(raw)) == gunzip(packed + bytes(9), len(raw)) == raw
    assert gunzip(packed, len(raw) + 1) is None
    assert not raw or gunzip(packed, len(raw) - 1) is None


@given(texts, st.sampled_from([0, 1, 6, 9]), st.integers(0, 4000))
def test_the_front_of_a_file_is_what_the_whole_begins_with(raw: bytes, level: int, size: int) -> None:
    packed = zlib.compress(raw, level, wbits=31)
    found = gunzip_front(packed, size, crc32(packed))
    assert found == (raw[:size] if size <= len(raw) else None)
    assert crc32(packed) == zlib.crc32(packed)
    assert gunzip_front(packed, 0, crc32(packed) ^ 1) is None


@given(
    texts, st.integers(1, 9), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=3), st.data()
)
def test_what_is_damaged_is_refused_or_is_what_zlib_finds(
    raw: bytes, level: int, flips: list[tuple[int, int]], data: st.DataObject
) -> None:
    sound = zlib.compress(raw, level, wbits=31)
    packed = bytearray(sound)
    for place, bits in flips:
        packed[place % len(packed)] ^= bits
    cut = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    for damaged in (bytes(packed), cut, cut + b"\xff"):
        found = gunzip(damaged, len(raw))
        assert found is None or found == zlib.decompressobj(31).decompress(damaged)
        assert damaged == sound or gunzip_front(damaged, len(raw) // 2, crc32(sound)) is None


def test_a_header_may_name_the_file() -> None:
    raw = b"a game" * 100
    body = zlib.compress(raw, wbits=31)[10:]
    for flags, more in ((8, b"name\0"), (16, b"said\0"), (24, b"name\0said\0"), (4, b"\3\0abc"), (12, b"\0\0name\0")):
        assert gunzip(bytes([31, 139, 8, flags, 0, 0, 0, 0, 0, 3]) + more + body, len(raw)) == raw
    for flags in (2, 32, 64, 128):
        assert gunzip(bytes([31, 139, 8, flags, 0, 0, 0, 0, 0, 3]) + body, len(raw)) is None
