"""The bytes of a chunk -> its frames in columns, of whatever version; `chess/frames.h` says what is filled in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import RecordError
from millstream.games.block import FrameBlock
from millstream.games.frame import ORIGIN
from millstream.games.inflate import MOST_BYTES, inflate

Plies = npt.NDArray[np.uint32]

_HINTS = {
    "empty": "a chunk has at least one frame; leave the file out",
    "truncated": "the file was not written to its end; leave it out",
    "unknown version": "versions 3 to 7 are read; convert others, or leave them out",
    "unknown input format": "input formats are 1 to 5, 132 and 133",
}


def read_frames(raw: bytes | bytearray, plies: Plies | None = None, *, behind: int = 0, where: str = "") -> FrameBlock:
    """The frames of an unpacked chunk, or those at `plies`; a chunk that cannot be used is a `RecordError`.

    Where `raw` is only the front of a chunk, so many frames are `behind` it: old ones do not say how many are left.

    >>> read_frames(b"")
    Traceback (most recent call last):
    millstream.errors.RecordError: empty: there is no frame
      hint: a chunk has at least one frame; leave the file out
    """
    try:
        columns = _core.read_frames(np.frombuffer(raw, np.uint8), plies, behind)
    except _core.FrameError as error:
        reason, _, found = str(error).partition(": ")
        raise RecordError(reason, found, _HINTS.get(reason), where) from None
    origins = np.zeros(len(columns[1]), ORIGIN)
    origins["ply"] = np.arange(len(origins)) if plies is None else plies
    return FrameBlock.of_columns(columns, origins)


def read_chunk(packed: bytes, plies: Plies | None = None, *, limit: int = MOST_BYTES, where: str = "") -> FrameBlock:
    """The same of a gzip file, which may have at most `limit` bytes when unpacked."""
    return read_frames(inflate(packed, limit=limit, where=where), plies, where=where)
