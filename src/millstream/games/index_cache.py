"""The index of a tar of games, and a cache of indices on disk: a restart over thousands reads no header again.

An archive is never unpacked, and no name in it is used as a path. A kept index belongs to one file: its name, size,
time and inode. It is checksummed; one that is damaged, or of an archive that changed, is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.codec import MOST_PACKED_BYTES
from millstream.games.descriptors import FileIdentity

_HEAD = struct.Struct("<8s16sII")  # magic number and version, whose index, chunks, bytes of the rest as JSON
_MAGIC = b"MSTARIX\4"
_CHECK_BYTES = 16
_NAMED = re.compile(r"[0-9a-f]{32}\.index")
_KEPT_S = 30 * 24 * 3600
"""How long an unused index is kept: archives are removed, and nothing says to which of them it belonged."""
PLACE = np.dtype([("offset", "<u8"), ("size", "<u4"), ("frames", "<u4"), ("number", "<u4"), ("gzip", "<u4")])
"""A chunk in its file: bytes [offset, offset + size), how many frames they are, its number among the chunks of the
file, and whether it is packed."""


class IndexCache:
    """A folder of indices.

    >>> from tempfile import mkdtemp
    >>> cache, archive = IndexCache(mkdtemp()), FileIdentity(inode=1, size=1024, changed_ns=5)
    >>> cache.put("a.tar", archive, TarIndex(np.zeros(3, PLACE)))
    >>> index = cache.get("a.tar", archive)
    >>> len(index.places), cache.get("a.tar", archive._replace(size=2048))
    (3, None)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._forget_old()

    def get(self, name: str, identity: FileIdentity) -> TarIndex | None:
        """The index of an archive, if it was kept."""
        try:
            kept = self._path(name, identity).read_bytes()
        except OSError:
            return None
        if len(kept) < _HEAD.size + _CHECK_BYTES or _checksum(kept[:-_CHECK_BYTES]) != kept[-_CHECK_BYTES:]:
            return None
        magic, owner, chunks, rest_bytes = _HEAD.unpack_from(kept)
        places_end = _HEAD.size + chunks * PLACE.itemsize
        if (magic, owner) != (_MAGIC, _owner(name, identity)) or len(kept) != places_end + rest_bytes + _CHECK_BYTES:
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(name, identity))
        places = np.frombuffer(kept, PLACE, chunks, _HEAD.size).copy()  # without the rest of the file
        with contextlib.suppress(ValueError, TypeError):  # a file with a right checksum may still hold nonsense
            return TarIndex(places, **json.loads(kept[places_end:-_CHECK_BYTES]))
        return None

    def put(self, name: str, identity: FileIdentity, index: TarIndex) -> None:
        """Keep an index. A disk that is full or may not be written is no reason to stop: it costs time only."""
        rest = {each: getattr(index, each) for each in ("skipped", "problem", "problem_at", "has_end")}
        told = json.dumps(rest).encode()
        head = _HEAD.pack(_MAGIC, _owner(name, identity), len(index.places), len(told))
        kept = head + index.places.tobytes() + told
        path = self._path(name, identity)
        beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(kept + _checksum(kept))
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _forget_old(self) -> None:
        oldest = time.time() - _KEPT_S
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if _NAMED.fullmatch(path.name) and path.stat().st_mtime < oldest:  # others may lie here, too
                    path.unlink()

    def _path(self, name: str, identity: FileIdentity) -> Path:
        """One per name and inode, so that the index of a file that grew takes the place of the old one."""
        return self._folder / f"{_checksum(os.fsencode(f'{identity.inode}/{name}')).hex()}.index"


def _owner(name: str, identity: FileIdentity) -> bytes:
    return _checksum(os.fsencode(repr((name, *identity))))


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_CHECK_BYTES).digest()


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The games of an archive.

    Args:
        places: Where they lie (`PLACE`); the frames are not counted yet.
        skipped: How many other members there are, by reason.
        problem: "truncated" or "damaged" where the archive could not be read to its end; its `places` are whole.
        problem_at: The byte from which on it could not be read.
        has_end: Whether it has the empty blocks that end an archive. A writer may leave them out, or still be writing.
    """

    places: npt.NDArray[np.void]
    skipped: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    problem_at: int = 0
    has_end: bool = True


def index_tar(descriptor: int) -> tuple[TarIndex, npt.NDArray[np.uint32]]:
    """Read the headers of an archive (v7, ustar, pax, GNU): its games, and the bytes that each says it has unpacked.

    Others may read from the descriptor at the same time.
    """
    offsets, sizes, inflated, gzip, skipped, problem, problem_at, has_end = _core.tar_index(
        descriptor, MOST_PACKED_BYTES
    )
    places = np.zeros(len(offsets), PLACE)
    places["offset"], places["size"], places["gzip"] = offsets, sizes, gzip
    places["number"] = np.arange(len(offsets))
    return TarIndex(places, skipped, problem, problem_at, has_end), inflated
