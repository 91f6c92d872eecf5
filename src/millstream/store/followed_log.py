"""A chained log that other processes read while it is written: whose run it is stands beside it.

    admissions.jsonl.run    an id that no other beginning has, and where in the log that run begins

Who writes says so when a run begins, behind what was cut off; who follows reads no line before that, so a log that lies
there from a run that was killed is not taken for the one that is about to begin.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from millstream.errors import LoaderError, StateError, StoreError
from millstream.store import disk
from millstream.store.chained_log import FREE_SPACE, LogReader, Position, lock_path
from millstream.store.journal import Lock
from millstream.store.manifest import compact
from millstream.store.presence import Presence

ALIKE = "load the same state on all ranks, or reset all of them"
GONE = "end all ranks together; after a crash start all of them again, and load the last state"


def announce(log: Path, position: Position) -> None:
    """Say that a run begins at a position of the log."""
    with disk.reported(log, full=FREE_SPACE):
        disk.publish(_beside(log), compact({"run": uuid4().hex, "position": position.to_json()}))


def forget(log: Path) -> None:
    """Say that no run has begun, unless somebody is writing one."""
    if not _beside(log).exists():
        return
    with suppress(StoreError), disk.reported(log):
        lock = Lock(lock_path(log))
        try:
            disk.remove(_beside(log))
        finally:
            lock.release()


class FollowedLog:
    """Reads the lines of a run that begins at a position, as they are written.

    Args:
        path: The log.
        position: Where this reader stands, and the run begins.
        over: A run that is not meant: it was followed before, and all began anew.
    """

    def __init__(self, path: str | os.PathLike[str], position: Position, *, over: str | None = None) -> None:
        self._reader, self._first, self._over = LogReader(path, position), position, over
        self._writer = Presence(lock_path(Path(path)))
        self.run: str | None = None
        """The run that is followed, as soon as there is one."""

    def next(self) -> dict[str, Any] | None:
        """What the next line says, or None as long as there is none."""
        if not self.has_begun():
            return None
        try:
            said = self._reader.read()
        except StoreError as error:
            if self.has_begun():  # else rank 0 has begun anew meanwhile
                raise StateError(f"rank 0 has gone another way than this rank: {error}", hint=ALIKE) from error
            raise
        if self._writer.is_missed(silent=said is None):
            raise LoaderError(f"{self._reader.path}: rank 0 has ended, and this rank waits for what it says", hint=GONE)
        return said

    def has_begun(self) -> bool:
        """Whether there is a run to follow."""
        try:
            said = json.loads(_beside(self._reader.path).read_bytes())
            run, position = str(said["run"]), Position.from_json(said["position"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.run is not None
        if self.run is None and run != self._over and position == self._first:
            self.run = run
        if self.run not in (None, run):
            raise StateError(f"{self._reader.path}: rank 0 has begun anew, and this rank has not", hint=ALIKE)
        return self.run is not None


def _beside(log: Path) -> Path:
    return log.with_name(log.name + ".run")
