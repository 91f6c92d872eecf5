"""Compressed blocks -> plain blocks: gzip, zstd, xz, bz2, also several members or frames one after another.

Each step gives a bounded amount, so a small file that stands for a huge one is stopped long before it fills memory.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from millstream.sources import zstd_frames
from millstream.sources.failure import FileFailure
from millstream.storage import ZstdStream, need_zstd

SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".xz": "xz", ".bz2": "bz2"}
"""The endings of compressed files."""

MAGIC_BYTES = 10
_MAGIC = {"gzip": b"\x1f\x8b\x08", "xz": b"\xfd7zXZ\x00", "bz2": b"BZh", "zstd": zstd_frames.MAGIC}
_STEP = 1 << 20
_UNCHECKED = 16 << 20  # what any file may expand to
_MEMORY_LIMIT = 1 << 29  # an xz header may ask for 4 GiB

Blocks = Iterator[bytes]


def compression_of(head: bytes) -> str | None:
    """Name the compression by the first bytes of a file.

    >>> compression_of(bz2.compress(b"")), compression_of(b"BZh is text")
    ('bz2', None)
    """
    if head.startswith(_MAGIC["bz2"]):
        return "bz2" if head[4:10] in (b"1AY&SY", b"\x17rE8P\x90") else None
    if zstd_frames.is_skippable(head):
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
    for piece in zstd_frames.pieces(blocks):
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
