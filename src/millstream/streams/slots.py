"""Pieces of files -> their chunks. A file that can only be read from its front is read on from where it stands."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from millstream.sources import (
    Chunk,
    FileFailure,
    FoundFile,
    Reading,
    StreamLayout,
    format_named,
    layout_of,
    plain_chunk,
)
from millstream.streams.plan import TOGETHER, Slot, Units

MOST_OPEN = 2 * TOGETHER
"""Files that are read from their fronts and stay open; those of the next windows too."""
MOST_KNOWN = 4096
"""Files of which it is kept how the text lies in them."""


class SlotReader:
    """Gives the chunks of slots. Several threads may ask; a file is read by one of them at a time.

    Slots of a file that is read from its front are best asked for as they come. A slot that is announced and passed by,
    since another thread was faster, is kept until it is asked for.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        self._lock = threading.Lock()
        self._begun: OrderedDict[int, _File] = OrderedDict()
        self._layouts: dict[int, StreamLayout] = {}

    def announce(self, slots: Iterable[Slot]) -> None:
        """These slots will be asked for, by some thread."""
        with self._lock:
            for slot in slots:
                if self._is_shared(slot):
                    self._file(slot.file).awaited.add(slot.number)

    def give_up(self, slots: Iterable[Slot]) -> None:
        """These slots will not be asked for."""
        with self._lock:
            for slot in slots:
                file = self._begun.get(slot.file)
                if file is not None:
                    file.awaited.discard(slot.number)
                    file.passed.pop(slot.number, None)

    def chunks(self, slot: Slot) -> tuple[FoundFile, list[Chunk]]:
        """The file of a slot, and its chunks."""
        found, reading = self._units.files[slot.file], self._units.reading
        if slot.of == 1:
            return found, list(format_named(found.format).chunks(found, reading))
        if self._units.cut_by_bytes(slot.file):
            return found, self._plain(found, slot)
        with self._lock:
            file = self._file(slot.file)
            file.awaited.discard(slot.number)
            left = [self._begun.popitem(last=False)[1] for _ in range(len(self._begun) - MOST_OPEN)]
        for each in left:
            with each.reads:
                each.close()
        with file.reads:
            return found, file.take(slot)

    def _plain(self, file: FoundFile, slot: Slot) -> list[Chunk]:
        """One byte range of a plain file; of one that turns out to be no plain file, the first range reads all."""
        reading, layout = self._units.reading, self._layouts.get(slot.file)
        if layout is None:
            try:
                layout = layout_of(file, reading)
            except FileFailure:
                pass
            else:
                if len(self._layouts) >= MOST_KNOWN:
                    self._layouts.clear()
                self._layouts[slot.file] = layout
        if layout is None or not layout.is_plain:
            return list(format_named(file.format).chunks(file, reading)) if slot.number == 0 else []
        if layout.start >= file.bytes:
            return []
        return [plain_chunk(slot.number, layout.start, file.bytes, reading.chunk_bytes)]

    def _is_shared(self, slot: Slot) -> bool:
        return slot.of > 1 and not self._units.cut_by_bytes(slot.file)

    def _file(self, number: int) -> _File:
        if number not in self._begun:
            self._begun[number] = _File(self._units.files[number], self._units.reading)
        self._begun.move_to_end(number)
        return self._begun[number]

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            left = [self._begun.popitem()[1] for _ in range(len(self._begun))]
        for each in left:
            with each.reads:
                each.close()


@dataclass
class _File:
    """A file whose chunks are dealt to its slots: by their number, if all are known at once, else by how far they are.

    Chunks that hold no data yet are known without reading the file.
    """

    found: FoundFile
    reading: Reading
    awaited: set[int] = field(default_factory=set)
    passed: dict[int, list[Chunk]] = field(default_factory=dict)
    reads: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is read; announcing slots does not wait for that."""
    _listed: list[Chunk] | None = None
    _rest: Iterator[Chunk] | None = None
    _next: Chunk | None = None
    _reached: int = 0
    """The slot of the last chunk that was read: what comes after it, such as a failure, is not of an earlier one."""
    _behind: int = 0
    """The first slot that was neither taken nor passed by since the file was opened."""

    def take(self, slot: Slot) -> list[Chunk]:
        """The chunks of a slot."""
        if slot.number in self.passed:
            return self.passed.pop(slot.number)
        if self._listed is None and (self._rest is None or slot.number < self._behind):
            self.close()
            self._open()
        if self._listed is not None:
            count = len(self._listed)
            return [chunk for number, chunk in enumerate(self._listed) if number * slot.of // count == slot.number]
        return self._read_on(slot)

    def _read_on(self, slot: Slot) -> list[Chunk]:
        """Read up to the end of a slot; of slots before it, those that are awaited are kept, also if they are empty."""
        passing: dict[int, list[Chunk]] = {
            number: [] for number in self.awaited.copy() if self._behind <= number < slot.number
        }
        taken: list[Chunk] = []
        passing[slot.number] = taken
        try:
            while self._next is not None and (place := self._slot_of(self._next, slot.of)) <= slot.number:
                if place in passing:
                    passing[place].append(self._next)
                self._reached = place
                self._next = next(self._rest or iter(()), None)
        except BaseException:
            self.close()  # what was read is lost: the next request reads it again
            raise
        self.passed.update((number, chunks) for number, chunks in passing.items() if number != slot.number)
        self._behind = slot.number + 1
        return taken

    def _open(self) -> None:
        chunks = format_named(self.found.format).chunks(self.found, self.reading)
        first = next(chunks, None)
        if first is not None and first.data is None and first.bad is None:
            self._listed = [first, *chunks]
        else:
            self._rest, self._next, self._reached, self._behind = chunks, first, 0, 0

    def _slot_of(self, chunk: Chunk, of: int) -> int:
        """How far a chunk is, in slots of its file."""
        data = self.found.data
        if data is not None and not hasattr(data, "__len__"):
            return min(chunk.number, of - 1)
        total = self.found.bytes if data is None else len(data)
        stop = chunk.behind(total) if data is None else chunk.stop
        return max(self._reached, min(max(stop - 1, 0) * of // max(total, 1), of - 1))

    def close(self) -> None:
        """Close the file; what was passed by is kept."""
        close = getattr(self._rest, "close", None)
        if close is not None:
            close()
        self._rest = self._next = self._listed = None
