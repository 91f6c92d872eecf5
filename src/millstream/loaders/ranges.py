"""Files -> ranges, dealt to lanes: which piece of which file is the n-th of a lane. Integers, until a range is opened.

A range is a piece of a file that can be read on its own; a file that can only be read from the front is one range. The
list of ranges depends on the files and the settings alone, so every rank deals the same ranges to the same lanes.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from millstream.order import SampleOrder
from millstream.order.shuffle import Shuffle
from millstream.sources import Chunk, FoundFile, Reading, format_named
from millstream.sources.decompress import SUFFIXES as COMPRESSED
from millstream.sources.failure import FileFailure
from millstream.sources.found import opened, read_at
from millstream.sources.identity import identify_object
from millstream.sources.separated import overlaps_itself, plain_chunk
from millstream.sources.stream import layout_of
from millstream.storage import key_of

MOST_LANES = 64
RANGE_BYTES = 256 << 10
LEAST_RANGE_BYTES = 4 << 10
RANGES_PER_LANE = 4
_LOOKS, _LOOK_BYTES = 64, 4096

_UNEVEN = 2.5
_USUAL_EXPANSION = 4
log = logging.getLogger("millstream.loaders")


def streaming_bytes(total_bytes: int) -> int:
    """How large the ranges of so many bytes are: small, so that the first batch comes soon and every lane has several.

    >>> streaming_bytes(10**12), streaming_bytes(10**7), streaming_bytes(100)
    (262144, 39062, 4096)
    """
    return min(RANGE_BYTES, max(LEAST_RANGE_BYTES, total_bytes // (RANGES_PER_LANE * MOST_LANES)))


def lanes_for(ranges: int) -> int:
    """How many lanes there are: 64, or the largest power of two that leaves none without a range.

    >>> [lanes_for(count) for count in (1, 10, 63, 64, 10**9)]
    [1, 8, 32, 64, 64]
    """
    return 1 << (min(MOST_LANES, max(1, ranges)).bit_length() - 1)


class Ranges:
    """The ranges of some files, in order, and their deal: range j belongs to lane j mod `lanes`."""

    def __init__(self, files: Sequence[FoundFile], reading: Reading) -> None:
        self.files, self.reading = files, reading
        self._cut: dict[int, list[Chunk]] = {}
        counts = [self._byte_ranges(file) or 1 for file in files]
        if sum(counts) < MOST_LANES:  # only then is it worth opening what cannot be cut by its size alone
            counts = [self._opened_ranges(number, count) for number, count in enumerate(counts)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self.count = int(self._ends[-1])
        self.lanes = lanes_for(self.count)
        self._warn_of_uneven_lanes(counts)

    def _warn_of_uneven_lanes(self, counts: list[int]) -> None:
        """Say so when short lanes would come round again and again before the longest one ends."""
        sizes = [
            file.bytes * (_USUAL_EXPANSION if file.path.suffix.lower() in COMPRESSED else 1) / count
            for file, count in zip(self.files, counts, strict=True)
        ]
        lanes = np.bincount(np.arange(self.count) % self.lanes, np.repeat(sizes, counts), minlength=self.lanes)
        shortest, longest = float(lanes.min()), float(lanes.max())
        if longest > _UNEVEN * max(shortest, 1):
            log.warning(
                "the lanes of this stream hold about %.3g to %.3g bytes: the shortest comes %d times while the longest "
                "goes by once (a compressed file is one lane's alone); prepare() uses every document once",
                shortest,
                longest,
                round(longest / max(shortest, 1)),
            )

    def in_lane(self, lane: int) -> int:
        """How many ranges a lane has."""
        return -(-(self.count - lane) // self.lanes)

    def chunks(self, number: int) -> tuple[FoundFile, Iterator[Chunk]]:
        """The file of a range, and its chunks, which are made when they are asked for."""
        place = int(np.searchsorted(self._ends, number, side="right"))
        file = self.files[place]
        before = int(self._ends[place - 1]) if place else 0
        piece, pieces = number - before, int(self._ends[place]) - before
        if place in self._cut:
            return file, iter([self._cut[place][piece]])
        if pieces == 1:
            return file, format_named(file.format).chunks(file, self.reading)
        return file, self._byte_range(file, piece)

    def _byte_ranges(self, file: FoundFile) -> int | None:
        """Into how many ranges a file is cut by its name and size alone, or None."""
        reading = self.reading
        lines = file.format == "jsonl" or (file.format == "text" and reading.documents != "file")
        if not lines or file.path.suffix.lower() in COMPRESSED:
            return None
        if file.format == "text" and overlaps_itself((reading.separator or "\n").encode()):
            return None
        return max(1, -(-file.bytes // reading.chunk_bytes))

    def _byte_range(self, file: FoundFile, piece: int) -> Iterator[Chunk]:
        """One range of a plain file; one that turns out to be no plain file is read by its first range, whole."""
        try:
            layout = layout_of(file, self.reading)
        except FileFailure:
            layout = None
        if layout is None or not layout.is_plain:
            if piece == 0:
                yield from format_named(file.format).chunks(file, self.reading)
        elif layout.start < file.bytes:
            yield plain_chunk(piece, layout.start, file.bytes, self.reading.chunk_bytes)

    def _opened_ranges(self, number: int, count: int) -> int:
        """The ranges of a file once it was opened: chunks that need not be read from the front are ranges."""
        file = self.files[number]
        if count > 1 or self._byte_ranges(file) is not None:
            return count
        chunks = format_named(file.format).chunks(file, self.reading)
        first = list(islice(chunks, 1))
        if not first or first[0].data is not None or first[0].bad is not None:
            return 1
        self._cut[number] = [*first, *chunks]
        return len(self._cut[number])


class LaneOrder:
    """The order of a lane's ranges in each of its epochs: a keyed permutation of those that were dealt to it."""

    def __init__(self, ranges: Ranges, lane: int, *, shuffle: Shuffle, seed: int, name: str) -> None:
        self.lane, self.lanes = lane, ranges.lanes
        self.count = ranges.in_lane(lane)
        self._order = SampleOrder(self.count, shuffle=shuffle, seed=seed, name=f"{name}/lane {lane}")

    def range_at(self, place: int, epoch: int) -> int:
        """The number of the range at a place of an epoch."""
        return self.lane + self.lanes * int(self._order.at([place], epoch)[0])

    def place_of(self, number: int, epoch: int) -> int:
        """The place of a range of this lane in an epoch."""
        return int(self._order.inverse([number // self.lanes], epoch)[0])


def cut_for_lanes(files: Sequence[FoundFile], reading: Reading) -> Reading:
    """The same reading with ranges of a size that suits these files."""
    return replace(reading, chunk_bytes=streaming_bytes(sum(file.bytes for file in files)))


def fingerprint_files(files: Sequence[FoundFile]) -> str:
    """Tell files by their names, sizes and formats, and by 64 looks at evenly spaced places; never by time stamps."""
    digest = hashlib.blake2b(key_of([file.described() for file in files]).encode(), digest_size=16)
    for file in files:
        if file.data is not None:
            digest.update(identify_object(file.data).encode())
    ends = np.cumsum([0 if file.data is not None else file.bytes for file in files])
    total = int(ends[-1])
    for place in sorted({look * total // _LOOKS for look in range(_LOOKS)} if total else ()):
        number = int(np.searchsorted(ends, place, side="right"))
        file = files[number]
        with opened(file) as handle:
            digest.update(read_at(handle, file, place - int(ends[number]) + file.bytes, _LOOK_BYTES))
    return digest.hexdigest()
