"""Zstandard, natively and without the GIL: whole frames, and streams of frames.

The library is that of the machine, or the one inside Python's own module (3.14) or its backport. It is looked for when
it is first needed; where there is none, everything works but what is packed with it.
"""

from __future__ import annotations

import importlib.util
import io
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import CompressionError, MissingExtra

ZSTD_LEVEL = 1
"""The level used unless told otherwise: most of the ratio for the least time."""

_PIECE = 1 << 17
_DAMAGED = "it was damaged, or is no zstd file: copy it again"


def has_zstd() -> bool:
    """Whether there is a zstd, here or inside Python.

    >>> has_zstd()
    True
    """
    if _core.has_zstd():
        return True
    _core.look_for_zstd(modules_with_zstd())
    return _core.has_zstd()


def need_zstd() -> None:
    """Insist on a zstd; called by everything that packs or unpacks."""
    if not has_zstd():
        raise MissingExtra.of("backports.zstd", "zstd", or_else="install libzstd of the system")


def modules_with_zstd() -> list[str]:
    """The files of Python modules that have a zstd in them; none of them is imported."""
    own = importlib.util.find_spec("_zstd")
    found = [] if own is None or own.origin is None else [own.origin]
    try:
        backport = importlib.util.find_spec("backports.zstd")
    except ModuleNotFoundError:  # there are no backports at all
        return found
    folders = [] if backport is None else backport.submodule_search_locations or []
    files = (Path(folder) / f"_zstd{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES)
    return found + [str(file) for file in files if file.exists()]


def compress(data: bytes | NDArray[Any], level: int = ZSTD_LEVEL) -> bytes:
    """Pack bytes, or the bytes of an array, into one checksummed frame.

    >>> decompress(compress(b"mill" * 1000), limit=4000) == b"mill" * 1000
    True
    """
    need_zstd()
    return _core.zstd_compress(_as_bytes(data), level)


def decompress(frame: bytes, *, limit: int) -> bytes:
    """Unpack one frame of ours; more than `limit` bytes, damage and truncation are refused.

    >>> decompress(compress(b"mill")[:-1], limit=4)
    Traceback (most recent call last):
    millstream.errors.CompressionError: zstd: the frame is cut, or something follows it
      hint: it was damaged, or is no zstd file: copy it again
    """
    need_zstd()
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
        need_zstd()
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
