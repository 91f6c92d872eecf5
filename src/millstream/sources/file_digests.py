"""Which bytes a source file holds: its hash, cached for as long as the file is not touched.

A file is hashed in segments, so that many threads share a large one. The digest is the blake2b of its bytes or, for
several segments, of the digests of its segments. A file that cannot be read has none (""):
reading it reports the failure, and nothing made of it is cached.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from millstream.sources.chunk import FileFailure
from millstream.sources.in_memory import is_rows, written_row
from millstream.sources.source_file import FoundFile, opened, read_at
from millstream.storage import FileCache, key_of

SEGMENT_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_SAMPLES, _SAMPLE_BYTES = 64, 4096


def segments(size: int) -> int:
    """How many segments a file of this size has.

    >>> segments(0), segments(SEGMENT_BYTES), segments(SEGMENT_BYTES + 1)
    (1, 1, 2)
    """
    return max(1, -(-size // SEGMENT_BYTES))


def digest_segment(path: Path, number: int) -> bytes:
    """Hash one segment of a file; nothing, if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    place, stop = number * SEGMENT_BYTES, (number + 1) * SEGMENT_BYTES
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while place < stop and (piece := os.pread(fd, min(_PIECE_BYTES, stop - place), place)):
                digest.update(piece)
                place += len(piece)
        finally:
            os.close(fd)
    except OSError:
        return b""
    return digest.digest()


def join_segments(digests: Iterable[bytes]) -> str:
    """Give the digest of a file from those of its segments.

    >>> join_segments([bytes(16)])
    '00000000000000000000000000000000'
    """
    digests = list(digests)
    if not all(digests):
        return ""
    if len(digests) == 1:
        return digests[0].hex()
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def identify_object(data: object) -> str:
    """Name what an object of another library holds: a data set of Hugging Face knows its own fingerprint.

    What has none cannot be named, and is not cached: "".

    >>> identify_object(range(3))
    ''
    """
    if is_rows(data):
        return key_of("rows", *map(written_row, data))
    fingerprint = getattr(data, "_fingerprint", None)
    return key_of("object", type(data).__qualname__, str(fingerprint)) if fingerprint else ""


def digest_of(path: Path, size: int) -> str:
    """The digest of a file of this size, hashed here and now."""
    return join_segments(digest_segment(path, number) for number in range(segments(size)))


def digesting(
    file: FoundFile, cache: FileCache | None, begin: Callable[..., Callable[[], bytes]] = partial
) -> Callable[[], str]:
    """Begin to hash a file, unless its digest is cached; the returned call waits for the digest, and caches it.

    `begin` starts a call elsewhere, and returns a call that waits for its result; by default hashing is lazy.
    """
    if file.data is not None:
        return partial(identify_object, file.data)
    touch = touch_of(file.path)
    note = None if cache is None or not touch else cache.note(touch)
    if isinstance(note, dict) and (known := note.get("blake2b")):
        return lambda: known
    hashes = [begin(digest_segment, file.path, number) for number in range(segments(file.bytes))]

    def finish() -> str:
        digest = join_segments(wait() for wait in hashes)
        if cache is not None and digest and touch == touch_of(file.path):
            cache.put_note(touch, {"blake2b": digest})
        return digest

    return finish


def touch_of(path: Path) -> str:
    """A name for the state of a file: it changes whenever the file is written, replaced or moved; "" if it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return ""
    return key_of(
        "touch", str(path.resolve()), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    )


def fingerprint_files(files: Sequence[FoundFile]) -> str:
    """Identify files by names, sizes and formats, and by 64 samples at evenly spaced places; never by time stamps."""
    digest = hashlib.blake2b(key_of([file.described() for file in files]).encode(), digest_size=16)
    for file in files:
        if file.data is not None:
            digest.update(identify_object(file.data).encode())
    ends = np.cumsum([0 if file.data is not None else file.bytes for file in files])
    total = int(ends[-1])
    for place in sorted({sample * total // _SAMPLES for sample in range(_SAMPLES)} if total else ()):
        number = int(np.searchsorted(ends, place, side="right"))
        file = files[number]
        try:
            with opened(file) as handle:
                digest.update(read_at(handle, file, place - int(ends[number]) + file.bytes, _SAMPLE_BYTES))
        except FileFailure as failure:  # reading the file reports or counts it
            digest.update(failure.reason.encode())
    return digest.hexdigest()
