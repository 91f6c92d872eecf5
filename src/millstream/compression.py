"""Zstandard, natively and without the GIL: whole frames, streams of frames, and where the frames of a file lie."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import CompressionError

LEVEL = 1
"""The level used unless told otherwise: most of the ratio for the least time."""

MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # bytes 1 to 3; byte 0 is 0x50 to 0x5f
_PIECE = 1 << 17


def compress(data: bytes | NDArray[Any], level: int = LEVEL) -> bytes:
    """Pack bytes, or the bytes of an array, into one checksummed frame.

    >>> decompress(compress(b"mill" * 1000), limit=4000) == b"mill" * 1000
    True
    """
    return _core.zstd_compress(_as_bytes(data), level)


def decompress(frame: bytes, *, limit: int) -> bytes:
    """Unpack one frame of ours; more than `limit` bytes, damage and truncation are refused.

    >>> decompress(compress(b"mill")[:-1], limit=4)
    Traceback (most recent call last):
    millstream.errors.CompressionError: zstd: Restored data doesn't match checksum
    """
    try:
        size = _core.zstd_content_size(_as_bytes(frame))
        if size is None or size > limit:
            raise CompressionError(f"zstd: a frame of {size or 'unknown'} bytes; {limit} are the most here")
        out = np.empty(size, np.uint8)
        _core.zstd_decompress(_as_bytes(frame), out)
    except _core.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from None
    return out.tobytes()


class ZstdReader(io.RawIOBase):
    """A file of zstd frames as the bytes in them. Wrap it in `io.BufferedReader`.

    >>> packed = io.BytesIO(compress(b"two ") + compress(b"frames"))
    >>> ZstdReader(packed).readall()
    b'two frames'
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._stream = _core.ZstdStream()
        self._held: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._ended = False

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Decode into `buffer`; 0 at the end of the last frame."""
        out = np.frombuffer(buffer, np.uint8)
        while len(out):
            try:
                consumed, produced = self._stream.step(self._held, out)
            except _core.ZstdError as error:
                raise CompressionError(f"zstd: {error}") from None
            self._held = self._held[consumed:]
            if produced:
                return int(produced)
            if self._ended:
                break
            if not len(self._held):
                self._held = np.frombuffer(self._source.read(_PIECE), np.uint8)
                self._ended = not len(self._held)
        if len(out) and not self._stream.between_frames:
            raise CompressionError("zstd: the file ends inside a frame", hint="it was cut: copy it again")
        return 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: bytes [start, stop) of a file, and the size of what is in it, if the frame says."""

    start: int
    stop: int
    content_bytes: int | None


def frames(file: BinaryIO) -> Iterator[Frame]:
    """Find the frames of a seekable file by their headers, without decoding anything; skippable ones are passed over.

    >>> [frame.content_bytes for frame in frames(io.BytesIO(compress(b"two ") + compress(b"frames")))]
    [4, 6]
    """
    place = file.seek(0, os.SEEK_SET)
    while head := file.read(18):
        start = place
        if head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
            place += 8 + int.from_bytes(head[4:8], "little")
        elif head[:4] == MAGIC and len(head) > 5:
            header_bytes, content_bytes, checksum = _frame_header(head)
            place = _end_of_blocks(file, start + header_bytes) + checksum
            yield Frame(start, place, content_bytes)
        else:
            raise CompressionError(f"zstd: no frame begins at byte {start}", hint="is this a zstd file?")
        file.seek(place)


def _frame_header(head: bytes) -> tuple[int, int | None, int]:
    """The bytes of the header, the size of the content, and the bytes of the checksum (RFC 8878, 3.1.1.1)."""
    descriptor = head[4]
    single = descriptor >> 5 & 1
    place = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    width = (single, 2, 4, 8)[descriptor >> 6]
    size = int.from_bytes(head[place : place + width], "little") + (256 if width == 2 else 0)
    return place + width, size if width else None, 4 * (descriptor >> 2 & 1)


def _end_of_blocks(file: BinaryIO, place: int) -> int:
    """Walk over the blocks of a frame by their headers (RFC 8878, 3.1.1.2)."""
    while True:
        file.seek(place)
        header = int.from_bytes(file.read(3).ljust(3, b"\x00"), "little")
        kind, size = header >> 1 & 3, header >> 3
        if kind == 3:
            raise CompressionError(f"zstd: byte {place} begins a block of no known kind")
        place += 3 + (1 if kind == 1 else size)
        if header & 1:
            return place
        if header == 0:
            raise CompressionError("zstd: the file ends inside a frame", hint="it was cut: copy it again")


def _as_bytes(data: bytes | NDArray[Any]) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)
