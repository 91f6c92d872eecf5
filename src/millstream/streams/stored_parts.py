"""Parts of a stream at rest: the tokens of a unit as one shard of a store, in a folder or in memory.

A part is three files (`.bin`, `.idx`, `.org`, docs/reference/formats.md) and a `.json` that says what they hold, with a
hash of each. The `.json` comes last and is checked, so a part that a killed process left is none, and one that a
disk has damaged is made again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from millstream.errors import BudgetError, BusyError, ClosedError, StoreError
from millstream.stages import after_fork
from millstream.storage import Lock, disk, read_json, sealed
from millstream.store import FRAME_BYTES, Frame, hash_blocks, xxh64

FORMAT = "millstream stream part"
SUFFIXES = (".bin", ".idx", ".org")
FULL = "free some space, pass cache_limit=, or choose another cache_dir"
_BLOCK = 1 << 20
Pieces = Sequence[bytes | memoryview]
Stamp = tuple[int, int] | None
"""What tells a part from another one of its unit; None: there is none."""


@dataclass(frozen=True)
class PartFacts:
    """What is known of a part without reading it."""

    tokens: int
    documents: int
    bound: int = 0
    """1 + the largest id."""
    tag: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """Records that are not in it, by reason."""
    changed: dict[str, int] = field(default_factory=dict)
    hashes: tuple[int, ...] = ()


@dataclass(frozen=True)
class UnitTokens:
    """What a unit holds: the tokens of its documents end to end, and the record that each came from."""

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    origins: NDArray[np.int64]
    left_out: dict[str, int]
    changed: dict[str, int]
    dtype: str

    def encoded(self, *, hashed: bool = True) -> tuple[PartFacts, list[Pieces]]:
        """The facts and the bodies of the three files, hashed where something may damage them."""
        tokens = np.ascontiguousarray(self.tokens)
        ends = np.ascontiguousarray(self.ends, np.uint64)
        origins = np.ascontiguousarray(self.origins, np.int64)
        documents, bound = len(ends), int(tokens.max()) + 1 if len(tokens) else 0
        tag = xxh64(hash_blocks(tokens.view(np.uint8), _BLOCK)) ^ xxh64(ends)
        frames = (
            Frame("T", len(tokens), bound, tag, documents, self.dtype),
            Frame("D", documents, len(tokens), tag),
            Frame("O", documents, bound=0, tag=xxh64(origins)),
        )
        bodies = (tokens, ends, origins.reshape(-1))
        files: list[Pieces] = [
            [frame.encode(), body.view(np.uint8).data] for frame, body in zip(frames, bodies, strict=True)
        ]
        hashes = tuple(_hash_of(*file) for file in files) if hashed else ()
        size = sum(len(piece) for file in files for piece in file)
        return PartFacts(len(tokens), documents, bound, tag, size, self.left_out, self.changed, hashes), files


class Kept(Protocol):
    """Where the parts of a stream are kept."""

    shared: bool
    """Whether other processes find the parts, too."""

    def find(self, unit: int) -> PartFacts | None:
        """The facts of a part that is here and whole."""
        ...

    def put(self, unit: int, made: UnitTokens) -> PartFacts:
        """Keep a part."""
        ...

    def lock(self, unit: int) -> contextlib.AbstractContextManager[object]:
        """Become the only maker of a part; raises BusyError where another process is at it."""
        ...

    def paths(self, unit: int) -> tuple[str, str, str]:
        """The files of a part: its tokens, its index, its origins."""
        ...

    def stamp(self, unit: int) -> Stamp:
        """What tells a part from one that is made again after it was dropped."""
        ...

    def is_lost(self, unit: int, stamp: Stamp) -> bool:
        """Whether a part is gone, or was and was made again."""
        ...

    def keep(self, units: set[int], others: Iterable[int]) -> list[object]:
        """Parts of other units may be dropped: `others` are all of them, those first that are needed last.

        Gives what takes memory until it is let go of.
        """
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that parts take."""
        ...

    def close(self) -> None:
        """Let go of everything that is not for others."""
        ...


