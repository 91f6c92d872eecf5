"""A file of self-play games -> its chunks, each read by its number: a `.tar` of them, one `.gz`, or one unpacked.

A chunk is one game. How many frames each has is known before any of them is read: gzip says how long a chunk is, and
nearly always the chunks of a file are of one version, that of the first that can be read. A length that does not fit it
has its chunk looked at; one that no game can have is not believed. `read` checks both for the chunk it reads. A chunk
that was whole and sound once is later unpacked only as far as its positions are wanted, as long as its packed bytes are
the same.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from millstream._core import crc32, gunzip_front
from millstream.errors import RecordError, SourceError
from millstream.games.block import FrameBlock
from millstream.games.codec import MOST_FRAMES, MOST_PACKED_BYTES, inflate, read_frames, said_size
from millstream.games.descriptors import Descriptors, FileIdentity
from millstream.games.index_cache import PLACE, IndexCache, TarIndex, index_tar

FRAME_BYTES = {3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}
"""Bytes of a frame in a file, by its version."""

_ONE_MEMBER = "each chunk is one member of gzip, which says at its end how long it is"
_RAW = ("", ".bin", ".raw")
_CUT = "less than a frame"
_COPY_AGAIN = "copy the file again, or leave it out"
_EXHAUSTED = {
    errno.EMFILE: "this process has too many files open: close some, or allow more (ulimit -n)",
    errno.ENFILE: "all processes together have too many files open: close some, or allow more (fs.file-max)",
    errno.ENOMEM: "there is no memory left: shrink the reservoir, the window or caches",
}
"""What a machine lacks, and what helps; an error of a disk (EIO) is one of the file that lies there."""
_STAMPED = 512
"""Bytes at the end of a chunk that a file is told from others by."""


OUT_OF_REACH = ("gone", "changed", "unreadable")
"""Reasons that lie in what became of a file, and not in what was in it."""


class ChunkSource:
    """The chunks of one file. Any number of threads may read from it; `open_chunk_source` makes one.

    Args:
        path: The file.
        places: Where its chunks lie (`PLACE`).
        identity: Which file it was when it was indexed; another one in its place is an error.
        descriptors: Lends it open files.
        stamp: A hash that tells its content from that of other files, also where it is a copy.
    """

    __slots__ = ("_descriptors", "_identity", "_places", "_sums", "path", "problem", "skipped", "stamp")

    def __init__(
        self,
        path: str,
        places: npt.NDArray[np.void],
        identity: FileIdentity,
        descriptors: Descriptors,
        *,
        stamp: str = "",
    ) -> None:
        self.path, self.stamp = path, stamp
        self.skipped: Mapping[str, int] = {}
        """How many members of an archive are no games, by reason."""
        self.problem = ""
        """Why chunks at the end of the file could not be found, if so."""
        places.flags.writeable = False
        self._places, self._identity, self._descriptors = places, identity, descriptors
        self._sums = np.zeros(len(places), np.uint32)
        """Checksums of the packed bytes of chunks that were found sound; 0 of others."""

    @property
    def name(self) -> str:
        """What files are sorted by: the name without the folders."""
        return os.path.basename(self.path)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def changed_ns(self) -> int:
        """When the file was last written."""
        return self._identity.changed_ns

    @property
    def frames(self) -> npt.NDArray[np.uint32]:
        """How many frames each chunk has; 0 for one that cannot be read, by its size."""
        frames: npt.NDArray[np.uint32] = self._places["frames"]
        return frames

    @property
    def nbytes(self) -> int:
        """Bytes of the index: 28 per chunk."""
        return self._places.nbytes + self._sums.nbytes

    @property
    def numbers(self) -> npt.NDArray[np.uint32]:
        """The place in the file of each chunk: its own index, unless these are some chunks of a file."""
        numbers: npt.NDArray[np.uint32] = self._places["number"]
        return numbers

    def select(self, indices: npt.ArrayLike) -> ChunkSource:
        """Some of the chunks, as a source of their own."""
        places = self._places[np.asarray(indices, np.intp)]
        source = ChunkSource(self.path, places, self._identity, self._descriptors, stamp=self.stamp)
        source.skipped, source.problem = self.skipped, self.problem
        return source

    def read(self, index: int, plies: npt.NDArray[np.uint32] | None = None) -> FrameBlock:
        """The frames of a chunk, or those at `plies`; a chunk that cannot be used is a `RecordError`."""
        try:
            packed = self._packed(index)
            front = None if plies is None else self._front(index, packed, plies)
            return self._whole(index, packed, plies) if front is None else front
        except (RecordError, OSError) as error:
            raise _placed(error, self._where(index)) from None

    def raw(self, index: int) -> bytes | bytearray:
        """The bytes of a chunk as they were before they were packed."""
        with _told(self._where(index)):
            return self._unpacked(index, self._packed(index))

    def _packed(self, index: int) -> bytes:
        offset, size, _, _, _ = self._places[index].item()
        packed = self._descriptors.read(self.path, self._identity, size, offset)
        if len(packed) < size:
            raise RecordError("truncated", f"{len(packed):,} of {size:,} bytes are there", _COPY_AGAIN)
        return packed

    def _unpacked(self, index: int, packed: bytes) -> bytes | bytearray:
        return inflate(packed) if self._places["gzip"][index] else packed

    def _whole(self, index: int, packed: bytes, plies: npt.NDArray[np.uint32] | None) -> FrameBlock:
        raw = self._unpacked(index, packed)
        block = read_frames(raw, plies)
        frames = len(raw) // FRAME_BYTES[int.from_bytes(raw[:4], "little")]
        if frames != (expected := int(self._places["frames"][index])):
            told = f"there are {frames} frames; {expected} were expected of its size"
            raise RecordError("frame count", told, _ONE_MEMBER)
        if plies is not None and raw is not packed and len(raw) == said_size(packed):
            self._sums[index] = crc32(packed)
        return block

    def _front(self, index: int, packed: bytes, plies: npt.NDArray[np.uint32]) -> FrameBlock | None:
        """The frames at `plies` of a chunk that was whole before, without what lies behind them."""
        frames, known = int(self._places["frames"][index]), int(self._sums[index])
        wanted = int(plies.max(initial=0)) + 1
        if not known or wanted > frames:
            return None
        raw = gunzip_front(packed, wanted * (said_size(packed) // frames), known)
        return None if raw is None else read_frames(raw, plies, behind=frames - wanted)

    def close(self) -> None:
        """Close the file, unless a thread still reads from it; a later read opens it again."""
        self._descriptors.forget(self.path, self._identity)

    def _where(self, index: int) -> str:
        return f"{self.path}, chunk {self._places['number'][index]}"


def open_chunk_source(
    path: str | os.PathLike[str], descriptors: Descriptors | None = None, cache: IndexCache | None = None
) -> ChunkSource:
    """Index a file of games; one that holds none is an error that says why.

    Args:
        path: A `.tar` of `.gz` or unpacked games, one `.gz`, or an unpacked game (`.bin`, `.raw`, a number, no suffix).
        descriptors: Lends open files to all sources; without it this one keeps its own file open.
        cache: Where the indices of archives are kept for the next run.
    """
    path = os.fspath(path)
    kind = _kind(path)
    descriptors = Descriptors(most=1) if descriptors is None else descriptors
    with _told(path), open(path, "rb", buffering=0) as file:
        identity = FileIdentity.of(file.fileno())
        index = _indexed(file.fileno(), kind, path, identity, cache)
        if not len(index.places):
            raise RecordError(index.problem or "empty", "there is no whole game in it", _COPY_AGAIN)
        stamp = _stamp(file.fileno(), index.places)
    source = ChunkSource(path, index.places, identity, descriptors, stamp=stamp)
    source.skipped, source.problem = index.skipped, index.problem
    return source


def _stamp(descriptor: int, places: npt.NDArray[np.void]) -> str:
    """Where all chunks lie, and how the first and the last one end: with a checksum of it all, if they are packed."""
    hashed = blake2b(places.tobytes(), digest_size=8)
    for place in (places[0], places[-1]):
        size = min(int(place["size"]), _STAMPED)
        hashed.update(os.pread(descriptor, size, int(place["offset"]) + int(place["size"]) - size))
    return hashed.hexdigest()


def _kind(path: str) -> str:
    suffixes = PurePath(path).suffixes
    suffix = suffixes[-1] if suffixes else ""
    if suffix == ".tgz" or (suffixes[-2:-1] == [".tar"] and suffix in (".gz", ".bz2", ".xz", ".zst")):
        raise RecordError("packed archive", "games in it cannot be read one by one", "unpack it to a .tar", path)
    if suffix not in (".tar", ".gz", *_RAW) and not suffix[1:].isdigit():
        raise RecordError("not data", f"files of games do not end with {suffix!r}", None, path)
    return suffix


def _indexed(descriptor: int, kind: str, path: str, identity: FileIdentity, cache: IndexCache | None) -> TarIndex:
    if kind != ".tar":
        places, inflated = _one_chunk(descriptor, identity.size, gzip=kind == ".gz")
        _count_frames(descriptor, places, inflated)
        return TarIndex(places)
    name = os.path.basename(path)
    known = cache.get(name, identity) if cache is not None else None
    if known is not None:
        return known
    index, inflated = index_tar(descriptor)
    if len(index.places):
        _count_frames(descriptor, index.places, inflated)
    if cache is not None:
        cache.put(name, identity, index)
    return index


def _one_chunk(descriptor: int, size: int, *, gzip: bool) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint32]]:
    if size < (18 if gzip else 4):
        raise RecordError("empty" if not size else "truncated", f"the file has {size} bytes", _COPY_AGAIN)
    if size > MOST_PACKED_BYTES:
        raise RecordError("too large", f"the file has {size:,} bytes, which no game has", "name archives .tar")
    inflated = int.from_bytes(os.pread(descriptor, 4, size - 4), "little") if gzip else size
    return np.array([(0, size, 0, 0, gzip)], PLACE), np.array([inflated], np.uint32)


def _count_frames(descriptor: int, places: npt.NDArray[np.void], inflated: npt.NDArray[np.uint32]) -> None:
    """Fill in how many frames each chunk has, by the version of the first one that can be read, or by its own."""
    frame_bytes = np.full(len(places), FRAME_BYTES[_first_version(descriptor, places)], np.uint32)
    for other in np.flatnonzero((inflated % frame_bytes > 0) | (inflated == 0)):
        version = _version(descriptor, places[other])
        if isinstance(version, int):
            frame_bytes[other] = FRAME_BYTES[version]
            inflated[other] = _unpacked_bytes(descriptor, places[other], int(inflated[other]), FRAME_BYTES[version])
    frames, rest = np.divmod(inflated, frame_bytes)
    places["frames"] = np.where((rest == 0) & (frames <= MOST_FRAMES), frames, 0)


def _unpacked_bytes(descriptor: int, place: np.void, said: int, frame_bytes: int) -> int:
    """The bytes of a chunk: as it says, or, where that are no whole frames, by unpacking it. Zeros behind a chunk, with
    which some disks and copies fill up a file, stand where it would say so."""
    if not place["gzip"] or (said and said % frame_bytes == 0):
        return said
    try:
        return len(inflate(os.pread(descriptor, int(place["size"]), int(place["offset"]))))
    except RecordError:
        return 0  # reading it will tell why


def _first_version(descriptor: int, places: npt.NDArray[np.void]) -> int:
    """The version of the first chunk that has one. What lies before it costs only itself, however much it is: each is
    dropped, and counted by its own reason, when it is read."""
    found = []
    for place in places:
        version = _version(descriptor, place)
        if isinstance(version, int):
            return version
        found.append(version)
    unknown = next((each for each in found if each.startswith("version")), None)
    if unknown is not None:
        told = f"{unknown}; frames of the versions 3 to 7 can be read"
        raise RecordError("unknown version", told, "convert the file, or leave it out")
    raise RecordError("truncated" if found[0] == _CUT else "damaged gzip", found[0], _COPY_AGAIN)


def _version(descriptor: int, place: np.void) -> int | str:
    """The version of a chunk, or why it is none that can be read."""
    packed = os.pread(descriptor, min(int(place["size"]), 512), int(place["offset"]))
    try:
        front = zlib.decompressobj(wbits=31).decompress(packed, 4) if place["gzip"] else packed[:4]
    except zlib.error as error:
        return str(error)
    version = int.from_bytes(front, "little")
    if len(front) < 4:
        return _CUT
    return version if version in FRAME_BYTES else f"version {version}"


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Say where a record is bad."""
    try:
        yield
    except (RecordError, OSError) as error:
        raise _placed(error, where) from None


def _placed(error: RecordError | OSError, where: str) -> SourceError:
    """What is wrong with a record, and where; a file that cannot be read is one more reason. A machine without files or
    memory to give says nothing about a record: a good game must not be taken for a bad one."""
    if isinstance(error, RecordError):
        return RecordError(error.reason, error.found, error.hint, error.where or where)
    if error.errno in _EXHAUSTED:
        return SourceError(f"{where}: {error.strerror}", hint=_EXHAUSTED[error.errno])
    if isinstance(error, FileNotFoundError):
        return RecordError("gone", "the file is not there any more", None, where)
    return RecordError("unreadable", error.strerror or str(error), None, where)
