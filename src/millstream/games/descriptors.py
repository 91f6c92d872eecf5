"""Files that are read now and then by many threads -> a bounded number of open descriptors."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import NamedTuple

from millstream.errors import ClosedError, RecordError
from millstream.stages import after_fork

_CHANGED = "write a new file under another name and rename it; do not write into one that is read"


class FileIdentity(NamedTuple):
    """What tells a file from another one that took its place."""

    inode: int
    size: int
    changed_ns: int

    @staticmethod
    def of(file: int | str) -> FileIdentity:
        """That of an open file, or of the one at a path."""
        status = os.stat(file)  # noqa: PTH116 - takes descriptors, too
        return FileIdentity(status.st_ino, status.st_size, status.st_mtime_ns)


class _Open:
    """A descriptor, or the wish for one while the file is being opened."""

    __slots__ = ("descriptor", "users")

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.users = 1


class Descriptors:
    """Keeps the files open that were used last. Readers of one file share a descriptor, and no one waits for another
    file to be opened. A descriptor in use is never closed; when all of them are, the next file waits for one.

    >>> with Descriptors(most=2) as descriptors, descriptors.lent(__file__, FileIdentity.of(__file__)) as descriptor:
    ...     os.pread(descriptor, 8, 3)
    b'Files th'
    """

    def __init__(self, most: int = 64) -> None:
        self._most = max(1, most)
        self._files: OrderedDict[tuple[str, FileIdentity], _Open] = OrderedDict()
        self._changed = Condition()
        self._closed = False
        after_fork(self._forget)

    def _forget(self) -> None:
        """In a forked child: threads that are not here may hold the lock, or be about to open a file."""
        self._changed = Condition()
        kept, self._files = self._files, OrderedDict()
        for file in kept.values():
            if file.descriptor is not None:
                os.close(file.descriptor)

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def lent(self, path: str, identity: FileIdentity) -> Iterator[int]:
        """The descriptor of a file; another file in its place is an error."""
        file = self._taken((path, identity)) or self._opened((path, identity))
        try:
            assert file.descriptor is not None
            yield file.descriptor
        finally:
            self._give_back(file)

    def read(self, path: str, identity: FileIdentity, size: int, offset: int) -> bytes:
        """Up to so many bytes of a file, from an offset on."""
        with self.lent(path, identity) as descriptor:
            return os.pread(descriptor, size, offset)

    def forget(self, path: str, identity: FileIdentity) -> None:
        """Close a file that will not be read again, unless a thread reads it now."""
        with self._changed:
            file = self._files.get((path, identity))
            if file is not None and not file.users and file.descriptor is not None:
                os.close(self._files.pop((path, identity)).descriptor or 0)
                self._changed.notify_all()

    def close(self) -> None:
        """Close all files, those in use as soon as they are given back."""
        with self._changed:
            self._closed = True
            self._drop_unused(len(self._files))
            self._changed.notify_all()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _taken(self, key: tuple[str, FileIdentity]) -> _Open | None:
        """The file if it is open; else nothing, and a place is kept for it."""
        with self._changed:
            while True:
                if self._closed:
                    raise ClosedError("these files were closed", hint="open the sources again")
                file = self._files.get(key)
                if file is not None and file.descriptor is not None:
                    file.users += 1
                    self._files.move_to_end(key)
                    return file
                if file is None and (len(self._files) < self._most or self._drop_unused(1)):
                    self._files[key] = _Open()
                    return None
                self._changed.wait()

    def _give_back(self, file: _Open) -> None:
        with self._changed:
            file.users -= 1
            if self._closed:
                self._drop_unused(len(self._files))
            self._changed.notify_all()

    def _opened(self, key: tuple[str, FileIdentity]) -> _Open:
        path, identity = key
        descriptor = None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if FileIdentity.of(descriptor) != identity:
                raise RecordError("changed", "the file is not the one that was indexed", _CHANGED, path)
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            with self._changed:
                del self._files[key]
                self._changed.notify_all()
            raise
        with self._changed:
            file = self._files[key]
            file.descriptor = descriptor
            self._changed.notify_all()
        return file

    def _drop_unused(self, most: int) -> int:
        """Close up to so many files that are not in use, the longest unused ones first."""
        unused = [key for key, file in self._files.items() if not file.users][:most]
        for key in unused:
            os.close(self._files.pop(key).descriptor or 0)
        return len(unused)
