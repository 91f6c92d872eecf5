"""One writer at a time: the lock of a file or a folder, which ends with its process.

`Lock` is an exclusive `flock`. The system releases it when its process dies, so no lock outlives its holder. `Presence`
notices from outside that a holder is gone. A forked child closes the descriptors that it inherits: otherwise it would
keep the lock of its parent.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self

from millstream.errors import BusyError
from millstream.stages import after_fork
from millstream.storage.durable import disk

GONE_S = 30.0
"""How long a writer may be absent before it is missed: a writer that restarts is back within this time."""
LOOK_S = 0.2
"""Time between two looks at a lock."""

_HELD: set[int] = set()
"""Descriptors of this process that hold a lock, or are about to."""


class Lock:
    """Holds a file or folder for this process alone; raises `BusyError` if another process holds it.

    A locked file is made if it is not there and removed on release. A locked folder is made if it is not there, and
    stays.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> with Lock(path):
    ...     is_held(path)
    True
    >>> is_held(path)
    False

    Args:
        path: The file or folder.
        folder: Whether it is a folder.
        busy: What the error says if another process holds it.
        hint: What the error advises.
    """

    def __init__(
        self,
        path: Path,
        *,
        folder: bool = False,
        busy: str | None = None,
        hint: str = "close() the other one, or wait for it to end",
    ) -> None:
        self._path, self._is_folder, self._process = path, folder, os.getpid()
        self._busy, self._hint = busy or f"{path}: another writer is at work here", hint
        self._fd = -1
        while self._fd < 0:
            self._fd = self._try()

    def _try(self) -> int:
        """Open and lock; -1 if the last holder removed it in between."""
        fd = self._opened()
        if fd < 0:
            return -1
        _HELD.add(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._path.exists() and os.path.samestat(os.fstat(fd), self._path.stat()):
                return fd
        except BlockingIOError:
            _close(fd)
            raise BusyError(self._busy, hint=self._hint) from None
        except BaseException:
            _close(fd)
            raise
        _close(fd)
        return -1

    def _opened(self) -> int:
        if not self._is_folder:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        disk.make_directory(self._path)
        try:
            return os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def release(self) -> None:
        """Remove the file and release the lock; does nothing in a forked child, which holds no lock."""
        if self._fd >= 0 and self._process == os.getpid():
            if not self._is_folder:
                self._path.unlink(missing_ok=True)
            _close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _close(fd: int) -> None:
    """Close a descriptor of a lock; in a forked child it is closed already."""
    if fd in _HELD:
        _HELD.remove(fd)
        os.close(fd)


def _close_all() -> None:
    while _HELD:
        os.close(_HELD.pop())


after_fork(_close_all)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file or folder, as far as can be told from here."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class Presence:
    """Notices that the holder of a lock has gone. A holder that was never seen is not missed: some file systems do not
    show locks to other machines.

    Args:
        lock: The file that a writer locks.
    """

    def __init__(self, lock: Path) -> None:
        self._lock, self._seen = lock, is_held(lock)
        self._look_at_s = self._away_s = 0.0

    def is_missed(self, *, silent: bool) -> bool:
        """Whether the writer has been absent for `GONE_S`; called after each read, `silent` if nothing was read."""
        now_s = time.monotonic()
        if not silent:
            self._away_s = 0.0
        if now_s < self._look_at_s or (self._seen and not silent):
            return False
        self._look_at_s = now_s + LOOK_S
        if is_held(self._lock):
            self._seen, self._away_s = True, 0.0
        elif self._seen:
            self._away_s += LOOK_S
        return self._away_s > GONE_S
