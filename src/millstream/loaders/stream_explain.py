"""(step) -> where its rows come from, and (document) -> the steps that used it: from the log, and the files once more.

The log knows which chunk gave which tokens; the chunk is read and encoded again, which gives the same documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.errors import LoaderError, UnknownLength
from millstream.loaders.lane import Piece, Place
from millstream.loaders.lane_log import Entry, LaneLog
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.stream import Stream

_BITS = 24
KEEP_A_LOG = "pass cache_dir= to keep the whole log on disk"


@dataclass(frozen=True)
class StreamSpan(Span):
    """A span whose document is a record of a raw file: bytes [first_byte, last_byte) of its decoded text.

    Without a byte range (Parquet, Arrow) both are None, and `row` is the row in the file. `document` numbers the
    record by its range, its chunk and its place in that: the same number in every run with these settings.
    """

    row: int | None = None
    first_byte: int | None = None
    last_byte: int | None = None


@dataclass(frozen=True)
class Explainer:
    """What explaining needs: the stream, and its log."""

    stream: Stream
    log: LaneLog
    length: int

    def rows(self, samples: Sequence[int]) -> list[RowOrigin]:
        """Name the origin of samples, one row each."""
        pieces: dict[tuple[int, Place], Piece] = {}
        return [self._row(row, sample, pieces) for row, sample in enumerate(samples)]

    def _row(self, row: int, sample: int, pieces: dict[tuple[int, Place], Piece]) -> RowOrigin:
        number, lane = divmod(sample, self.stream.ranges.lanes)
        start, stop = number * self.length, (number + 1) * self.length
        spans: list[Span] = []
        tokens: list[int] = []
        while start < stop:
            entry = self._entry(lane, start)
            piece = pieces.get((lane, entry.place)) or self._piece(lane, entry.place)
            pieces[lane, entry.place] = piece
            end = min(stop, entry.stop)
            spans += self._spans(piece, start - entry.start, end - entry.start)
            tokens += piece.part.tokens[start - entry.start : end - entry.start].tolist()
            start = end
        return RowOrigin(row, self.stream.name, sample, tuple(spans), self.stream.job.tokenizer.decode(tokens))

    def samples_with(self, document: int, epochs: Iterable[int]) -> set[int]:
        """Find the samples of some epochs of the lanes that hold tokens of a document."""
        place, number = document & (1 << _BITS) - 1, document >> 2 * _BITS
        chunk = (document >> _BITS) & (1 << _BITS) - 1
        if document < 0 or number >= self.stream.ranges.count:
            raise LoaderError(f"there is no document {document}", hint="documents are numbered as explain() names them")
        found: set[int] = set()
        entries = (found for epoch in epochs for found in self._entries_of(number, chunk, epoch))
        for lane, entry in entries:
            ends = self._piece(lane, entry.place).part.ends
            if place >= len(ends):
                raise _no_document(document)
            first = entry.start + (int(ends[place - 1]) if place else 0)
            numbers = range(first // self.length, -(-(entry.start + int(ends[place])) // self.length))
            found |= {each * self.stream.lanes + lane for each in numbers}
        return found

    def _entries_of(self, number: int, chunk: int, epoch: int) -> Iterator[tuple[int, Entry]]:
        """Where a chunk of a range came: in its own lane, and in lanes before that which have nothing of their own."""
        lanes, home = self.stream.lanes, number % self.stream.lanes
        place = self.stream.orders[home].place_of(number, epoch)
        for step in range(lanes):
            lane = (home - step) % lanes
            place += self.stream.orders[lane].count if step else 0
            entry = self.log.find_place(lane, Place(epoch, place, chunk))
            if entry is not None:
                yield lane, entry

    def _entry(self, lane: int, token: int) -> Entry:
        entry = self.log.find(lane, token)
        if entry is None:
            raise UnknownLength(
                f"the log does not know token {token:,} of lane {lane}: it has not come yet, or came too long ago",
                hint=f"explain steps that were delivered, on the rank that delivered them; {KEEP_A_LOG}",
            )
        return entry

    def _piece(self, lane: int, place: Place) -> Piece:
        piece = self.stream.reader(lane, place).advance()
        if not isinstance(piece, Piece) or piece.place != place:
            raise LoaderError(f"lane {lane} has no chunk at {tuple(place)}", hint="the log is of other data")
        return piece

    def _spans(self, piece: Piece, start: int, stop: int) -> list[Span]:
        ends = piece.part.ends
        first = int(np.searchsorted(ends, start, side="right"))
        spans: list[Span] = []
        base = (piece.number << _BITS | piece.place.chunk) << _BITS
        for document in range(first, len(ends)):
            begin = int(ends[document - 1]) if document else 0
            if begin >= stop:
                break
            low, high = max(start, begin), min(stop, int(ends[document]))
            if low < high:
                row, first_byte, last_byte = piece.part.origins[document].tolist()
                where = (None, first_byte, last_byte) if first_byte >= 0 else (piece.chunk_start + row, None, None)
                inside = (low - begin, high - begin)
                spans.append(StreamSpan(self.stream.name, base + document, *inside, piece.file.name, *where))
        return spans


def not_in_the_log(document: int) -> UnknownLength:
    """Say that nobody knows where a document is."""
    return UnknownLength(
        f"document {document} is not in the log of this epoch: it has not come yet, belongs to another rank or came "
        "too long ago",
        hint=f"ask when it was delivered; {KEEP_A_LOG}, for all ranks",
    )


def _no_document(document: int) -> LoaderError:
    return LoaderError(f"there is no document {document}", hint="documents are numbered as explain() names them")
