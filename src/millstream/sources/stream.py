"""A found file -> its decoded stream: decompressed, and UTF-8 without a byte order mark.

Places in a file that is neither compressed nor in another encoding are those of the file itself; in the others they
are places in what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

from millstream.sources import zstd_frames
from millstream.sources.chunk import Reading
from millstream.sources.decompress import MAGIC_BYTES, SUFFIXES, compression_of, decompressed
from millstream.sources.encoding import encoding_of, transcoded
from millstream.sources.failure import FileFailure
from millstream.sources.found import BLOCK_BYTES, FoundFile, blocks_from, opened, read_at
from millstream.sources.zstd_frames import Frame

_HEAD_BYTES = 4  # the longest byte order mark
_MORE_BYTES = 1 << 16
_LEAST_BLOCK = 1 << 12


@dataclass(frozen=True, slots=True)
class Layout:
    """How the text lies in a file: from byte `start` on; plain, or in `frames`, or only to be had from the front."""

    compression: str | None
    encoding: str
    start: int
    frames: tuple[Frame, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the file's own bytes are the text."""
        return self.compression is None and self.encoding == "utf-8"


def layout_of(file: FoundFile, reading: Reading) -> Layout:
    """Look at the first bytes of a file, and at the frames of a zstd file."""
    with opened(file) as handle:
        head = read_at(handle, file, 0, MAGIC_BYTES)
        compression = compression_of(head)
        if compression is None:
            _check_promise(file, head)
            return Layout(None, *encoding_of(head, reading.encoding))
        first = b""
        blocks = _decompressed(blocks_from(handle, file), compression, reading)
        try:
            while len(first) < _HEAD_BYTES and (block := next(blocks, b"")):
                first += block
        except FileFailure:
            pass  # whoever reads the stream meets it again
        encoding, start = encoding_of(first, reading.encoding)
        frames: list[Frame] | None = None
        if compression == "zstd" and encoding == "utf-8":
            frames = zstd_frames.frames(lambda place, count: read_at(handle, file, place, count), file.bytes)
    total = sum(frame.content_bytes for frame in frames or ())
    if frames is None or len(frames) < 2 or total > min(reading.max_decoded_bytes, reading.max_expansion * file.bytes):
        frames = []  # one frame cannot be shared, and a lie about sizes is found when the stream is read
    return Layout(compression, encoding, start, tuple(frames))


def binary_layout(file: FoundFile) -> Layout:
    """The layout of a file that may be compressed, but is not text."""
    with opened(file) as handle:
        head = read_at(handle, file, 0, MAGIC_BYTES)
    compression = compression_of(head)
    if compression is None:
        _check_promise(file, head)
    return Layout(compression, "utf-8", 0)


class Decoded:
    """Blocks of a decoded stream; `taken` counts the bytes of the file that went into them."""

    def __init__(
        self, raw: Iterator[bytes], decode: Callable[[Iterator[bytes]], Iterator[bytes]], taken: int = 0
    ) -> None:
        self.taken = taken
        self._blocks = decode(self._counted(raw))

    def _counted(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        for block in raw:
            self.taken += len(block)
            yield block

    def put_back(self, block: bytes) -> None:
        """Give a block again, before the others."""
        self._blocks = chain([block], self._blocks)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._blocks)


@contextmanager
def decoded(file: FoundFile, reading: Reading, layout: Layout | None = None) -> Iterator[tuple[Decoded, int]]:
    """(blocks of the decoded stream behind its byte order mark, place of the first). Blocks may raise `FileFailure`."""
    layout = layout or layout_of(file, reading)

    def decode(blocks: Iterator[bytes]) -> Iterator[bytes]:
        if layout.compression is not None:
            blocks = _decompressed(blocks, layout.compression, reading)
        blocks = _without(blocks, layout.start)
        return blocks if layout.encoding == "utf-8" else filter(None, transcoded(blocks, layout.encoding))

    block = min(BLOCK_BYTES, max(_LEAST_BLOCK, reading.chunk_bytes // 4))  # `taken` says how far a chunk is
    with opened(file) as handle:
        if layout.is_plain:
            yield Decoded(blocks_from(handle, file, layout.start, size=block), iter, layout.start), layout.start
        else:
            blocks = blocks_from(handle, file, size=block)
            yield Decoded(blocks, decode), layout.start if layout.encoding == "utf-8" else 0


@contextmanager
def decoded_behind(file: FoundFile, reading: Reading, place: int) -> Iterator[tuple[Decoded, int, str]]:
    """As `decoded`, from `place` on, and the encoding; what lies before is passed over, in a plain file without being
    read."""
    layout = layout_of(file, reading)
    if layout.is_plain:
        place = max(place, layout.start)
        with opened(file) as handle:
            yield Decoded(blocks_from(handle, file, place), iter, place), place, layout.encoding
        return
    with decoded(file, reading, layout) as (blocks, start):
        place = max(place, start)
        yield Decoded(blocks, partial(_without, count=place - start)), place, layout.encoding


@contextmanager
def decoded_from(
    file: FoundFile, reading: Reading, place: int, size: int, offset: int | None
) -> Iterator[Iterator[bytes]]:
    """Blocks of the decoded stream from `place` on, of a plain file, or of the frame that begins at byte `offset`.
    The first block of a plain file has `size` bytes and a little more: most chunks need no other."""
    with opened(file) as handle:
        if offset is None:
            yield blocks_from(handle, file, place, first=size + _MORE_BYTES)
        else:
            yield _decompressed(blocks_from(handle, file, offset), "zstd", reading)


def raw_bytes(file: FoundFile, reading: Reading, start: int, stop: int, layout: Layout | None = None) -> bytes:
    """Bytes [start, stop) of the decoded stream."""
    layout = layout or layout_of(file, reading)
    if layout.is_plain:
        with opened(file) as handle:
            return read_at(handle, file, start, stop - start)
    place = 0
    for frame in layout.frames:
        if start < place + frame.content_bytes:
            with decoded_from(file, reading, place, 0, frame.offset) as blocks:
                return _slice(blocks, start - place, stop - place)
        place += frame.content_bytes
    with decoded(file, reading, layout) as (blocks, place):
        return _slice(blocks, start - place, stop - place)


def _slice(blocks: Iterator[bytes], start: int, stop: int) -> bytes:
    """Bytes [start, stop) of some blocks, as far as they can be read."""
    pieces, place = [], 0
    try:
        while place < stop and (block := next(blocks, b"")):
            pieces.append(block[max(0, start - place) : max(0, stop - place)])
            place += len(block)
    except FileFailure:
        pass  # what could be read of the record is what was recorded
    return b"".join(pieces)


def _decompressed(blocks: Iterator[bytes], kind: str, reading: Reading) -> Iterator[bytes]:
    """Without empty blocks: to whoever reads on, an empty block is the end."""
    return filter(None, decompressed(blocks, kind, reading.max_expansion, reading.max_decoded_bytes))


def _check_promise(file: FoundFile, head: bytes) -> None:
    kind = SUFFIXES.get(file.path.suffix.lower())
    if kind is not None and head:
        found = f"its name says {kind}, but it begins with {head[:4].hex(' ')}"
        raise FileFailure("damaged", found, "rename it, if it is not compressed", has_place=False)


def _without(blocks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Leave out the first `count` bytes."""
    while count and (block := next(blocks, b"")):
        if len(block) > count:
            blocks = chain([block[count:]], blocks)
            break
        count -= len(block)
    return blocks
