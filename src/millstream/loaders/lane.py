"""One lane: an endless stream of tokens, the documents of its ranges one after another, epoch after epoch.

(lane, place) -> the pieces from there on. Token t of a lane is always the same token, whoever reads it and when, so a
place in a lane and a count of tokens are all that has to be kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError
from millstream.loaders.ranges import LaneOrder, Ranges
from millstream.parts.part import Part
from millstream.parts.process import Job, make_part
from millstream.sources import Chunk, FoundFile

Tokens = npt.NDArray[Any]


class Place(NamedTuple):
    """Where a piece lies in its lane: the epoch, the how-manieth range of it, the how-manieth chunk of that."""

    epoch: int = 0
    range: int = 0
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk of a lane gave, and where it came from."""

    place: Place
    number: int
    """Of its range."""
    file: FoundFile
    chunk_start: int
    part: Part


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """All ranges of the lane have been read once more."""

    epoch: int


class LaneReader:
    """Reads a lane from a place on. One thread at a time.

    A lane whose own ranges hold not a single token goes on through those of the following lane, and so on, so that no
    lane is empty; their ranges are counted behind its own. An epoch ends behind the first lane that gave something.
    """

    def __init__(self, ranges: Ranges, orders: Sequence[LaneOrder], lane: int, job: Job, place: Place) -> None:
        self._ranges, self._job = ranges, job
        self._orders = [orders[(lane + step) % len(orders)] for step in range(len(orders))]
        self._place = place
        self._is_dry = True
        self._file: FoundFile | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._number = 0

    def advance(self) -> Piece | EpochEnd:
        """Read the next chunk and make its part, or come to the end of an epoch."""
        while True:
            place = self._place
            if self._file is None:
                self._number = self._range_at(place)
                self._file, chunks = self._ranges.chunks(self._number)
                self._chunks = islice(chunks, place.chunk, None)
            chunk = next(self._chunks, None)
            if chunk is not None:
                self._place = place._replace(chunk=place.chunk + 1)
                part = make_part(self._job, self._file, chunk)
                self._is_dry = self._is_dry and not len(part.tokens)
                return Piece(place, self._number, self._file, chunk.start, part)
            self._file = None
            if self._goes_on(place.range + 1):
                self._place = Place(place.epoch, place.range + 1)
            else:
                self._place, self._is_dry = Place(place.epoch + 1), True
                return EpochEnd(place.epoch)

    def _range_at(self, place: Place) -> int:
        """The number of the range at a place, of this lane or of one that follows."""
        left = place.range
        for order in self._orders:
            if left < order.count:
                return order.range_at(left, place.epoch)
            left -= order.count
        raise LoaderError(f"a lane has no place {tuple(place)}", hint="the state or the log is of other data")

    def _goes_on(self, place: int) -> bool:
        """Whether an epoch goes on at a place: not behind the end of a lane once there were tokens."""
        ends = list(accumulate(order.count for order in self._orders))
        if place < ends[-1]:
            return self._is_dry or place not in ends
        if self._is_dry:
            raise LoaderError(
                "there is not a single token in all these files: everything was left out",
                hint="loader.losses says why; is it the right source and text_field?",
            )
        return False


class Window:
    """The pieces of a lane that the next rows are cut from. Places are counted in tokens of the lane."""

    def __init__(self, start: int) -> None:
        self.stop = start
        self.bytes = 0
        self._held: deque[tuple[int, Part]] = deque()

    def add(self, part: Part) -> None:
        """Put a part behind the others."""
        if len(part.tokens):
            self._held.append((self.stop, part))
            self.stop += len(part.tokens)
            self.bytes += part_bytes(part)

    def tokens(self, start: int, stop: int) -> Tokens:
        """Tokens [start, stop); what lies before `start` is let go."""
        while self._held[0][0] + len(self._held[0][1].tokens) <= start:
            self.bytes -= part_bytes(self._held.popleft()[1])
        found = []
        for begin, part in self._held:
            if begin >= stop:
                break
            found.append(part.tokens[max(0, start - begin) : stop - begin])
        return found[0] if len(found) == 1 else np.concatenate(found)

    def ends(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Where documents end among tokens [start, stop): places in (start, stop], counted from `start`."""
        found = [part.ends + (begin - start) for begin, part in self._held if begin < stop]
        ends: npt.NDArray[np.int64] = np.concatenate(found)
        return np.unique(ends[(ends > 0) & (ends <= stop - start)])


def part_bytes(part: Part) -> int:
    """The memory that a part takes, nearly."""
    return part.tokens.nbytes + part.ends.nbytes + part.origins.nbytes
