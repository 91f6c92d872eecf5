"""The bytes of a chunk <-> frames in columns, packed or not: any version is read, version 7 is written.

`chess/frames.h` says how missing fields are filled in. Our own `gunzip` is several times as fast as the standard
library, if it is told how many bytes come out. The last four bytes of a gzip file say so, and are not trusted: where
they do not hold, or anything else is unusual, `zlib` reads the chunk and decides. The checksum in the file is one of
the whole game. Unpacking may stop in the middle (`gunzip_front`) only if the whole was checked once, and a checksum of
the packed bytes (`crc32`) shows that they are the same. Freshly allocated outputs are cheap, so no buffer is reused.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream._core import gunzip
from millstream.errors import RecordError
from millstream.games.block import FrameBlock
from millstream.games.frame import FRAME, ORIGIN, POLICY_SIZE

Plies = npt.NDArray[np.uint32]

_HINTS = {
    "empty": "a chunk has at least one frame; leave the file out",
    "truncated": "the file was not written to its end; leave it out",
    "unknown version": "versions 3 to 7 are read; convert others, or leave them out",
    "unknown input format": "input formats are 1 to 5, 132 and 133",
}
_HEAD, _PADDING = 8, 4
"""Bytes of a frame before its policy, and those at its end that no file has."""
_VERSION = 7
MOST_FRAMES = 2048
"""Frames that a chunk may have: several times the longest game. One packs to little, and takes 25 MB in memory."""
MOST_BYTES = MOST_FRAMES * 8396
MOST_PACKED_BYTES = MOST_BYTES + MOST_BYTES // 64
"""Of a chunk in its file: what cannot be packed grows a little by it. More is not read to find that out."""
MOST_MEMBERS = 64
"""Members of a gzip file; games have one, and each costs a copy of what follows it."""

_GZIP = 31  # what zlib calls a gzip member with any window
_TOO_LONG = "no game is that long: leave the file out"
_DAMAGED = "copy the file again, or leave it out"


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


def write_frames(block: FrameBlock) -> bytes:
    """A chunk that has these frames, not packed; whatever version they were, they have all that version 7 knows.

    >>> len(write_frames(FrameBlock.empty()))
    0
    """
    fields = block.fields.copy()
    fields["version"] = _VERSION
    rows = np.ascontiguousarray(fields).view(np.uint8).reshape(len(block), FRAME.itemsize)
    policy = block.policy().view(np.uint8).reshape(len(block), POLICY_SIZE * 4)
    return np.concatenate([rows[:, :_HEAD], policy, rows[:, _HEAD:-_PADDING]], axis=1).tobytes()


def said_size(packed: bytes) -> int:
    """How many bytes a gzip file says that it has when unpacked, in its last four bytes."""
    return int.from_bytes(packed[-4:], "little")


def inflate(packed: bytes, *, limit: int = MOST_BYTES, where: str = "") -> bytes | bytearray:
    """Unpack a gzip file of one or several members; zeros behind its end are padding, anything else is damage.

    >>> import gzip
    >>> inflate(gzip.compress(b"a game"))
    b'a game'
    >>> inflate(gzip.compress(bytes(1000)), limit=999)
    Traceback (most recent call last):
    millstream.errors.RecordError: too long: more than 999 bytes when unpacked...
    """
    size = said_size(packed)
    quickly = gunzip(packed, size) if 0 < size <= limit else None
    return _inflate_surely(packed, limit, where) if quickly is None else quickly


def _inflate_surely(packed: bytes, limit: int, where: str) -> bytearray:
    found, rest = bytearray(), packed
    for _ in range(MOST_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        try:
            found += member.decompress(rest, limit + 1 - len(found))
        except zlib.error as error:
            raise RecordError("damaged gzip", str(error), hint=_DAMAGED, where=where) from None
        if len(found) > limit:
            raise RecordError("too long", f"more than {limit} bytes when unpacked", hint=_TOO_LONG, where=where)
        if not member.eof:
            raise RecordError("truncated", f"it is cut after {len(packed)} bytes", hint=_DAMAGED, where=where)
        rest = member.unused_data
        if not rest.strip(b"\0"):
            return found
    raise RecordError("damaged gzip", f"more than {MOST_MEMBERS} members", hint=_DAMAGED, where=where)
