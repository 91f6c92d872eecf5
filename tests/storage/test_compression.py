"""Zstandard: what was packed comes back, whatever the pieces; what was cut or damaged is refused."""

from __future__ import annotations

import contextlib
import io
import itertools

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import CompressionError
from millstream.storage import ZstdReader, compress, decompress
from mutations import mutated

HEADER = 4 + 1 + 2  # bytes of a frame: magic number, descriptor and the size of 256 bytes and more


@given(st.lists(st.binary(max_size=3000) | st.integers(0, 400_000).map(bytes), max_size=4), st.integers(100, 200_000))
def test_a_file_of_frames_reads_as_what_is_in_them(contents: list[bytes], piece: int) -> None:
    packed = b"".join(compress(content) for content in contents)
    reader = ZstdReader(io.BytesIO(packed))

    pieces = list(iter(lambda: reader.read(piece), b""))

    assert b"".join(pieces) == b"".join(contents)
    assert zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read() == b"".join(contents)


@pytest.mark.parametrize("alphabet", [50_000, 5])
def test_a_changed_byte_of_our_frame_is_refused_or_says_nothing(alphabet: int) -> None:
    """A compressed block has bits that say nothing; the frame's header and what is stored as it is have none."""
    content = np.random.default_rng(0).integers(0, alphabet, 1000, np.uint16)
    frame = compress(content)
    assert decompress(frame, limit=2000) == content.tobytes()

    harmless = []
    for place, flip in itertools.product(range(len(frame)), (1 << bit for bit in range(8))):
        damaged = bytearray(frame)
        damaged[place] ^= flip
        with contextlib.suppress(CompressionError):
            assert decompress(bytes(damaged), limit=2000) == content.tobytes()
            harmless.append(place)

    assert not harmless or (alphabet == 5 and min(harmless) > HEADER)


@given(st.integers(0, 5000), st.data())
def test_a_cut_file_is_refused_at_every_byte(size: int, data: st.DataObject) -> None:
    packed = compress(np.random.default_rng(size).integers(0, 9, size, np.uint8))
    cut = data.draw(st.integers(1, len(packed) - 1))

    with pytest.raises(CompressionError):
        ZstdReader(io.BytesIO(packed[:cut])).readall()
    with pytest.raises(CompressionError):
        decompress(packed[:cut], limit=size)


def test_a_frame_that_would_be_too_large_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(CompressionError, match="1000000 bytes; 10 are the most"):
        decompress(compress(bytes(1_000_000)), limit=10)


FRAMES = [
    pack.compress(content)
    for pack in (zstandard.ZstdCompressor(write_checksum=True), zstandard.ZstdCompressor(19, write_content_size=False))
    for content in (b"", b"mill" * 1000, bytes(range(256)) * 9)
]


@given(st.binary(max_size=200) | st.builds(mutated, st.sampled_from(FRAMES), st.integers(0, 2**63)))
@examples(300)
def test_arbitrary_bytes_are_refused_or_decoded_to_what_zstd_says(raw: bytes) -> None:
    with contextlib.suppress(CompressionError):
        ours = ZstdReader(io.BytesIO(raw)).readall()
        assert ours == zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    with contextlib.suppress(CompressionError):
        assert decompress(raw, limit=4000) == zstandard.ZstdDecompressor().decompress(raw, allow_extra_data=False)