class KeptOnDisk:
    """Parts in a folder that any number of processes share. At most `limit` bytes stay there, if it is given."""

    shared = True

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder, self.limit = folder, limit
        with disk.reported(folder, full=FULL):
            disk.make_directory(folder)
        self._stem = str(folder / "_")[:-1]
        self._checked: dict[int, Stamp] = {}
        """Parts whose hashes were compared, and the stamps that they had then."""

    def _path(self, unit: int, suffix: str) -> Path:
        return self.folder / f"{unit:08d}{suffix}"

    def find(self, unit: int) -> PartFacts | None:
        """The facts of a part; one that is damaged is removed."""
        path = self._path(unit, ".json")
        if not path.exists():
            self._checked.pop(unit, None)
            return None
        stamp = self._stamp_now(unit)
        try:
            facts = _facts(read_json(path))
            if sum(self._path(unit, suffix).stat().st_size for suffix in SUFFIXES) != facts.bytes:
                raise ValueError("a file is too short")
            if stamp is None or self._checked.get(unit) != stamp:
                self._check(unit, facts)
        except (StoreError, OSError, ValueError, TypeError, KeyError):
            self._remove(unit)
            return None
        self._checked[unit] = stamp
        return facts

    def _check(self, unit: int, facts: PartFacts) -> None:
        """Compare files with their hashes."""
        for suffix, expected in zip(SUFFIXES, facts.hashes, strict=True):
            found = np.fromfile(self._path(unit, suffix), np.uint8).data
            if _hash_of(found[:FRAME_BYTES], found[FRAME_BYTES:]) != expected:
                raise ValueError("a file does not hold what was written")

    def put(self, unit: int, made: UnitTokens) -> PartFacts:
        """Write a part: its files, then what says that they are there."""
        facts, files = made.encoded()
        said = sealed({"format": FORMAT, **asdict(facts), "hashes": list(facts.hashes)})
        with disk.reported(self.folder, full=FULL):
            for suffix, pieces in zip((*SUFFIXES, ".json"), (*files, [said]), strict=True):
                path = self._path(unit, suffix)
                beside = path.with_name(path.name + ".tmp")  # the next writer overwrites what a kill left
                try:
                    _write(beside, pieces)
                    disk.rename(beside, path)
                except BaseException:
                    beside.unlink(missing_ok=True)
                    raise
        self._checked[unit] = self._stamp_now(unit)
        return facts

    def lock(self, unit: int) -> Lock:
        """Hold the lock of a part; it ends with the process."""
        with disk.reported(self.folder, full=FULL):
            return Lock(self._path(unit, ".lock"), busy="another process makes this part")

    def paths(self, unit: int) -> tuple[str, str, str]:
        """The files of a part."""
        stem = f"{self._stem}{unit:08d}"
        return stem + SUFFIXES[0], stem + SUFFIXES[1], stem + SUFFIXES[2]

    def stamp(self, unit: int) -> Stamp:
        """That of its tokens when it was found or written."""
        return self._checked.get(unit)

    def _stamp_now(self, unit: int) -> Stamp:
        try:
            found = os.stat(f"{self._stem}{unit:08d}{SUFFIXES[0]}")  # noqa: PTH116 - a path would take as long again
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def is_lost(self, unit: int, stamp: Stamp) -> bool:
        """Whether a part is gone, as a whole or in part, or was and was made again."""
        if stamp is None or self._stamp_now(unit) != stamp:
            return True
        return not all(Path(path).exists() for path in self.paths(unit))

    def keep(self, units: set[int], others: Iterable[int]) -> list[object]:
        """Remove other parts until the folder is within its limit, those first that come first here."""
        if self.limit is None:
            return []
        sizes: dict[int, int] = {}
        for entry in os.scandir(self.folder):
            stem = entry.name.partition(".")[0]
            if stem.isdecimal():
                with contextlib.suppress(OSError):
                    sizes[int(stem)] = sizes.get(int(stem), 0) + entry.stat().st_size
        total = sum(sizes.values())
        for unit in others:
            if total <= self.limit:
                break
            if unit in sizes and unit not in units:
                with contextlib.suppress(BusyError), self.lock(unit), disk.reported(self.folder, full=FULL):
                    self._remove(unit)
                    total -= sizes.pop(unit)
        return []

    def _remove(self, unit: int) -> None:
        self._checked.pop(unit, None)
        for suffix in (".json", *SUFFIXES):
            disk.remove(self._path(unit, suffix))

    @property
    def held_bytes(self) -> int:
        """Parts on a disk take no memory of the process."""
        return 0

    def close(self) -> None:
        """Parts stay for others."""


