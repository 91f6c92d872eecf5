"""Opening files so that what was read is also what was hashed, and turning bytes into text strictly."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from millstream.errors import SourceError
from millstream.sources.rejects import Rejects

BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20


class HashedFile(io.FileIO):
    """A file that counts and hashes its bytes as they are read from front to back.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"hello"), file.flush()
    ...     with HashedFile(file.name) as raw:
    ...         raw.readall(), raw.bytes_read, raw.digest()[:8]
    (b'hello', 5, '46fb7408')
    """

    def __init__(self, path: str | Path) -> None:
        try:
            super().__init__(str(path), "rb")
        except OSError as error:
            raise SourceError(
                f"{path}: cannot be opened: {error.strerror}", hint="look at the permissions of the file"
            ) from error
        self.bytes_read = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def readinto(self, buffer: Any) -> int | None:
        """Fill `buffer` and hash what came."""
        try:
            count = super().readinto(buffer)
        except OSError as error:
            raise SourceError(
                f"{self.name}: cannot be read: {error.strerror}",
                hint="the disk or the network file system fails; copy the file and try again",
            ) from error
        if count:
            self.bytes_read += count
            self._hash.update(memoryview(buffer)[:count])
        return count

    def readall(self) -> bytes:
        """Read what is left, through `readinto`."""
        return b"".join(iter(lambda: self.read(_BLOCK), b""))

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, through `readinto`."""
        if size is None or size < 0:
            return self.readall()
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer) or 0])

    def digest(self) -> str:
        """Blake2b (16 bytes, hexadecimal) of the bytes read so far."""
        return self._hash.hexdigest()


def drop_bom(stream: BinaryIO) -> tuple[bytes, int]:
    """Read the first three bytes: (what belongs to the text, place where the text starts).

    >>> drop_bom(io.BytesIO(b"\\xef\\xbb\\xbfhi")), drop_bom(io.BytesIO(b"hi"))
    ((b'', 3), (b'hi', 0))
    """
    head = stream.read(len(BOM))
    return (b"", len(BOM)) if head == BOM else (head, 0)


def split(stream: BinaryIO, separator: bytes, limit: int) -> Iterator[tuple[bytes, int, int, bool]]:
    """Cut a stream at `separator`: (piece without it, start, stop, whole?), holding about `limit` bytes.

    A piece longer than `limit` comes once, cut short and not whole; its rest is passed over.

    >>> list(split(io.BytesIO(b"ab\\ncdefgh\\ni"), b"\\n", limit=4))
    [(b'ab', 0, 2, True), (b'cdef', 3, 9, False), (b'i', 10, 11, True)]
    """
    first, start = drop_bom(stream)
    held = bytearray()  # the piece that was begun; no separator is in it, so it is not searched again
    passed = 0  # bytes of an overlong piece that are gone already; `head` keeps how it begins
    head = b""
    keep = len(separator) - 1  # a separator may lie across two blocks
    for block in chain([first], iter(lambda: stream.read(_BLOCK), b"")):
        if separator in held[max(len(held) - keep, 0) :] + block:
            *pieces, held = (held + block).split(separator)
            for piece in pieces:
                stop = start + passed + len(piece)
                yield head or bytes(piece[:limit]), start, stop, not passed and len(piece) <= limit
                start, passed, head = stop + len(separator), 0, b""
        else:
            held += block
        if passed + len(held) > limit + len(separator):
            head = head or bytes(held[:limit])
            passed += len(held) - keep
            del held[: len(held) - keep]
    if held or passed:
        yield head or bytes(held[:limit]), start, start + passed + len(held), not passed and len(held) <= limit


def decode(raw: bytes, file: str, row: int, start: int, rejects: Rejects) -> str | None:
    """Strict UTF-8; what is not is handed to `rejects` with the place of the first wrong byte.

    >>> decode(b"ok", "a.txt", 0, 0, Rejects())
    'ok'
    >>> decode(b"ab\\xff", "a.txt", 0, 100, Rejects())
    Traceback (most recent call last):
    millstream.errors.SourceError: a.txt:1: not UTF-8: byte 102 of the file is 0xff (invalid start byte)
      hint: convert it, e.g. `iconv -f latin1 -t utf-8`; or pass on_bad="skip" to leave it out and count it
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {start + error.start} of the file is 0x{raw[error.start]:02x} ({error.reason})"
        hint = "convert it, e.g. `iconv -f latin1 -t utf-8`"
        rejects.reject("not UTF-8", file, row=row, found=found, hint=hint, span=(start, start + len(raw)), raw=raw)
        return None
