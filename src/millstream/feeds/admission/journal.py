"""The journal of admissions: one readable line per cut, appended before the batch is given out.

The leader decides and writes; follower ranks read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import StoreError
from millstream.feeds.admission.batch import AdmittedBatch
from millstream.feeds.admission.seen import Drop, Name, drop_from_json, drop_to_json, name_from_json, name_to_json
from millstream.rollouts import Id
from millstream.storage import OTHER_RUN, ChainedLog, FollowedLog, LogReader, Position

FORMAT = "millstream admissions 1"
START_OF_JOURNAL: Position = Position.start(FORMAT)


@dataclass(frozen=True)
class RecordedGroup:
    """A group of a cut; of those that came again only the id is written."""

    id: Id
    replayed: bool
    names: tuple[Name, ...]


@dataclass(frozen=True)
class AdmissionEntry:
    """A cut as it was decided."""

    step: int
    policy_version: int
    groups: tuple[RecordedGroup, ...]
    drops: tuple[Drop, ...]
    tokens: tuple[int, ...]
    """Of each rollout, those that came again too; 0 for those that are only compared with."""
    received: Mapping[str, Any] | None = None
    """The place in the feed after everything that had been let in."""
    withdrawn: bool = False
    """Whether this takes back the cut of this step, and all after it: the trainer trains another version."""

    @classmethod
    def of(cls, cut: AdmittedBatch, received: Mapping[str, Any] | None = None) -> AdmissionEntry:
        """What is written down of a cut."""
        groups = zip(cut.group_ids, cut.replayed, cut.names, strict=True)
        recorded = tuple(RecordedGroup(*each) for each in groups)
        return cls(cut.step, cut.policy_version, recorded, cut.drops, cut.tokens, received)

    @property
    def is_end(self) -> bool:
        """Whether nothing more was there to be cut."""
        return not self.groups and not self.withdrawn

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        groups = [[group.id, group.replayed, [name_to_json(name) for name in group.names]] for group in self.groups]
        drops = [drop_to_json(drop) for drop in self.drops]
        place = {"step": self.step, "policy_version": self.policy_version}
        feed = {} if self.received is None else {"received": dict(self.received)}
        taken_back = {"withdrawn": True} if self.withdrawn else {}
        return {**place, **taken_back, "groups": groups, "tokens": list(self.tokens), "drops": drops, **feed}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> AdmissionEntry:
        """Read it back."""
        groups = tuple(
            RecordedGroup(group, replayed, tuple(map(name_from_json, names)))
            for group, replayed, names in saved["groups"]
        )
        drops = tuple(map(drop_from_json, saved["drops"]))
        tokens = tuple(map(int, saved["tokens"]))
        place = saved["step"], saved["policy_version"]
        return cls(*place, groups, drops, tokens, saved.get("received"), saved.get("withdrawn") is True)


class JournalReader:
    """Reads entries one by one, those that are still to be written too, unless the journal is `whole`."""

    def __init__(
        self, path: str | os.PathLike[str], position: Position = START_OF_JOURNAL, *, whole: bool = False
    ) -> None:
        self._log, self.whole = LogReader(path, position), whole
        self._path, self._withdrawn = path, None if whole else frozenset[int]()

    def next(self) -> AdmissionEntry | None:
        """The next entry, or None as long as there is none. Of a whole journal, only what was not taken back."""
        if self._withdrawn is None:
            self._withdrawn = _withdrawn(JournalReader(self._path, self._log.position))
        while self._log.position.entries in self._withdrawn:
            self._log.read()
        return self._next()

    def _next(self) -> AdmissionEntry | None:
        where, before = self._log.where, self._log.position
        said = self._log.read()
        try:
            return None if said is None else AdmissionEntry.from_json(said)
        except (ValueError, KeyError, TypeError) as error:
            self._log.position = before
            raise StoreError(f"{where}: this is not a cut: {error}", hint=OTHER_RUN) from None

    def takes_back(self) -> bool:
        """Whether the last entry is not to be followed any more."""
        return False

    def check(self) -> None:
        """Raise StateError if what was read is not what is trained on any more."""

    def waiting_for(self) -> str:
        """What is waited for, in words."""
        return f"{self._log.path}: the next cut is not written yet"

    def __iter__(self) -> Iterator[AdmissionEntry]:
        """All entries that are there."""
        while (entry := self.next()) is not None:
            yield entry


def _withdrawn(reader: JournalReader) -> frozenset[int]:
    """The numbers of entries that are taken back by later ones, and of those that take back."""
    standing, gone = list[tuple[int, int]](), set[int]()
    while True:
        number = reader._log.position.entries
        entry = reader.next()
        if entry is None:
            return frozenset(gone)
        while entry.withdrawn and standing and standing[-1][0] >= entry.step:
            gone.add(standing.pop()[1])
        if entry.withdrawn:
            gone.add(number)
        else:
            standing.append((entry.step, number))


class FollowedJournal(JournalReader):
    """Reads the entries of a run that another process decides."""

    def __init__(self, log: FollowedLog) -> None:
        super().__init__(log.path)
        self._log = self.log = log

    def takes_back(self) -> bool:
        """Whether the last entry is none of the run's: another one has begun meanwhile."""
        return self.log.takes_back()

    def check(self) -> None:
        """Raise StateError if rank 0 has begun another run since."""
        self.log.has_begun()

    def waiting_for(self) -> str:
        """What is waited for, in words."""
        return (
            super().waiting_for()
            if self.log.run
            else f"{self.log.path}: rank 0 has begun no run where this rank stands"
        )


class AdmissionJournal(ChainedLog):
    """Writes entries. One writer at a time; a line is on the disk when `append` returns."""

    def __init__(self, path: str | os.PathLike[str], position: Position | None = None) -> None:
        """Continue after the last whole entry, or at a position."""
        super().__init__(path, FORMAT, position)

    def go_back(self, position: Position) -> None:
        """Stand at a position of this journal, or of one that was put aside: what was written after it is cut off.

        At the very beginning nothing tells whose journal it is: it is put aside.
        """
        if not position.offset:
            self.put_aside()
        super().go_back(position)
        self.cut()

    def append(self, cut: AdmittedBatch, received: Mapping[str, Any] | None = None) -> Position:
        """Write a cut down, and wait until it is on the disk."""
        return self.write(AdmissionEntry.of(cut, received).to_json())

    def append_withdrawal(self, step: int, policy_version: int) -> Position:
        """Write down that the cut of a step, and those after it, are not trained on."""
        return self.write(AdmissionEntry(step, policy_version, (), (), (), withdrawn=True).to_json())

    def append_end(self, step: int, policy_version: int) -> Position:
        """Write down that nothing more is there to be cut for a step: followers wait no longer."""
        return self.write(AdmissionEntry(step, policy_version, (), (), ()).to_json())
