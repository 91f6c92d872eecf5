"""A chained log that other processes follow while it is written.

    admissions.jsonl.run    a unique id of the run, where in the log it begins, and the facts that writer and followers
                            must share

The writer publishes a run id after truncating the log. A follower checks that id before and after each read, so it
never mistakes a stale log, or one that restarts meanwhile, for the current run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from millstream.errors import LoaderError, OrderError, StateError, StoreError
from millstream.storage.checked_json import compact
from millstream.storage.durable import disk
from millstream.storage.lock import Lock, Presence
from millstream.storage.log import FREE_SPACE, LogReader, Position, lock_path

ALIKE = "load the same state on all ranks, or reset all of them"
GONE = "end all ranks together; after a crash start all of them again, and load the last state"


@contextmanager
def announced(log: Path, position: Position, facts: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Publish that a run begins at a position, after the block has ended well.

    The file is written before the block, so a full disk raises before anything changes.
    """
    prepared = log.with_name(log.name + ".run.next")
    said = {"run": uuid4().hex, "position": position.to_json(), "facts": dict(facts or {})}
    with disk.reported(log, full=FREE_SPACE):
        disk.publish(prepared, compact(said))
    yield
    with disk.reported(log, full=FREE_SPACE):
        disk.rename(prepared, _beside(log))


def announce(log: Path, position: Position, facts: Mapping[str, Any] | None = None) -> None:
    """Publish that a run begins at a position of the log, and the facts that its followers must share."""
    with announced(log, position, facts):
        pass


def forget(log: Path) -> None:
    """Withdraw the run id, unless a process is writing the run."""
    if not _beside(log).exists():
        return
    with suppress(StoreError), disk.reported(log), Lock(lock_path(log)):
        disk.remove(_beside(log))


class FollowedLog(LogReader):
    """Reads the lines of a run that begins at a position, as they are written.

    Args:
        path: The log.
        position: Where the run begins, and reading starts.
        over: The id of a run that is over: it was followed before, and all ranks began anew.
        facts: What the writer must have in common with this reader.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        position: Position,
        *,
        over: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path, position)
        self._facts = json.loads(json.dumps(dict(facts or {})))
        self._first, self._before, self._over = position, position, over
        self._writer = Presence(lock_path(self.path))
        self.run: str | None = None
        """The id of the run that is followed, as soon as there is one."""

    def anew(self, position: Position) -> FollowedLog:
        """Follow another run than before, from a position on."""
        return FollowedLog(self.path, position, over=self.run or self._over, facts=self._facts)

    def read(self) -> dict[str, Any] | None:
        """The next line of the run, or None as long as there is none."""
        self._before = self.position
        if not self.has_begun():
            return None
        try:
            said = super().read()
        except StoreError as error:
            if self.takes_back():
                return None
            raise StateError(f"rank 0 has gone another way than this rank: {error}", hint=ALIKE) from error
        if self.takes_back():
            return None
        if self._writer.is_missed(silent=said is None):
            raise LoaderError(f"{self.path}: rank 0 has ended, and this rank waits for what it says", hint=GONE)
        return said

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All lines of the run that are there."""
        return iter(self.read, None)

    def takes_back(self) -> bool:
        """Unread the last line if another run has begun meanwhile; gives whether that is so."""
        followed, last = self.run, self.position
        self.position = self._before
        if not self.has_begun() or self.run != followed:
            return True
        self.position = last
        return False

    def has_begun(self) -> bool:
        """Whether there is a run to follow; before the first line it is the newest that began at this position."""
        try:
            said = json.loads(_beside(self.path).read_bytes())
            run, begins, facts = str(said["run"]), Position.from_json(dict(said["position"])), dict(said["facts"])
        except (OSError, ValueError, KeyError, TypeError, StateError):
            return False
        if run == self.run:
            return True
        if self.run is not None and self.position != self._first:
            raise StateError(f"{self.where}: rank 0 has begun anew, and this rank stands in the run before", hint=ALIKE)
        if run != self._over and begins == self._first:
            self._compare(facts)
            self.run = run
        return run == self.run

    def _compare(self, facts: Mapping[str, Any]) -> None:
        for key, mine in self._facts.items():
            if facts.get(key) != mine:
                raise OrderError(
                    f"the ranks do not follow one plan: {key} is {facts.get(key)!r} on rank 0, {mine!r} on this rank",
                    hint="make the loader with the same settings on every rank",
                )


def _beside(log: Path) -> Path:
    return log.with_name(log.name + ".run")