class KeptInMemory:
    """Parts in unnamed memory of this process, which ends with it. They count against a budget."""

    shared = False

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self._parts: dict[int, tuple[PartFacts, _Memory]] = {}
        self._unlock()
        after_fork(self._unlock)

    def _unlock(self) -> None:
        """Also in a forked child: a thread that is not there may hold the lock."""
        self._lock = threading.Lock()

    def find(self, unit: int) -> PartFacts | None:
        """The facts of a part."""
        found = self._parts.get(unit)
        return None if found is None else found[0]

    def put(self, unit: int, made: UnitTokens) -> PartFacts:
        """Copy a part into memory."""
        facts, files = made.encoded(hashed=False)
        with self._lock:
            held = sum(each.bytes for each, _ in self._parts.values()) + facts.bytes
            if self.budget is not None and held > self.budget:
                raise BudgetError(
                    f"the windows of a stream take {held:,} bytes of memory, and memory_budget leaves them "
                    f"{self.budget:,}",
                    hint="raise memory_budget, or pass cache_dir= (a folder): there they take none",
                )
            with disk.reported(Path("memory"), full="free some space in memory, or pass cache_dir= (a folder)"):
                self._parts[unit] = facts, _Memory(files)
        return facts

    def lock(self, unit: int) -> contextlib.nullcontext[None]:
        """No other process makes these parts."""
        return contextlib.nullcontext()

    def paths(self, unit: int) -> tuple[str, str, str]:
        """The files of a part, by their descriptors."""
        found = self._parts.get(unit)
        if found is None:  # it was found just before
            raise ClosedError("this loader was closed while it waited for its rows", hint="make a new one")
        return found[1].paths

    def stamp(self, unit: int) -> Stamp:
        """The number of the part among all that were put here."""
        found = self._parts.get(unit)
        return None if found is None else (unit, found[1].number)

    def is_lost(self, unit: int, stamp: Stamp) -> bool:
        """Whether a part was dropped."""
        return stamp is None or self.stamp(unit) != stamp

    def keep(self, units: set[int], others: Iterable[int]) -> list[object]:
        """Drop all other parts."""
        with self._lock:
            dropped: list[object] = [self._parts.pop(unit) for unit in self._parts.keys() - units]
        return dropped if self.budget is None else []

    @property
    def held_bytes(self) -> int:
        """Bytes of all parts."""
        with self._lock:
            return sum(each.bytes for each, _ in self._parts.values())

    def close(self) -> None:
        """Drop all parts."""
        with self._lock:
            self._parts.clear()


class _Memory:
    """Three files without names."""

    _numbers = count()

    def __init__(self, files: list[Pieces]) -> None:
        self.number = next(self._numbers)
        tokens, index, origins = (self._kept(pieces) for pieces in files)
        self.paths = tokens, index, origins

    def _kept(self, pieces: Pieces) -> str:
        """A file in memory, by its descriptor; where the system has no such files, one of a temporary folder."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("millstream-part", os.MFD_CLOEXEC)
            weakref.finalize(self, os.close, fd)
            _fill(fd, pieces)
            return f"/proc/self/fd/{fd}"
        fd, path = tempfile.mkstemp(prefix="millstream-part-")
        weakref.finalize(self, _forget, path, os.getpid())
        try:
            _fill(fd, pieces)
        finally:
            os.close(fd)
        return path


def _forget(path: str, process: int) -> None:
    if process == os.getpid():
        Path(path).unlink(missing_ok=True)


def _hash_of(frame: bytes | memoryview, body: bytes | memoryview) -> int:
    """The hash of a file, frame and body."""
    return xxh64(bytes(frame) + xxh64(np.frombuffer(body, np.uint8)).to_bytes(8, "little"))


def _write(path: Path, pieces: Pieces) -> None:
    fd = disk.create(path)
    try:
        _fill(fd, pieces)
    finally:
        os.close(fd)


def _fill(fd: int, pieces: Pieces) -> None:
    place = 0
    for piece in pieces:
        disk.write(fd, piece, place)
        place += len(piece)


def _facts(found: dict[str, Any]) -> PartFacts:
    """Read facts of a file, in which nothing is trusted."""
    if found.get("format") != FORMAT:
        raise ValueError("not a part")
    values = {key: value for key, value in found.items() if key != "format"}
    numbers = [values[key] for key in ("tokens", "documents", "bound", "tag", "bytes")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a count is none")
    hashes = tuple(int(each) for each in values.pop("hashes"))
    facts = PartFacts(**values, hashes=hashes)
    for counts in (facts.left_out, facts.changed):
        if not all(type(count) is int and count >= 0 for count in counts.values()):
            raise ValueError("a count is none")
    return facts
