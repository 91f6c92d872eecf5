"""A found file -> its decoded stream: decompressed, and UTF-8 without a byte order mark.

Places in a plain file of UTF-8 are those of the file itself; in all others they are places in the decoded stream.
Bytes that are not valid in their encoding become 0xFF, which is never valid UTF-8. So one check, of UTF-8, finds the
bad records of every encoding.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

from millstream.errors import SourceError
from millstream.sources.chunk import FileFailure, Reading
from millstream.sources.decompress import MAGIC_BYTES, SUFFIXES, ZstdFrame, compression_of, decompressed, zstd_frames
from millstream.sources.source_file import BLOCK_BYTES, FoundFile, blocks_from, opened, read_at

_HEAD_BYTES = 4  # the longest byte order mark
_MORE_BYTES = 1 << 16
_LEAST_BLOCK = 1 << 12
BOM = b"\xef\xbb\xbf"
_MARKS = {  # longest first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MARK_INVALID = "millstream.mark_invalid"


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """How the text lies in a file: from byte `start` on; plain, or in `frames`, or readable only from the front."""

    compression: str | None
    encoding: str
    start: int
    frames: tuple[ZstdFrame, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the file's own bytes are the text."""
        return self.compression is None and self.encoding == "utf-8"


def layout_of(file: FoundFile, reading: Reading) -> StreamLayout:
    """Look at the first bytes of a file, and at the frames of a zstd file."""
    with opened(file) as handle:
        head = read_at(handle, file, 0, MAGIC_BYTES)
        compression = compression_of(head)
        if compression is None:
            _check_promise(file, head)
            return StreamLayout(None, *encoding_of(head, reading.encoding))
        first = b""
        blocks = _decompressed(blocks_from(handle, file), compression, reading)
        try:
            while len(first) < _HEAD_BYTES and (block := next(blocks, b"")):
                first += block
        except FileFailure:
            pass  # reading the stream raises it again
        encoding, start = encoding_of(first, reading.encoding)
        frames: list[ZstdFrame] | None = None
        if compression == "zstd" and encoding == "utf-8":
            frames = zstd_frames(lambda place, count: read_at(handle, file, place, count), file.bytes)
    total = sum(frame.content_bytes for frame in frames or ())
    if frames is None or len(frames) < 2 or total > min(reading.max_decoded_bytes, reading.max_expansion * file.bytes):
        frames = []  # one frame cannot be shared, and a lie about sizes is found when the stream is read
    return StreamLayout(compression, encoding, start, tuple(frames))


def binary_layout(file: FoundFile) -> StreamLayout:
    """The layout of a file that may be compressed, but is not text."""
    with opened(file) as handle:
        head = read_at(handle, file, 0, MAGIC_BYTES)
    compression = compression_of(head)
    if compression is None:
        _check_promise(file, head)
    return StreamLayout(compression, "utf-8", 0)


class DecodedBytes:
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
def decoded(
    file: FoundFile, reading: Reading, layout: StreamLayout | None = None
) -> Iterator[tuple[DecodedBytes, int]]:
    """(blocks of the decoded stream after its byte order mark, place of the first). Blocks may raise `FileFailure`."""
    layout = layout or layout_of(file, reading)

    def decode(blocks: Iterator[bytes]) -> Iterator[bytes]:
        if layout.compression is not None:
            blocks = _decompressed(blocks, layout.compression, reading)
        blocks = _skip_bytes(blocks, layout.start)
        return blocks if layout.encoding == "utf-8" else filter(None, transcoded(blocks, layout.encoding))

    block = min(BLOCK_BYTES, max(_LEAST_BLOCK, reading.chunk_bytes // 4))  # `taken` says how far a chunk is
    with opened(file) as handle:
        if layout.is_plain:
            yield DecodedBytes(blocks_from(handle, file, layout.start, size=block), iter, layout.start), layout.start
        else:
            blocks = blocks_from(handle, file, size=block)
            yield DecodedBytes(blocks, decode), layout.start if layout.encoding == "utf-8" else 0


@contextmanager
def decoded_after(file: FoundFile, reading: Reading, place: int) -> Iterator[tuple[DecodedBytes, int, str]]:
    """As `decoded`, from `place` on, and the encoding; what lies before is skipped, in a plain file without being
    read."""
    layout = layout_of(file, reading)
    if layout.is_plain:
        place = max(place, layout.start)
        with opened(file) as handle:
            yield DecodedBytes(blocks_from(handle, file, place), iter, place), place, layout.encoding
        return
    with decoded(file, reading, layout) as (blocks, start):
        place = max(place, start)
        yield DecodedBytes(blocks, partial(_skip_bytes, count=place - start)), place, layout.encoding


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


def raw_bytes(file: FoundFile, reading: Reading, start: int, stop: int, layout: StreamLayout | None = None) -> bytes:
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
    """Without empty blocks: a reader takes an empty block for the end."""
    return filter(None, decompressed(blocks, kind, reading.max_expansion, reading.max_decoded_bytes))


def _check_promise(file: FoundFile, head: bytes) -> None:
    kind = SUFFIXES.get(file.path.suffix.lower())
    if kind is not None and head:
        found = f"its name says {kind}, but it begins with {head[:4].hex(' ')}"
        raise FileFailure("damaged", found, "rename it, if it is not compressed", has_place=False)


def _skip_bytes(blocks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Leave out the first `count` bytes."""
    while count and (block := next(blocks, b"")):
        if len(block) > count:
            blocks = chain([block[count:]], blocks)
            break
        count -= len(block)
    return blocks


def encoding_of(head: bytes, wanted: str) -> tuple[str, int]:
    """(encoding, bytes of its byte order mark) of a file that begins with `head`.

    >>> encoding_of(b"plain", "auto"), encoding_of(b"\\xff\\xfea\\0", "auto"), encoding_of(b"plain", "latin-1")
    (('utf-8', 0), ('utf-16-le', 2), ('iso8859-1', 0))
    """
    if wanted == "auto":
        for mark, name in _MARKS.items():
            if head.startswith(mark):
                return name, len(mark)
        name = "utf-8"
    else:
        name = known_encoding(wanted)
        for mark, marked in _MARKS.items():
            if head.startswith(mark) and marked.startswith(name):
                return marked, len(mark)
    return name, len(BOM) if name == "utf-8" and head.startswith(BOM) else 0


def known_encoding(name: str) -> str:
    """The plain name of an encoding that Python knows.

    >>> known_encoding("UTF8")
    'utf-8'
    """
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # fails for codecs that do not make bytes of text
    except (LookupError, TypeError, ValueError):
        raise SourceError(f"encoding={name!r} is unknown", hint='e.g. "utf-8", "utf-16" or "latin-1"') from None
    return "utf-8" if codec.name in ("utf-8-sig", "ascii") else codec.name


def transcoded(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Blocks of UTF-8, with 0xFF for what is not valid.

    >>> b"".join(transcoded(iter([b"\\xe9"]), "latin-1")), b"".join(transcoded(iter([b"a\\0\\0\\xd8"]), "utf-16-le"))
    (b'\\xc3\\xa9', b'a\\xff')
    """
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(_MARK_INVALID, _mark_invalid)
