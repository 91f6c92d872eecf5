"""The arrivals of a spool: in which order its consumer took the shards of all producers.

    arrivals.log     a line each: a checksum, and JSON
        {"log": id, "first": n, "taken": {producer: shard}}    the head: arrivals before n are gone
        ["producer", "000001-00000000"]                        the next arrival
        {"released": n}                                        shards of arrivals before n may be gone

The order is durable before anybody is given what it names: after a crash it is read, not found again. A release is
written before the first shard is removed, so a crash in between leaves shards that the next consumer removes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from millstream.errors import StateError, StoreError
from millstream.feeds.shards import is_producer, is_shard
from millstream.storage import disk

COMPACT_AFTER = 1024
"""How many released arrivals the log keeps at most before it is written anew."""


class Shard(NamedTuple):
    """A shard of a producer."""

    producer: str
    name: str


class ArrivalLog:
    """The log of one spool, as it is read; `ArrivalWriter` also writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""
        self.first = self.released = 0
        self.shards: list[Shard] = []
        self.taken: dict[str, str] = {}
        """The last shard of each producer; always this same dict."""
        self._inode, self._offset = -1, 0
        self.refresh()

    @property
    def end(self) -> int:
        """The number of the arrival that comes next."""
        return self.first + len(self.shards)

    def __getitem__(self, arrival: int) -> Shard:
        if arrival < self.first:
            raise StateError(
                f"{self.path}: arrival {arrival} was released (the first that is kept is {self.first})",
                hint="commit a state only when all ranks have reached it, and resume from the last committed one",
            )
        return self.shards[arrival - self.first]

    def kept(self) -> list[Shard]:
        """The shards that were not released."""
        return self.shards[self.released - self.first :]

    def refresh(self) -> None:
        """Read what was written since."""
        try:
            with self.path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._forget(inode)
                file.seek(self._offset)
                self._read(file.read())
        except FileNotFoundError:
            return

    def _forget(self, inode: int) -> None:
        self._inode, self._offset, self.shards = inode, 0, []

    def _read(self, data: bytes) -> None:
        """Understand whole lines; the first that is none ends it: it is being written, or was when the power failed."""
        for line in data.splitlines(keepends=True):
            if (entry := _parsed(line)) is None:
                return
            self._offset += len(line)
            self._understand(entry)

    def _understand(self, entry: Any) -> None:
        match entry:
            case [str(producer), str(name)] if is_producer(producer) and is_shard(name):
                self.shards.append(Shard(producer, name))
                self.taken[producer] = name
            case {"log": str(log), "first": int(first), "taken": dict(taken)}:
                self.id, self.first = log, first
                self.taken.update(taken)
                self.released = max(self.released, first)
            case {"released": int(released)}:
                self.released = max(self.released, released)
            case _:
                raise StoreError(f"{self.path}: a line that nobody here wrote", hint="use the version that wrote it")


class ArrivalWriter(ArrivalLog):
    """The log of the one consumer that takes shards."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with disk.reported(path, full="free some space, then go on from the last state"):
            if not self.id:  # none is there, or it broke in its first line: nobody was given anything
                self.id = uuid4().hex
                self._publish()
            self._fd = disk.reopen(path)
            disk.truncate(self._fd, self._offset)

    def append(self, shards: Iterable[Shard]) -> None:
        """Take shards; durable when this returns."""
        self._write(list(shards))

    def release(self, upto: int) -> None:
        """Note that shards of arrivals before this one may be removed; durable when this returns."""
        if upto > self.released:
            self._write([{"released": upto}])

    def compact(self) -> None:
        """Forget released arrivals, when there are many. Their shards must be gone."""
        if self.released - self.first < COMPACT_AFTER:
            return
        del self.shards[: self.released - self.first]
        self.first = self.released
        with disk.reported(self.path, full="free some space; nothing of the log is lost"):
            try:
                self._publish()
            finally:
                self._reopen()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, entries: list[Any]) -> None:
        lines = b"".join(map(_line, entries))
        with disk.reported(self.path, full="free some space: nothing was taken that is not in the log"):
            try:
                disk.write(self._fd, lines, self._offset)
                disk.sync(self._fd)
            except OSError:
                disk.truncate(self._fd, self._offset)
                raise
        self._offset += len(lines)
        for entry in entries:
            self._understand(list(entry) if isinstance(entry, Shard) else entry)

    def _publish(self) -> None:
        data = b"".join(map(_line, [{"log": self.id, "first": self.first, "taken": self.taken}, *self.shards]))
        disk.publish(self.path, data)
        self._inode, self._offset = self.path.stat().st_ino, len(data)

    def _reopen(self) -> None:
        """Go on in the file that is there now: publishing may have failed before or after its rename."""
        os.close(self._fd)
        self._fd = disk.reopen(self.path)
        found = os.fstat(self._fd)
        if found.st_ino != self._inode:
            self._inode, self._offset = found.st_ino, found.st_size


def _line(entry: Any) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> Any:
    if line[8:9] != b" " or line[-1:] != b"\n" or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
        return None
    return json.loads(line[9:-1])
