"""A packed chunk -> its bytes: whole, and never more of them than a game can have.

Our own `gunzip` unpacks several times as fast as the standard library, if it is told how many bytes come out. The last
four bytes of a gzip file say so, and are not trusted: whenever they do not hold, or anything else is unusual, `zlib`
reads the chunk and has the last word. An output that is dropped before the next one is made costs nothing to allocate,
so no buffer is reused. The checksum in the file is one of the whole game: only who has unpacked all of it once, and
knows by a checksum of the packed bytes (`crc32`) that they are the same, may stop in the middle (`gunzip_front`).
"""

from __future__ import annotations

import zlib

from millstream._core import gunzip
from millstream.errors import RecordError

MOST_FRAMES = 2048
"""Frames that a chunk may have: several times the longest game. One packs to little, and takes 25 MB in memory."""
MOST_BYTES = MOST_FRAMES * 8396
MOST_PACKED_BYTES = MOST_BYTES + MOST_BYTES // 64
"""Of a chunk in its file: what cannot be packed grows a little by it. Nobody reads more to find that out."""
MOST_MEMBERS = 64
"""Members of a gzip file; games have one, and each costs a copy of what follows it."""

_GZIP = 31  # what zlib calls a gzip member with any window
_TOO_LONG = "no game is that long: leave the file out"
_DAMAGED = "copy the file again, or leave it out"


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
