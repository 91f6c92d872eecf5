"""One producer's folder in a spool: whole shards, in the order of their names, and a word when no more come.

    <spool>/<producer>/session                       how often a producer of this name has begun
    <spool>/<producer>/000001-00000000.rollouts      session and number: blocks of rollouts, one behind the other
    <spool>/<producer>/end                           nothing more comes

A shard is written beside and renamed, so whoever lists the folder sees whole ones only. Names only grow, also when the
consumer has removed all shards before a producer of that name begins again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from millstream.errors import BusyError, LoaderError, StoreError
from millstream.storage import Bytes, Lock, disk

SUFFIX = ".rollouts"
END = "end"
DAMAGED = "damaged"
SESSION = "session"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHARD = re.compile(r"[0-9]{6}-[0-9]{8}")
_FULL = "free some space; nothing of this was written, put the same rollouts again"


def is_producer(name: str) -> bool:
    """Whether a folder of this name may be a producer's.

    >>> is_producer("worker-3"), is_producer("../etc"), is_producer("damaged")
    (True, False, False)
    """
    return _NAME.fullmatch(name) is not None and name != DAMAGED


def is_shard(name: str) -> bool:
    """Whether a shard may have this name.

    >>> is_shard("000001-00000020"), is_shard("../x")
    (True, False)
    """
    return _SHARD.fullmatch(name) is not None


def has_begun(folder: Path) -> bool:
    """Whether a producer has ever written here; whatever else lies in a spool is none of its business."""
    return (folder / SESSION).exists()


def shard_name(session: int, number: int) -> str:
    """The name of a shard; later ones are greater.

    >>> shard_name(1, 20)
    '000001-00000020'
    """
    return f"{session:06d}-{number:08d}"


class ProducerFolder:
    """Writes the shards of one producer. One process at a time may hold it.

    Args:
        spool: The spool's folder.
        producer: The producer's name.
        session: Go on in a session that was begun before; None: begin a new one.
    """

    def __init__(self, spool: Path, producer: str, session: int | None = None) -> None:
        if not is_producer(producer):
            raise LoaderError(
                f"{producer!r} cannot be the name of a producer",
                hint=f"letters, digits, '.', '_' and '-', at most 100, and not '{DAMAGED}'",
            )
        self.path = spool / producer
        self.session = self.next_number = 0
        with disk.reported(self.path, full=_FULL):
            disk.make_directory(self.path)
            self._lock = Lock(
                self.path / "lock",
                busy=f"{self.path}: another producer of this name is at work",
                hint="give each producer its own name",
            )
            try:
                self._begin(session)
            except BaseException:
                self._lock.release()
                raise

    def begin_again(self) -> None:
        """Begin the next session: a producer of this name was started again."""
        with disk.reported(self.path, full=_FULL):
            self._begin(None)

    def expect(self, session: int | None) -> None:
        """Raise if this is not the session that somebody takes it for."""
        if session not in (None, self.session):
            raise BusyError(
                f"{self.path}: another producer of this name has begun", hint="give each producer its own name"
            )

    def write(self, parts: Sequence[Bytes], number: int | None = None) -> str:
        """Make a shard of the parts of encoded blocks, durable when this returns, and give its name.

        With a number, a shard of that number that is there already is the same one.
        """
        name = shard_name(self.session, self.next_number if number is None else number)
        path = self.path / (name + SUFFIX)
        with disk.reported(path, full=_FULL):
            if number is None or not path.exists():
                self._write(path, parts)
                # Even if the folder cannot be synced: a shard that somebody may have seen is not written twice.
                self.next_number = int(name.split("-")[1]) + 1
            disk.sync_directory(self.path)
        return name

    def end(self) -> None:
        """Say that nothing more comes from this producer."""
        with disk.reported(self.path, full=_FULL):
            disk.publish(self.path / END, b"")

    def close(self) -> None:
        """Let others write here."""
        self._lock.release()

    def _begin(self, session: int | None) -> None:
        for left in self.path.glob("*.tmp"):
            disk.remove(left)
        if session is None:
            disk.publish(self.path / SESSION, str(self._sessions() + 1).encode())
        self.session = self._sessions()
        self.expect(session)
        self.next_number = 0
        disk.remove(self.path / END)
        disk.sync_directory(self.path)

    def _sessions(self) -> int:
        try:
            return int((self.path / SESSION).read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise StoreError(
                f"{self.path / SESSION}: this is not the number of a session", hint="choose another name"
            ) from None

    def _write(self, path: Path, parts: Sequence[Bytes]) -> None:
        beside = path.with_suffix(".tmp")
        try:
            fd = disk.create(beside)
            try:
                disk.write_synced(fd, parts)
            finally:
                os.close(fd)
            disk.rename(beside, path)
        except OSError:
            with suppress(OSError):
                disk.remove(beside)
            raise
