"""The journal of admissions: one readable line per cut, appended before the batch is given out.

A line ends with a hash of itself and of all before it, so damage is found, and a line that was being written when the
power went is not read. Other ranks follow the one that decides by reading behind it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from millstream.admission.cut import Cut
from millstream.admission.identity import Drop, Name, drop_from_json, drop_to_json, name_from_json, name_to_json
from millstream.errors import StateError, StoreError
from millstream.rollouts import Id
from millstream.store import disk
from millstream.store.journal import Lock
from millstream.store.manifest import compact

logger = logging.getLogger("millstream.admission")
FORMAT = "millstream admissions 1"
CHAIN_BYTES = 16
END = b',"chain":"%s"}\n'
"""How a line ends, with its hash."""
END_BYTES = len(END % bytes(2 * CHAIN_BYTES))
OTHER_RUN = (
    "it belongs to another run, or was damaged; those that were put aside lie beside it with .1, .2, … at their end"
)
FREE_SPACE = "free some space, then go on from the last state"


@dataclass(frozen=True)
class RecordedGroup:
    """A group of a cut; of those that came again only the id is written."""

    id: Id
    replayed: bool
    names: tuple[Name, ...]


@dataclass(frozen=True)
class Entry:
    """A cut as it was decided."""

    step: int
    policy_version: int
    groups: tuple[RecordedGroup, ...]
    drops: tuple[Drop, ...]
    tokens: tuple[int, ...]
    """Of each rollout, those that came again too; 0 for those that are only compared with."""
    received: Mapping[str, Any] | None = None
    """The place in the feed behind everything that had been let in."""

    @classmethod
    def of(cls, cut: Cut, received: Mapping[str, Any] | None = None) -> Entry:
        """What is written down of a cut."""
        groups = zip(cut.group_ids, cut.replayed, cut.names, strict=True)
        recorded = tuple(RecordedGroup(*each) for each in groups)
        return cls(cut.step, cut.policy_version, recorded, cut.drops, cut.tokens, received)

    @property
    def is_end(self) -> bool:
        """Whether nothing more was there to be cut."""
        return not self.groups

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        groups = [[group.id, group.replayed, [name_to_json(name) for name in group.names]] for group in self.groups]
        drops = [drop_to_json(drop) for drop in self.drops]
        place = {"step": self.step, "policy_version": self.policy_version}
        feed = {} if self.received is None else {"received": dict(self.received)}
        return {**place, "groups": groups, "tokens": list(self.tokens), "drops": drops, **feed}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Entry:
        """Read it back."""
        groups = tuple(
            RecordedGroup(group, replayed, tuple(map(name_from_json, names)))
            for group, replayed, names in saved["groups"]
        )
        drops = tuple(map(drop_from_json, saved["drops"]))
        tokens = tuple(map(int, saved["tokens"]))
        return cls(saved["step"], saved["policy_version"], groups, drops, tokens, saved.get("received"))


@dataclass(frozen=True)
class Position:
    """A place between two lines: bytes and entries before it, and the hash of all of these."""

    offset: int = 0
    entries: int = 0
    chain: str = hashlib.blake2b(FORMAT.encode(), digest_size=CHAIN_BYTES).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """As a state keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Position:
        """Read it back; nothing in a state is trusted."""
        offset, entries, chain = (saved.get(key) for key in ("offset", "entries", "chain"))
        if type(offset) is not int or type(entries) is not int or not isinstance(chain, str) or offset < 0:
            raise StateError("the state does not say where its journal stood", hint="take an older state")
        return cls(offset, entries, chain)


START = Position()


def _ended(body: bytes, before: str) -> tuple[bytes, str]:
    """A line that says `body`, and its hash, which goes on from the one before."""
    chain = hashlib.blake2b(before.encode("ascii") + body, digest_size=CHAIN_BYTES).hexdigest()
    return body[:-1] + END % chain.encode("ascii"), chain


def _holds(journal: int, position: Position) -> bool:
    """Whether a position is one of a journal: the line before it ends with its hash."""
    end = os.pread(journal, END_BYTES, max(0, position.offset - END_BYTES))
    return not position.offset or end == END % position.chain.encode()


def lock_path(journal: Path) -> Path:
    """What the one who writes a journal holds."""
    return journal.with_name(journal.name + ".lock")


