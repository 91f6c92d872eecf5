"""The arrivals of a spool: in which order its consumer took the shards of all producers.

    arrivals.log     a chained log (`storage/log.py`), a line each
        {"first": n, "log": id, "taken": {producer: shard}}    the head: arrivals before n are gone
        {"arrived": [["producer", "000001-00000000"], ...]}    the next arrivals
        {"released": n}                                        shards of arrivals before n may be gone

The order is durable before the consumer delivers a shard, so after a crash the order is read back. A release is written
before the first shard is removed: a crash in between leaves shards that the next consumer removes. The first broken
line ends the log: it was being written when its consumer died, and nothing it names was delivered.

Version 1 had a CRC-32 before each line, and an arrival a line. A consumer that finds such a log rewrites it.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from millstream.errors import StateError, StoreError
from millstream.feeds.shards import Shard, is_producer, is_shard
from millstream.storage import ChainedLog, DamagedLine, LogReader, Position, disk, holds

COMPACT_AFTER = 1024
"""How many released arrivals the log keeps at most before it is rewritten."""
FORMAT = "millstream arrivals 2"
START = Position.start(FORMAT)

log = logging.getLogger("millstream.feeds")


class ArrivalLog:
    """The log of one spool, as it is read; `ArrivalWriter` also writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = ""
        self.first = self.released = 0
        self.shards: list[Shard] = []
        self.taken: dict[str, str] = {}
        """The last shard of each producer; always this same dict."""
        self._position = START
        self._is_old = False
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
        """Read what was written since; a log that was rewritten is read from its start."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            if not holds(file.fileno(), self._position):
                self._position = START
            if not self._position.offset:
                self._is_old, self.shards = _is_old(file), []
            for entry in _old_lines(file) if self._is_old else self._lines(file):
                self._understand(entry)

    def _lines(self, file: BinaryIO) -> Iterator[dict[str, Any]]:
        reader = LogReader(self.path, self._position)
        try:
            for entry in reader.lines_in(file):
                self._position = reader.position
                yield entry
        except DamagedLine as error:
            self._broken(error)

    def _broken(self, error: DamagedLine) -> None:
        """A line is broken; a reader may be reading it while it is written."""

    def _understand(self, entry: Any) -> None:
        match entry:
            case {"arrived": list(shards)} if all(map(_is_arrival, shards)):
                for producer, name in shards:
                    self.shards.append(Shard(producer, name))
                    self.taken[producer] = name
            case {"log": str(log_id), "first": int(first), "taken": dict(taken)}:
                self.id, self.first = log_id, first
                self.taken.update(taken)
                self.released = max(self.released, first)
            case {"released": int(released)}:
                self.released = max(self.released, released)
            case _:
                raise StoreError(f"{self.path}: a line of an unknown kind", hint="use the version that wrote it")


class ArrivalWriter(ArrivalLog):
    """The log of the one consumer that takes shards."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = ChainedLog(path, FORMAT, self._position)
        try:
            if self._is_old or not self.id:  # without a head nothing was delivered
                self.id = self.id or uuid4().hex
                self._rewrite()
            else:
                self._log.cut()
        except BaseException:
            self._log.close()
            raise

    def append(self, shards: Iterable[Shard]) -> None:
        """Take shards; durable when this returns."""
        self._write({"arrived": [list(shard) for shard in shards]})

    def release(self, upto: int) -> None:
        """Note that shards of arrivals before this one may be removed; durable when this returns."""
        if upto > self.released:
            self._write({"released": upto})

    def compact(self) -> None:
        """Forget released arrivals, when there are many. Their shards must be gone."""
        if self.released - self.first < COMPACT_AFTER:
            return
        del self.shards[: self.released - self.first]
        self.first = self.released
        with disk.reported(self.path, full="free some space; nothing of the log is lost"):
            self._rewrite()

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _broken(self, error: DamagedLine) -> None:
        log.warning("%s; the log ends before it, and what lies there is cut off", error.message)

    def _write(self, entry: dict[str, Any]) -> None:
        with disk.reported(self.path, full="free some space: nothing was taken that is not in the log"):
            try:
                self._position = self._log.write(entry)
            except StoreError:
                self._log.cut()  # so that no follower reads a line that may not last
                raise
        self._understand(entry)

    def _rewrite(self) -> None:
        head = {"log": self.id, "first": self.first, "taken": self.taken}
        arrived = [{"arrived": [list(shard) for shard in self.shards]}] if self.shards else []
        released = [{"released": self.released}] if self.released > self.first else []
        try:
            self._log.replace(head, *arrived, *released)
        finally:
            self._position, self._is_old = self._log.position, False


def _is_arrival(entry: Any) -> bool:
    match entry:
        case [str(producer), str(name)]:
            return is_producer(producer) and is_shard(name)
    return False


def _is_old(file: BinaryIO) -> bool:
    """Whether this is a log of version 1: its lines begin with a checksum, ours with a brace."""
    file.seek(0)
    return file.read(9)[8:] == b" "


def _old_lines(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """The lines of a log of version 1, as version 2 writes them; the first that is broken ends it."""
    file.seek(0)
    for line in file.read().splitlines(keepends=True):
        if line[8:9] != b" " or line[-1:] != b"\n" or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
            return
        entry = json.loads(line[9:-1])
        yield {"arrived": [entry]} if isinstance(entry, list) else entry
