"""Zstandard, natively and without the GIL: whole frames, and streams of frames."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import CompressionError

LEVEL = 1
"""The level used unless told otherwise: most of the ratio for the least time."""

_PIECE = 1 << 17
_DAMAGED = "it was damaged, or is no zstd file: copy it again"


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
      hint: it was damaged, or is no zstd file: copy it again
    """
    try:
        size = _core.zstd_content_size(_as_bytes(frame))
        if size is None or size > limit:
            raise CompressionError(
                f"zstd: a frame of {size or 'unknown'} bytes; {limit} are the most here",
                hint="it was not written by this library",
            )
        out = np.empty(size, np.uint8)
        _core.zstd_decompress(_as_bytes(frame), out)
    except _core.ZstdError as error:
        raise CompressionError(f"zstd: {error}", hint=_DAMAGED) from None
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
                raise CompressionError(f"zstd: {error}", hint=_DAMAGED) from None
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


def _as_bytes(data: bytes | NDArray[Any]) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)
