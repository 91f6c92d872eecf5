"""The few things the writer does to a disk, in one place: durable, and every failure named.

Nothing else in the writer touches a file, so a test that breaks these functions one by one breaks every step.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.errors import StoreError

Bytes = bytes | memoryview


def create(path: Path) -> int:
    """Make an empty file, open for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)


def reopen(path: Path) -> int:
    """Open a file that is there, for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def write(fd: int, data: Bytes, offset: int) -> None:
    """Write all of `data` at `offset`."""
    view = memoryview(data)
    while len(view):
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def truncate(fd: int, size: int) -> None:
    """Cut a file back."""
    os.ftruncate(fd, size)


def sync(fd: int) -> None:
    """Wait until a file's bytes are on the disk."""
    os.fsync(fd)


def rename(old: Path, new: Path) -> None:
    """Give a file its name, in one step."""
    old.replace(new)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Wait until a directory's names are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, each with a name that lasts."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def publish(path: Path, data: bytes) -> None:
    """Write a small file beside and rename it: a reader sees the old bytes or the new ones."""
    beside = path.with_name(path.name + ".tmp")
    fd = create(beside)
    try:
        write(fd, data, 0)
        sync(fd)
    finally:
        os.close(fd)
    rename(beside, path)
    sync_directory(path.parent)


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn the system's errors into ours, with a hint for a full disk.

    >>> with reported(Path("corpus")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    millstream.errors.StoreError: corpus: No space left on device
      hint: free some space, then go on with TokenStoreWriter(path, resume=True)
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        hint = "free some space, then go on with TokenStoreWriter(path, resume=True)" if full else None
        raise StoreError(f"{path}: {error.strerror or error}", hint=hint) from error
