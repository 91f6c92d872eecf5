"""The producers' folders in a spool: whole shards in the order of their names, written here and found by listing.

    <spool>/<producer>/session                       how often a producer of this name has begun
    <spool>/<producer>/000001-00000000.rollouts      session and number: blocks of rollouts end to end
    <spool>/<producer>/end                           nothing more comes

A shard is written under another name and renamed, so a listing holds whole shards only. Names only grow, also when the
consumer has removed all shards before a producer of that name begins again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from millstream.errors import BusyError, LoaderError, StoreError
from millstream.storage import Bytes, Lock, disk

SUFFIX = ".rollouts"
END = "end"
DAMAGED = "damaged"
SESSION = "session"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHARD = re.compile(r"[0-9]{6}-[0-9]{8}")
_FULL = "free some space; nothing of this was written, put the same rollouts again"
_SETTLED_S = 2.0
"""A folder that looks unchanged for so long need not be listed again; the clocks of file systems are coarse."""


class Shard(NamedTuple):
    """A shard of a producer."""

    producer: str
    name: str


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
        session: Continue a session that was begun before; None: begin a new one.
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
        """Raise if this is not the session that the caller expects."""
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
                # Even if the folder cannot be synced: a shard that a consumer may have seen is not written twice.
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


@dataclass(frozen=True)
class _FolderListing:
    """What a folder holds."""

    changed_ns: int
    since_s: float
    """When this change was first seen, by our own clock."""
    settled: bool
    names: list[str]
    ended: bool


class ShardDiscovery:
    """Looks through the folders of all producers.

    Args:
        spool: The spool's folder.
        taken: The last shard of each producer that was taken, kept up to date by the caller.
    """

    def __init__(self, spool: Path, taken: Mapping[str, str]) -> None:
        self._spool, self._taken = spool, taken
        self._listings: dict[str, _FolderListing] = {}
        self.was_open = False
        """Whether a producer was seen that had not ended."""

    def taken(self) -> list[Shard]:
        """Shards that were taken, and are still there."""
        self._look()
        return [
            Shard(producer, name)
            for producer, listing in self._listings.items()
            for name in listing.names
            if name <= self._taken.get(producer, "")
        ]

    def untaken(self) -> list[Shard]:
        """Shards that came in: those of a producer in their order, all producers by turns."""
        self._look()
        names = [
            [Shard(producer, name) for name in listing.names if name > self._taken.get(producer, "")]
            for producer, listing in sorted(self._listings.items())
        ]
        return [shard for shard in chain.from_iterable(zip_longest(*names)) if shard is not None]

    def ended(self) -> bool:
        """Whether every producer has said that nothing more comes, and everything was taken."""
        return not self.untaken() and bool(self._listings) and all(each.ended for each in self._listings.values())

    def _look(self) -> None:
        with os.scandir(self._spool) as entries:
            folders = {each.name: each for each in entries if is_producer(each.name) and each.is_dir()}
        for name in self._listings.keys() - folders.keys():
            del self._listings[name]
        for name, entry in folders.items():
            changed_ns, now_s = entry.stat().st_mtime_ns, time.monotonic()
            known = self._listings.get(name)
            unchanged = known is not None and known.changed_ns == changed_ns
            if known is not None and unchanged and known.settled:
                continue
            since_s = known.since_s if known is not None and unchanged else now_s
            if has_begun(self._spool / name):
                self._listings[name] = self._listed(name, changed_ns, since_s, now_s)
                self.was_open = self.was_open or not self._listings[name].ended

    def _listed(self, producer: str, changed_ns: int, since_s: float, now_s: float) -> _FolderListing:
        folder = self._spool / producer
        ended = (folder / END).exists()  # looked for first: what is listed after it is all there will be
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == SUFFIX and is_shard(path.stem))
        return _FolderListing(changed_ns, since_s, now_s - since_s > _SETTLED_S, names, ended)
