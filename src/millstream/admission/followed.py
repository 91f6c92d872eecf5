"""Whose journal it is: who decides says beside it when a run begins, and who follows reads no other run's cuts.

    admissions.jsonl.run    an id that no other beginning has, and where in the journal the run begins

Between the opening of a journal and the beginning of a run there is none: what the journal holds is of a run that is
over, and is put aside or cut back before the next one begins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from millstream.admission.journal import START, Entry, JournalReader
from millstream.errors import MillstreamError, StateError, StoreError
from millstream.store import disk
from millstream.store.chained_log import FREE_SPACE, Position, lock_path
from millstream.store.journal import Lock
from millstream.store.manifest import compact


@dataclass(frozen=True)
class Beginning:
    """That of a run."""

    run: str
    position: Position

    @classmethod
    def of(cls, journal: Path) -> Beginning | None:
        """What is said beside a journal, if a run has begun."""
        try:
            said = json.loads(_beside(journal).read_bytes())
            return cls(str(said["run"]), Position.from_json(said["position"]))
        except (OSError, ValueError, KeyError, TypeError, MillstreamError):
            return None


def prepare(journal: Path, position: Position) -> None:
    """Write down where the next run begins: a disk that is full says so before anything is changed."""
    said: Mapping[str, object] = {"run": uuid4().hex, "position": position.to_json()}
    with disk.reported(journal, full=FREE_SPACE):
        disk.publish(_prepared(journal), compact(said))


def begin(journal: Path) -> None:
    """Say that the run begins, behind what is cut off the journal and before its first cut is written."""
    with disk.reported(journal, full=FREE_SPACE):
        disk.rename(_prepared(journal), _beside(journal))


def forget(journal: Path) -> None:
    """Say that no run has begun, unless one is being written."""
    if not _beside(journal).exists():
        return
    with suppress(StoreError), disk.reported(journal):
        lock = Lock(lock_path(journal))
        try:
            disk.remove(_beside(journal))
        finally:
            lock.release()


class FollowedJournal(JournalReader):
    """Reads the entries of a run that begins at a position, as they are written; of a run that is `over`, none."""

    def __init__(self, path: str | os.PathLike[str], position: Position = START, *, over: str | None = None) -> None:
        super().__init__(path, position)
        self.run: str | None = None
        """The run that is followed, as soon as it is known."""
        self.over, self._first, self._before = over, position, position

    def next(self) -> Entry | None:
        """The next entry of the run, or None as long as there is none."""
        self._before = self.position
        try:
            entry = super().next()
        except StoreError:
            if self._is_followed():
                raise
            entry = None
        if entry is not None and not self._is_followed():  # asked behind the reading: it is said before it is written
            entry = None
        if entry is None:
            self.position = self._before
        return entry

    def takes_back(self) -> bool:
        """Whether the last entry is none of the run's: another one has begun meanwhile."""
        followed, last = self.run, self.position
        self.position = self._before
        if self._is_followed() and self.run == followed:
            self.position = last
            return False
        return True

    def waiting_for(self) -> str:
        """What is waited for, in words."""
        return super().waiting_for() if self.run else f"{self.path}: rank 0 has begun no run where this rank stands"

    def _is_followed(self) -> bool:
        """Whether the journal is that of the run that is followed."""
        found = Beginning.of(self.path)
        if found is None or found.run == self.over:
            return False
        if found.run != self.run:
            if self._before != self._first:
                raise StateError(
                    f"{self.path}: rank 0 has begun anew, and this rank stands at entry {self._before.entries} of the "
                    "run before",
                    hint="load the same state on all ranks, or reset all of them",
                )
            if found.position != self._first:
                return False
            self.run = found.run
        return True


def _prepared(journal: Path) -> Path:
    return journal.with_name(journal.name + ".run.next")


def _beside(journal: Path) -> Path:
    return journal.with_name(journal.name + ".run")
