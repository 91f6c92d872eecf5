"""Compressed blocks -> plain blocks: gzip, zstd, xz, bz2, also several members or frames one after another.

Each step gives a bounded amount, so a small file that stands for a huge one is stopped long before it fills memory.
Zstd files (RFC 8878) are cut at their blocks. That bounds what a decoder gives at once (128 KiB a block), and shows
whether a file is truncated. Reading can begin at any frame of a file whose frames state their content size.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from millstream.sources.chunk import FileFailure
from millstream.storage import ZstdStream, need_zstd

SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".xz": "xz", ".bz2": "bz2"}
"""The endings of compressed files."""

MAGIC_BYTES = 10
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_MAGIC = {"gzip": b"\x1f\x8b\x08", "xz": b"\xfd7zXZ\x00", "bz2": b"BZh", "zstd": _ZSTD_MAGIC}
_STEP = 1 << 20
_UNCHECKED = 16 << 20  # what any file may expand to
_MEMORY_LIMIT = 1 << 29  # an xz header may ask for 4 GiB
_STEP_BLOCKS = 2  # of zstd, given to its decoder at once
_LARGEST_BLOCK = 1 << 17

Blocks = Iterator[bytes]


def compression_of(head: bytes) -> str | None:
    """Name the compression by the first bytes of a file.

    >>> compression_of(bz2.compress(b"")), compression_of(b"BZh is text")
    ('bz2', None)
    """
    if head.startswith(_MAGIC["bz2"]):
        return "bz2" if head[4:10] in (b"1AY&SY", b"\x17rE8P\x90") else None
    if _is_skippable(head):
        return "zstd"
    return next((name for name, magic in _MAGIC.items() if head.startswith(magic)), None)


def decompressed(blocks: Blocks, kind: str, max_expansion: int, max_bytes: int) -> Blocks:
    """Undo the compression `kind` of a file; raises `FileFailure` where that is impossible or too much.

    >>> import gzip
    >>> two = gzip.compress(b"one ") + gzip.compress(b"two")
    >>> b"".join(decompressed(iter([two]), "gzip", 1000, 1 << 40))
    b'one two'
    """
    taken = 0

    def counted() -> Blocks:
        nonlocal taken
        for block in blocks:
            taken += len(block)
            yield block

    given = 0
    for block in _ENGINES[kind](counted()):
        given += len(block)
        if given > max_bytes:
            raise FileFailure("expands too far", f"more than max_decoded_bytes={max_bytes:,} come out of it")
        if given > _UNCHECKED and given > taken * max_expansion:
            found = f"{given:,} bytes came out of {taken:,}; the limit is max_expansion={max_expansion:,} times"
            raise FileFailure("expands too far", found, "raise max_expansion if you trust the file")
        yield block


def _gunzip(blocks: Blocks) -> Blocks:
    member = None
    for block in blocks:
        while block:
            if member is None:
                if not (block := block.lstrip(b"\0")):  # padding
                    break
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            with _damage("gzip", zlib.error):
                piece = member.decompress(block, _STEP)
            if piece:
                yield piece
            block = member.unused_data if member.eof else member.unconsumed_tail
            member = None if member.eof else member
    if member is not None:
        yield member.flush()
        if not member.eof:
            raise FileFailure("truncated", "the gzip data ends in the middle")


def _engine(kind: str, make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> Callable[[Blocks], Blocks]:
    """bz2 and xz have one interface."""

    def decompress(blocks: Blocks) -> Blocks:
        member = None
        for block in blocks:
            while block or (member is not None and not member.needs_input):
                if member is None:
                    if not (block := block.lstrip(b"\0")):  # padding
                        break
                    member = make()
                with _damage(kind, OSError, lzma.LZMAError):
                    piece = member.decompress(block, _STEP)
                if piece:
                    yield piece
                block = b""
                if member.eof:
                    block, member = member.unused_data, None
        if member is not None:
            raise FileFailure("truncated", f"the {kind} data ends in the middle")

    return decompress


def _unzstd(blocks: Blocks) -> Blocks:
    for piece in _zstd_pieces(blocks):
        if piece.starts_frame:
            decode = zstd_decoder()
        with _damage("zstd", Exception):
            text = decode(piece.data)
        if text:
            yield text


def zstd_decoder() -> Callable[[bytes], bytes]:
    """A function that takes the bytes of one frame piece by piece and gives what they say."""
    need_zstd()
    stream, out = ZstdStream(), np.empty(_STEP, np.uint8)

    def decode(data: bytes) -> bytes:
        held, pieces, produced = np.frombuffer(data, np.uint8), [], len(out)
        while len(held) or produced == len(out):
            consumed, produced = stream.step(held, out)
            held = held[consumed:]
            pieces.append(out[:produced].tobytes())
        return b"".join(pieces)

    return decode


class _damage:  # noqa: N801 - reads as a clause
    """Turn the errors of a library into a failure of the file."""

    def __init__(self, kind: str, *errors: type[BaseException]) -> None:
        self.kind, self.errors = kind, errors

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self.errors):
            raise FileFailure("damaged", f"this is not {self.kind} data: {error}") from error


_ENGINES = {
    "gzip": _gunzip,
    "zstd": _unzstd,
    "bz2": _engine("bz2", bz2.BZ2Decompressor),
    "xz": _engine("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT)),
}


@dataclass(frozen=True, slots=True)
class FramePiece:
    """Some whole blocks of one frame."""

    data: bytes
    starts_frame: bool


@dataclass(frozen=True, slots=True)
class ZstdFrame:
    """A frame of a file: the place of its first byte, and how many bytes it stands for."""

    offset: int
    content_bytes: int


def _is_skippable(head: bytes) -> bool:
    """Whether these bytes begin a frame without content."""
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == _SKIPPABLE


def _zstd_pieces(blocks: Iterator[bytes]) -> Iterator[FramePiece]:
    """Cut a stream into pieces that decode to a bounded amount."""
    ahead = _StreamCursor(blocks)
    while magic := ahead.peek(4):
        if _is_skippable(magic):
            ahead.skip(4)
            ahead.skip(int.from_bytes(ahead.take(4), "little"))
            continue
        header = _FrameHeader.parse(ahead.take)
        held, first, last = [header.raw], True, False
        try:
            while not last:
                start = ahead.take(3)
                payload, last = _block_header(start)
                held.append(start + ahead.take(payload))
                if last and header.has_checksum:
                    held.append(ahead.take(4))
                if len(held) >= _STEP_BLOCKS:
                    yield FramePiece(b"".join(held), first)
                    held, first = [], False
        except FileFailure:
            yield FramePiece(b"".join(held), first)  # what comes before the failure is readable
            raise
        if held:
            yield FramePiece(b"".join(held), first)


def zstd_frames(read: Callable[[int, int], bytes], size: int) -> list[ZstdFrame] | None:
    """The frames of a file of which `read(place, count)` gives bytes; None unless all say how much they hold."""
    found, at = [], 0
    try:
        while at < size:
            start, cursor = at, _FileCursor(read, at)
            if _is_skippable(read(at, 4)):
                at += 8 + int.from_bytes(read(at + 4, 4), "little")
                continue
            header = _FrameHeader.parse(cursor.take)
            if header.content_bytes is None:
                return None
            last = False
            while not last:
                payload, last = _block_header(cursor.take(3))
                cursor.at += payload
            at = cursor.at + (4 if header.has_checksum else 0)
            if header.content_bytes:
                found.append(ZstdFrame(start, header.content_bytes))
    except FileFailure:
        return None
    return found if at == size else None


@dataclass(frozen=True, slots=True)
class _FrameHeader:
    raw: bytes
    content_bytes: int | None
    has_checksum: bool

    @classmethod
    def parse(cls, take: Callable[[int], bytes]) -> _FrameHeader:
        raw = take(5)
        if raw[:4] != _ZSTD_MAGIC:
            raise FileFailure("damaged", f"this is not zstd data: a frame begins with {raw[:4].hex(' ')}")
        descriptor = raw[4]
        single, width = descriptor >> 5 & 1, descriptor >> 6
        content = (single, 2, 4, 8)[width]
        rest = take((1 - single) + (0, 1, 2, 4)[descriptor & 3] + content)
        value = int.from_bytes(rest[len(rest) - content :], "little") + (256 if content == 2 else 0)
        return cls(raw + rest, value if content else None, bool(descriptor & 4))


def _block_header(header: bytes) -> tuple[int, bool]:
    """(bytes that follow, whether it is the last block)."""
    word = int.from_bytes(header, "little")
    kind, size = word >> 1 & 3, word >> 3
    if kind == 3 or size > _LARGEST_BLOCK:
        raise FileFailure("damaged", "this is not zstd data: a block of an impossible kind or size")
    return (1 if kind == 1 else size), bool(word & 1)


class _FileCursor:
    """A cursor in a file that can be read anywhere."""

    def __init__(self, read: Callable[[int, int], bytes], at: int) -> None:
        self.read, self.at = read, at

    def take(self, count: int) -> bytes:
        data = self.read(self.at, count)
        if len(data) < count:
            raise FileFailure("truncated", "the zstd data ends in the middle")
        self.at += count
        return data


class _StreamCursor:
    """A cursor in a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held, self.at = blocks, b"", 0

    def peek(self, count: int) -> bytes:
        while len(self.held) - self.at < count and (block := next(self.blocks, b"")):
            self.held, self.at = self.held[self.at :] + block, 0
        return self.held[self.at : self.at + count]

    def take(self, count: int) -> bytes:
        data = self.peek(count)
        if len(data) < count:
            raise FileFailure("truncated", "the zstd data ends in the middle")
        self.at += count
        return data

    def skip(self, count: int) -> None:
        while count:
            count -= len(self.take(min(count, 1 << 20)))