class JournalReader:
    """Reads entries one by one, those that are still to be written too, unless the journal is `whole`."""

    def __init__(self, path: str | os.PathLike[str], position: Position = START, *, whole: bool = False) -> None:
        self.path, self.position, self.whole = Path(path), position, whole

    def next(self) -> Entry | None:
        """The next entry, or None as long as there is none."""
        if not self.path.exists():
            return None
        with disk.reported(self.path), self.path.open("rb") as file:
            file.seek(self.position.offset)
            line = file.readline()
        if not line.endswith(b"\n"):
            return None
        body = line[:-END_BYTES] + b"}"
        expected, chain = _ended(body, self.position.chain)
        where = f"{self.path}: entry {self.position.entries}, byte {self.position.offset}"
        if line != expected:
            raise StoreError(f"{where}: the line or one before it is damaged", hint=OTHER_RUN)
        try:
            entry = Entry.from_json(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{where}: this is not a cut: {error}", hint=OTHER_RUN) from None
        self.position = Position(self.position.offset + len(line), self.position.entries + 1, chain)
        return entry

    def takes_back(self) -> bool:
        """Whether the last entry is not to be followed any more."""
        return False

    def waiting_for(self) -> str:
        """What is waited for, in words."""
        return f"{self.path}: the next cut is not written yet"

    def __iter__(self) -> Iterator[Entry]:
        """All entries that are there."""
        while (entry := self.next()) is not None:
            yield entry


class Journal:
    """Writes entries. One writer at a time; a line is on the disk when `append` returns."""

    def __init__(self, path: str | os.PathLike[str], position: Position | None = None, *, anew: bool = False) -> None:
        """Go on behind the last whole entry; or at a position, and what was written behind it is cut off.

        With `anew` a run begins: a journal that is there is another run's, and is put aside.
        """
        self.path, self._fd = Path(path), -1
        with disk.reported(self.path, full=FREE_SPACE):
            disk.make_directory(self.path.parent)
            self._lock = Lock(lock_path(self.path))
            try:
                if anew:
                    self._put_aside()
                self._fd = disk.reopen(self.path) if self.path.exists() else disk.create(self.path)
                self.go_back(self._end() if position is None else position)
                disk.sync_directory(self.path.parent)
            except BaseException:
                self.close()
                raise

    def _put_aside(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        numbered = (self.path.with_name(f"{self.path.name}.{number}") for number in count(1))
        aside = next(path for path in numbered if not path.exists())
        disk.rename(self.path, aside)
        logger.warning("%s: the journal of another run was put aside as %s", self.path, aside.name)

    def go_back(self, position: Position) -> None:
        """Stand at a position of this journal, or of one that was put aside: what was written behind it is cut off."""
        with disk.reported(self.path, full=FREE_SPACE):
            if not _holds(self._fd, position):
                self._bring_back(position)
            disk.truncate(self._fd, position.offset)
            disk.sync(self._fd)
        self.position = position if position.offset else START

    def _bring_back(self, position: Position) -> None:
        """Go on with the journal of a position, which a run that began without its state has put aside."""
        for aside in sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*")):
            with aside.open("rb") as file:
                found = _holds(file.fileno(), position)
            if found:
                self._put_aside()
                disk.rename(aside, self.path)
                disk.sync_directory(self.path.parent)
                before, self._fd = self._fd, disk.reopen(self.path)
                os.close(before)
                logger.warning("%s: the journal of the state was brought back from %s", self.path, aside.name)
                return
        raise StateError(f"{self.path}: this is not the journal of the state, nor is one beside it", hint=OTHER_RUN)

    def _end(self) -> Position:
        reader = JournalReader(self.path)
        for _ in reader:
            pass
        return reader.position

    def append(self, cut: Cut, received: Mapping[str, Any] | None = None) -> Position:
        """Write a cut down, and wait until it is on the disk."""
        return self._write(Entry.of(cut, received))

    def append_end(self, step: int, policy_version: int) -> Position:
        """Write down that nothing more is there to be cut for a step: who follows waits no longer."""
        return self._write(Entry(step, policy_version, (), (), ()))

    def _write(self, entry: Entry) -> Position:
        before = self.position
        line, chain = _ended(compact(entry.to_json()), before.chain)
        with disk.reported(self.path, full=FREE_SPACE):
            disk.write(self._fd, line, before.offset)
            disk.sync(self._fd)
        self.position = Position(before.offset + len(line), before.entries + 1, chain)
        return self.position

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
