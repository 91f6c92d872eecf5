"""The few operations that writers do on a disk, in one place: durable, and every failure named.

Writers touch files through these functions alone, so a test that breaks them one by one breaks every step.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from millstream import _core
from millstream.errors import StoreError

Bytes = bytes | memoryview
COPY_AGAIN = "the store is damaged or was not copied whole; copy it again, or restore it"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RESUME = "free some space, then go on with TokenStoreWriter(path, resume=True)"
OTHERWISE = "the disk or its file system refused; try another place"
HINTS = {
    errno.EACCES: "look at the permissions, or choose another place",
    errno.EPERM: "look at the permissions, or choose another place",
    errno.EROFS: "this file system can only be read; choose another place",
    errno.EMFILE: "too many files are open; raise the limit with `ulimit -n`",
    errno.EEXIST: "a part of this path is a file; choose another place",
    errno.ENOTDIR: "a part of this path is a file; choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class Disk:
    """The disk as writers know it: there is one, `disk`."""

    def create(self, path: Path) -> int:
        """Make an empty file, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def reopen(self, path: Path) -> int:
        """Open a file that is there, for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def open_regular(self, path: Path) -> int:
        """Open a file for reading; anything but a regular file is refused (reading a pipe could block without end)."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise StoreError(f"{path}: this file is missing", hint=COPY_AGAIN) from None
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{path}: cannot be opened: {error}",
                hint="look at the permissions, and at `ulimit -n` if too many files are open",
            ) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"{path}: this is not a regular file", hint="copy it into a file first")
        return fd

    def write(self, fd: int, data: Bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        view = memoryview(data)
        while len(view):
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done

    def write_synced(self, fd: int, parts: Sequence[Bytes]) -> None:
        """Write all of the parts end to end into a new file, and wait until they are on the disk: one call for many.

        Other threads run meanwhile: the whole call is without the GIL.
        """
        _core.write_synced(fd, [part for part in parts if len(part)])

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file back."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Wait until a file's bytes are on the disk."""
        os.fsync(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file its name, in one step."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and what is in it, as far as that can be done."""
        shutil.rmtree(path, ignore_errors=True)

    def sync_directory(self, path: Path) -> None:
        """Wait until a directory's names are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it, each with a durable name."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(exist_ok=True)
        self.sync_directory(path.parent)

    def publish(self, path: Path, data: bytes) -> None:
        """Write a small file beside and rename it: a reader sees the old bytes or the new ones."""
        beside = path.with_name(path.name + ".tmp")
        fd = self.create(beside)
        try:
            self.write(fd, data, 0)
            self.sync(fd)
        finally:
            os.close(fd)
        self.rename(beside, path)
        self.sync_directory(path.parent)

    @contextmanager
    def reported(self, path: Path, *, full: str = RESUME) -> Iterator[None]:
        """Turn the system's errors into ours; `full` is the hint for a full disk. Of two, the outer decides.

        >>> with disk.reported(Path("corpus")):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        millstream.errors.StoreError: corpus: No space left on device
          hint: free some space, then go on with TokenStoreWriter(path, resume=True)
        """
        try:
            yield
        except (OSError, StoreError) as error:
            system = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(system, OSError):
                raise
            hint = full if system.errno in FULL else HINTS.get(system.errno or 0)
            where = path if system.filename is None or system.errno in FULL else system.filename
            raise StoreError(f"{where}: {system.strerror or system}", hint=hint or OTHERWISE) from system


disk = Disk()
