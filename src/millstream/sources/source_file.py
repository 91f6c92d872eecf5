"""A file as it was found, and opening it again: a file that has changed since is a failure, never other data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import SourceError
from millstream.sources.chunk import CHANGED, GONE, UNREADABLE, FileFailure

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: where it is, how the store will call it, its format and its size.

    `source` is the entry of the user's list that it was found under and `weight` what that entry weighs. `data` is an
    object of another library that is read instead of a path.
    """

    path: Path
    name: str
    format: str
    bytes: int
    mtime_ns: int = 0
    inode: int = 0
    source: str = ""
    weight: float | None = None
    data: Any = None

    def described(self) -> dict[str, Any]:
        """What a manifest keeps: plain values that do not depend on where the file lies.

        >>> FoundFile(Path("/x/a.txt"), "a.txt", "text", 5).described()
        {'path': 'a.txt', 'bytes': 5, 'format': 'text'}
        """
        kept = {"path": self.name, "bytes": self.bytes, "format": self.format}
        return kept if self.weight is None else kept | {"source": self.source, "weight": self.weight}


@contextmanager
def opened(file: FoundFile) -> Iterator[int]:
    """Open a file for reading at any place, and see before and after that it is the one that was found."""
    try:
        handle = os.open(file.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        found, hint = "the file was there when the files were listed", "put it back, or list the files again"
        raise FileFailure(GONE, found, hint, has_place=False) from None
    except OSError as error:
        found, hint = f"it cannot be opened: {error.strerror}", "look at its owner and mode"
        raise FileFailure(UNREADABLE, found, hint, has_place=False) from error
    try:
        check_unchanged(file, handle)
        yield handle
        check_unchanged(file, handle)
    finally:
        os.close(handle)


def check_unchanged(file: FoundFile, handle: int) -> None:
    """Compare an open file with what was found."""
    now = os.fstat(handle)
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (file.bytes, file.mtime_ns, file.inode):
        size = f" ({file.bytes:,} bytes then, {now.st_size:,} now)" if now.st_size != file.bytes else ""
        found, hint = f"the file is not as it was found{size}", "run again when nothing writes to it any more"
        raise FileFailure(CHANGED, found, hint, has_place=False)


def read_at(handle: int, file: FoundFile, start: int, size: int) -> bytes:
    """Read `size` bytes from `start` on; fewer only at the end of the file."""
    pieces = []
    while size > 0:
        try:
            piece = os.pread(handle, min(size, 1 << 30), start)
        except OSError as error:
            raise SourceError(
                f"{file.name}: cannot be read: {error.strerror}", hint="check the disk, or copy the file elsewhere"
            ) from error
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def blocks_from(
    handle: int, file: FoundFile, start: int = 0, *, first: int | None = None, size: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """The bytes of a file from `start` to its end, a block at a time; the first block may have another size."""
    wanted = first or size
    while block := read_at(handle, file, start, wanted):
        yield block
        start += len(block)
        wanted = size
