"""Files -> units -> windows: in which order raw files are read, known from their names and sizes alone.

A unit is what is made at once: a byte range of a file, some row groups, some frames, a stretch of a file that can only
be read from its front, or several small files. A keyed order of the units is cut into windows; windows come one after
another, in every epoch, so each document comes once in an epoch and each file has its share of every stretch of it.

The order is version 2 of the order of streams. It depends on the files, the settings of the reading, the seed and the
name of the source, never on the number of ranks, threads or caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from millstream.order import SampleOrder, Shuffle
from millstream.sources import SUFFIXES as COMPRESSED
from millstream.sources import FileFailure, FoundFile, Reading, layout_of, overlaps_itself

STREAM_ORDER = 2
UNIT_BYTES = 512 << 10
LEAST_UNIT_BYTES = 4 << 10
UNITS = 256
"""Units of a small corpus: enough to shuffle, and for several windows."""
WINDOW_UNITS = 16
FIRST_WINDOWS = (2, 2, 4, 4, 8, 8)
"""Units of the first windows: the first batch comes soon, and the next window is ready when the one before is used."""
EXPANSION = 4
"""What a compressed file is taken to hold, in the place of what only reading it would tell."""
TOGETHER = 64
"""Files that can only be read from their fronts are read so many at a time."""
ENDLESS_UNITS = 4096
"""Of what does not say how large it is; what it holds beyond them belongs to the last one."""
MOST_LOOKED_AT = 256
"""Files of zstd frames that are opened to see whether each frame can be reached alone."""
_LOOKS = 64

Numbers = npt.NDArray[np.int64]


def unit_bytes(total_bytes: int) -> int:
    """How large the units of so many bytes are.

    >>> unit_bytes(10**12), unit_bytes(10**7), unit_bytes(100)
    (524288, 39062, 4096)
    """
    return min(UNIT_BYTES, max(LEAST_UNIT_BYTES, total_bytes // UNITS))


def size_of(file: FoundFile, reading: Reading) -> int | None:
    """The bytes of text that a file is taken to hold; None where nothing tells."""
    if file.data is None:
        return file.bytes * (EXPANSION if file.path.suffix.lower() in COMPRESSED else 1)
    if file.bytes or not hasattr(file.data, "__len__"):
        return file.bytes or None
    looks = range(0, len(file.data), max(1, len(file.data) // _LOOKS))
    return sum(len(str(file.data[look])) for look in looks) * len(file.data) // max(1, len(looks))


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of a file: number `number` of `of` pieces of about one size."""

    file: int
    number: int
    of: int


