"""A log of JSON lines, each of which ends with a hash of itself and of all lines before it.

The chain of hashes shows damage, and a line that was being written when the power failed is not read. One process
writes; others may read at the same time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

from millstream.errors import StateError, StoreError
from millstream.storage.checked_json import compact
from millstream.storage.durable import disk
from millstream.storage.lock import Lock

logger = logging.getLogger("millstream.storage")
CHAIN_BYTES = 16
END = b',"chain":"%s"}\n'
"""How a line ends, with its hash."""
END_BYTES = len(END % bytes(2 * CHAIN_BYTES))
OTHER_RUN = (
    "it belongs to another run, or was damaged; those that were put aside lie beside it with .1, .2, … at their end"
)
FREE_SPACE = "free some space, then resume from the last state"


class DamagedLine(StoreError):  # noqa: N818 - reads as a claim
    """A line of a log, or one before it, is not as it was written."""


@dataclass(frozen=True)
class Position:
    """A place between two lines: bytes and lines before it, and the hash of all of these."""

    offset: int
    entries: int
    chain: str

    @classmethod
    def start(cls, format_name: str) -> Position:
        """The place before the first line of a log of some format."""
        return cls(0, 0, hashlib.blake2b(format_name.encode(), digest_size=CHAIN_BYTES).hexdigest())

    def after(self, *said: Mapping[str, Any]) -> tuple[bytes, Position]:
        """The lines that say this here, and the place after them."""
        lines, chain = list[bytes](), self.chain
        for each in said:
            line, chain = _ended(compact(dict(each)), chain)
            lines.append(line)
        written = b"".join(lines)
        return written, Position(self.offset + len(written), self.entries + len(lines), chain)

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


def _ended(body: bytes, before: str) -> tuple[bytes, str]:
    """A line that says `body`, and its hash, which continues the hash of the line before."""
    chain = hashlib.blake2b(before.encode("ascii") + body, digest_size=CHAIN_BYTES).hexdigest()
    return body[:-1] + END % chain.encode("ascii"), chain


def holds(log: int, position: Position) -> bool:
    """Whether an open log contains a position: the line before it ends with its hash."""
    end = os.pread(log, END_BYTES, max(0, position.offset - END_BYTES))
    return not position.offset or end == END % position.chain.encode()


def log_of(position: Position, path: Path) -> Path:
    """The log that contains a position: this one, or one that was put aside; if there is none, this one."""
    for log in (path, *(aside for _, aside in _numbered(path))):
        with suppress(FileNotFoundError), log.open("rb") as file:
            if holds(file.fileno(), position):
                return log
    return path


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _numbered(path: Path) -> list[tuple[int, Path]]:
    """What was put aside of this name, with its number, the newest first."""
    beside = (each.name.removeprefix(f"{path.name}.") for each in path.parent.glob(f"{path.name}.[0-9]*"))
    numbers = sorted((int(end) for end in beside if end.isdecimal()), reverse=True)
    return [(number, _aside(path, number)) for number in numbers]


def lock_path(log: Path) -> Path:
    """The file that the writer of a log locks."""
    return log.with_name(log.name + ".lock")


def _alike(first: bytes, second: bytes) -> int:
    """How many bytes both begin with."""
    shorter = min(len(first), len(second))
    return next((place for place in range(shorter) if first[place] != second[place]), shorter)


class LogReader:
    """Reads lines one by one, also lines that are written after it was made."""

    def __init__(self, path: str | os.PathLike[str], position: Position) -> None:
        self.path, self.position = Path(path), position

    def read(self) -> dict[str, Any] | None:
        """What the next line says, or None as long as there is none."""
        return next(self.lines(), None)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All lines that are there."""
        return self.lines()

    def having(self, *keys: str) -> Iterator[dict[str, Any]]:
        """All lines that are there and have one of some keys."""
        wanted = [f'"{key}":'.encode() for key in keys]
        return self.lines(lambda line: any(key in line for key in wanted))

    def lines(self, is_wanted: Callable[[bytes], bool] = lambda _: True) -> Iterator[dict[str, Any]]:
        """All lines that are there, but for those that are not wanted: they are checked, and not parsed."""
        if not self.path.exists():
            return
        with disk.reported(self.path), self.path.open("rb") as file:
            yield from self.lines_in(file, is_wanted)

    def lines_in(self, file: BinaryIO, is_wanted: Callable[[bytes], bool] = lambda _: True) -> Iterator[dict[str, Any]]:
        """The same of a log that is open."""
        file.seek(self.position.offset)
        while (line := file.readline()).endswith(b"\n"):
            if is_wanted(line):
                yield self._read(line)
            else:
                self._pass(line)

    def _pass(self, line: bytes) -> bytes:
        """Move past a line that is as it was written; gives what it says."""
        body = line[:-END_BYTES] + b"}"
        expected, chain = _ended(body, self.position.chain)
        if line != expected:
            raise DamagedLine(f"{self.where}: the line or one before it is damaged", hint=OTHER_RUN)
        self.position = Position(self.position.offset + len(line), self.position.entries + 1, chain)
        return body

    def _read(self, line: bytes) -> dict[str, Any]:
        where, body = self.where, self._pass(line)
        try:
            return dict(json.loads(body))
        except ValueError as error:
            raise DamagedLine(f"{where}: this is not JSON: {error}", hint=OTHER_RUN) from None

    @property
    def where(self) -> str:
        """The place of the next line, for a message."""
        return f"{self.path}: entry {self.position.entries}, byte {self.position.offset}"


