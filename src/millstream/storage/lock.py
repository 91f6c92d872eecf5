"""One writer at a time: a lock of a file or folder that ends with its process.

`Lock` is `flock` on a file beside what is written; `Presence` notices from outside that a writer has gone. A lock
belongs to one process: a forked child closes the descriptors that it inherits, so it keeps no lock of a dead parent.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from millstream.errors import BusyError

GONE_S = 30.0
"""How long a writer may be away: it may be about to begin anew, and what it said last is still made use of."""
LOOK_S = 0.2
"""Between two looks."""

_HELD: set[int] = set()


def hold(fd: int) -> int:
    """Remember a descriptor that holds a lock."""
    _HELD.add(fd)
    return fd


def let_go(fd: int) -> None:
    """Close it, and give up the lock; in a forked child that was done long ago."""
    if fd in _HELD:
        _HELD.remove(fd)
        os.close(fd)


def _forget() -> None:
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_forget)


class Lock:
    """One writer at a time: flock on a file; a dead process holds nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._process = path, os.getpid()
        self._fd = -1
        while self._fd < 0:
            self._fd = self._try()

    def _try(self) -> int:
        fd = hold(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            let_go(fd)
            raise BusyError(
                f"{self._path}: another writer is at work here", hint="close() the other one, or wait for it to end"
            ) from None
        # The file may have been removed by its last holder between our open and our flock.
        if self._path.exists() and os.path.samestat(os.fstat(fd), self._path.stat()):
            return fd
        let_go(fd)
        return -1

    def release(self) -> None:
        """Remove the file, then let go; a forked child has nothing to let go of."""
        if self._fd >= 0 and self._process == os.getpid():
            self._path.unlink(missing_ok=True)
            let_go(self._fd)
            self._fd = -1


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock of a file, as far as one can tell."""
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
    """Notices that a writer has gone. Who was never seen is not missed: not every file system shows locks to others.

    Args:
        lock: The file that a writer locks.
    """

    def __init__(self, lock: Path) -> None:
        self._lock, self._seen = lock, is_held(lock)
        self._look_at_s = self._away_s = 0.0

    def is_missed(self, *, silent: bool) -> bool:
        """Whether the writer has been away for long; asked after each try to read, `silent` if nothing was there."""
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