class Units:
    """The units of some files, in the order of the files, and what each is made of.

    `reading.chunk_bytes` is the size of a unit: a file of lines is cut there.
    """

    def __init__(self, files: Sequence[FoundFile], reading: Reading) -> None:
        self.files, self.reading = files, reading
        starts, firsts, counts = [0], [0], []  # of runs of units: a file that is cut, or one unit of small files
        held = 0
        for number, file in enumerate(files):
            size = size_of(file, reading)
            pieces = ENDLESS_UNITS if size is None else -(-size // reading.chunk_bytes)
            if pieces > 1 or held + (size or 0) > reading.chunk_bytes:
                if firsts[-1] < number:  # small files before this one
                    counts.append(1)
                    starts.append(starts[-1] + 1)
                    firsts.append(number)
                held = 0
            if pieces > 1:
                counts.append(pieces)
                starts.append(starts[-1] + pieces)
                firsts.append(number + 1)
            else:
                held += size or 0
        if firsts[-1] < len(files):
            counts.append(1)
            starts.append(starts[-1] + 1)
            firsts.append(len(files))
        self._starts, self._firsts = np.array(starts, np.int64), np.array(firsts, np.int64)
        self._counts = np.array(counts, np.int64)
        self.count = int(self._starts[-1])

    def slots(self, unit: int) -> list[Slot]:
        """The pieces of files that a unit is made of."""
        run = int(np.searchsorted(self._starts, unit, side="right")) - 1
        first, stop, of = int(self._firsts[run]), int(self._firsts[run + 1]), int(self._counts[run])
        number = unit - int(self._starts[run])
        return [Slot(file, number, of) for file in range(first, stop)]

    def cut_by_bytes(self, file: int) -> bool:
        """Whether a file is cut by its size alone, and each piece of it can be read without the others."""
        found, reading = self.files[file], self.reading
        lines = found.format == "jsonl" or (found.format == "text" and reading.documents != "file")
        if not lines or found.data is not None or found.path.suffix.lower() in COMPRESSED:
            return False
        return found.format == "jsonl" or not overlaps_itself((reading.separator or "\n").encode())

    @cached_property
    def share_readers(self) -> bool:
        """Whether units are pieces of a file that is opened once for several of them."""
        return any(not self.cut_by_bytes(int(self._firsts[run])) for run in np.flatnonzero(self._counts > 1))

    @cached_property
    def from_front(self) -> list[range]:
        """The units of each file that is made of several and can only be read from its front."""
        runs = np.flatnonzero(self._counts > 1)
        frames = [run for run in runs.tolist() if self._has_zstd_name(run)]
        apart = {run for run in frames if self._in_frames(run)} if len(frames) <= MOST_LOOKED_AT else set()
        found = []
        for run in runs.tolist():
            file = int(self._firsts[run])
            if run not in apart and not self.cut_by_bytes(file) and self.files[file].format != "parquet":
                found.append(range(int(self._starts[run]), int(self._starts[run + 1])))
        return found

    def _has_zstd_name(self, run: int) -> bool:
        return COMPRESSED.get(self.files[int(self._firsts[run])].path.suffix.lower()) == "zstd"

    def _in_frames(self, run: int) -> bool:
        file = self.files[int(self._firsts[run])]
        try:
            return file.format in ("jsonl", "text") and bool(layout_of(file, self.reading).frames)
        except FileFailure:
            return False


class StreamPlan:
    """Which unit comes at which place of an epoch, and which places make up a window."""

    def __init__(self, units: Units, *, shuffle: Shuffle, seed: int, name: str) -> None:
        self.units = units
        keyed = SampleOrder(units.count, shuffle=shuffle, seed=seed, name=f"{name}/units")
        order = keyed.at(np.arange(units.count)).astype(np.int64)
        if shuffle != "none" and units.from_front:
            _from_their_fronts(order, units.from_front, seed, name)
        self._order = order
        self._firsts = np.array(list(_window_starts(units.count)), np.int64)

    @property
    def windows(self) -> int:
        """How many windows an epoch has."""
        return len(self._firsts) - 1

    def units_of(self, window: int) -> list[int]:
        """The units of a window, in their order."""
        units: list[int] = self._order[self._firsts[window] : self._firsts[window + 1]].tolist()
        return units

    def units_before(self, window: int) -> Numbers:
        """The units of all windows before one."""
        return self._order[: self._firsts[window]]

    @cached_property
    def _places(self) -> Numbers:
        places = np.empty_like(self._order)
        places[self._order] = np.arange(len(places))
        return places

    def window_of(self, unit: int) -> int:
        """The window that a unit belongs to."""
        return int(np.searchsorted(self._firsts, self._places[unit], side="right")) - 1


def _window_starts(units: int) -> Iterator[int]:
    """The first place of each window, and the place after the last.

    >>> list(_window_starts(30))
    [0, 2, 4, 8, 12, 20, 28, 30]
    """
    place = 0
    for size in FIRST_WINDOWS:
        if place < units:
            yield place
            place += size
    yield from range(place, units, WINDOW_UNITS)
    yield units


def _from_their_fronts(order: Numbers, runs: list[range], seed: int, name: str) -> None:
    """Let the units of each run come in their order, those of at most `TOGETHER` runs among each other at a time.

    The places of all of them stay as they are: among the places of other units they are spread evenly.
    """
    ends = np.array([run.stop for run in runs])
    starts = np.array([run.start for run in runs])
    run_of = np.searchsorted(ends, order, side="right")
    inside = run_of < len(runs)
    inside[inside] = order[inside] >= starts[run_of[inside]]
    places = np.flatnonzero(inside)
    files = SampleOrder(len(runs), seed=seed, name=f"{name}/fronts").at(np.arange(len(runs))).astype(np.int64)
    filled = 0
    for first, stop in pairwise([*range(0, len(runs), TOGETHER), len(runs)]):
        lengths = [len(runs[run]) for run in files[first:stop].tolist()]
        owners = np.repeat(files[first:stop], lengths)
        mixed = SampleOrder(len(owners), seed=seed, name=f"{name}/fronts/{first}").at(np.arange(len(owners)))
        owners = owners[mixed.astype(np.int64)]
        here = places[filled : filled + len(owners)]
        for run in files[first:stop].tolist():
            order[here[owners == run]] = np.arange(runs[run].start, runs[run].stop)
        filled += len(owners)