class ChainedLog:
    """Writes lines. One writer at a time.

    Args:
        path: The log's file; it is made if it is not there.
        format_name: What its lines are; a log of another format is taken for a damaged one.
        position: Where to resume; None: after the last whole line. Lines after it stay as long as the writer writes the
            same lines again; from the first line that differs on they are cut off.
        anew: A run begins: a log that is there belongs to another run, and is put aside.
        beside: Names of files and folders beside it that belong to the same run: they are put aside and brought back
            together with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format_name: str,
        position: Position | None = None,
        *,
        anew: bool = False,
        beside: Sequence[str] = (),
    ) -> None:
        self.path, self._fd, self._format = Path(path), -1, format_name
        self._beside = [self.path.with_name(name) for name in beside]
        with disk.reported(self.path, full=FREE_SPACE):
            disk.make_directory(self.path.parent)
            self._lock = Lock(lock_path(self.path))
            try:
                self._end_moves()
                if anew:
                    self._put_aside()
                self._open()
                self.go_back(self._end() if position is None else position)
            except BaseException:
                self.close()
                raise

    def _put_aside(self) -> None:
        """The log is renamed last: files with a number that no log has belong to the log that is here."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        whole = (*self._beside, self.path)
        number = next(number for number in count(1) if not any(_aside(each, number).exists() for each in whole))
        for each in whole:
            if each.exists():
                disk.rename(each, _aside(each, number))
        aside = _aside(self.path, number).name
        logger.warning("%s: an earlier run was put aside as %s; loading a state of it brings it back", self.path, aside)

    def _end_moves(self) -> None:
        """Finish moves that a crash interrupted."""
        for each in self._beside:
            for number, aside in _numbered(each):
                if not _aside(self.path, number).exists() and not each.exists():
                    disk.rename(aside, each)

    def _open(self) -> None:
        """Open the file that has the name now."""
        before, self._fd = self._fd, disk.reopen(self.path) if self.path.exists() else disk.create(self.path)
        if before >= 0:
            os.close(before)
        disk.sync_directory(self.path.parent)

    def put_aside(self) -> None:
        """Put the log aside and continue with an empty one."""
        with disk.reported(self.path, full=FREE_SPACE):
            self._put_aside()
            self._open()

    def _end(self) -> Position:
        reader = LogReader(self.path, Position.start(self._format))
        for _ in reader:
            pass
        return reader.position

    def go_back(self, position: Position) -> None:
        """Move to a position of this log, or of one that was put aside.

        Lines after it stay until other lines are written or they are cut off; writing the same lines again writes
        nothing.
        """
        with disk.reported(self.path, full=FREE_SPACE):
            if not holds(self._fd, position):
                self._bring_back(position)
        self.position = position if position.offset else Position.start(self._format)
        self._behind = os.fstat(self._fd).st_size > self.position.offset

    def cut(self) -> None:
        """Remove everything after the position."""
        with disk.reported(self.path, full=FREE_SPACE):
            disk.truncate(self._fd, self.position.offset)
            disk.sync(self._fd)
        self._behind = False

    def _bring_back(self, position: Position) -> None:
        """Bring back the log of a position, which a run that began without its state has put aside."""
        aside = log_of(position, self.path)
        if aside == self.path:
            raise StateError(f"{self.path}: this is not the journal of the state, nor is one beside it", hint=OTHER_RUN)
        self._put_aside()
        disk.rename(aside, self.path)
        self._end_moves()
        self._open()
        logger.warning("%s: the run of the state was brought back from %s", self.path, aside.name)

    def write(self, *said: Mapping[str, Any], sync: bool = True) -> Position:
        """Append lines; with `sync` they are on the disk when this returns."""
        offset = self.position.offset
        written, position = self.position.after(*said)
        with disk.reported(self.path, full=FREE_SPACE):
            there = os.pread(self._fd, len(written), offset) if self._behind else b""
            if there != written:
                same = _alike(written, there)
                if self._behind:
                    disk.truncate(self._fd, offset + same)
                self._behind = True  # if it cannot be written whole, or not synced
                disk.write(self._fd, written[same:], offset + same)
            if sync:
                disk.sync(self._fd)
            if there != written:
                self._behind = False
        self.position = position
        return position

    def replace(self, *said: Mapping[str, Any]) -> Position:
        """Replace the whole log by these lines: a reader sees the old log or the new one."""
        written, position = Position.start(self._format).after(*said)
        with disk.reported(self.path, full=FREE_SPACE):
            try:
                disk.publish(self.path, written)
            finally:  # publishing may fail before or after its rename
                before, self._fd = self._fd, disk.reopen(self.path)
                os.close(before)
                if holds(self._fd, position):
                    self.position, self._behind = position, False
        return self.position

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        with disk.reported(self.path, full=FREE_SPACE):
            disk.sync(self._fd)

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
