"""Makes the parts of a stream: threads of this process, side by side with all others that share its cache."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millstream.errors import BudgetError, BusyError, ClosedError, SourceError
from millstream.preparation import BadRecords, Job, KeptAside, OnBad, Part, make_part, make_parts
from millstream.sources import CHANGED, GONE, NO_BYTES, Chunk, FoundFile
from millstream.stages import Threads, after_fork, defer_sigint
from millstream.stats import Ledger
from millstream.store import numbered, token_dtype
from millstream.streams.plan import Units
from millstream.streams.slots import SlotReader
from millstream.streams.stored_parts import Kept, PartFacts, UnitTokens

PARTS_TOGETHER = 8
"""Parts that a thread makes at once: a call of a tokenizer's engine costs about as much as encoding one."""
_LOOK_S = 0.02
"""Time between two looks at a part that another process makes."""
_LATER_S = 0.003
"""What a trainer takes to use windows that are made: threads that make the next ones would keep it from that."""
_CLOSED_S = 0.2
"""Time between two looks whether the loader was closed."""
_LONGEST_CLOSE_S = 0.5
"""How long closing waits for parts that are being made: a step of a recipe may take any time for one record."""


@dataclass(frozen=True, eq=False)
class _Piece:
    """A chunk of a file."""

    file: int
    found: FoundFile
    chunk: Chunk

    def bytes(self, most: int) -> int:
        """About how large it is; chunks that are not read yet have at most so many bytes."""
        data = self.chunk.data
        return len(data) if isinstance(data, bytes | memoryview) else min(most, self.found.bytes or most)


class PartMaker:
    """Gives the facts of parts, which it finds where they are kept, or makes.

    Args:
        units: What parts are made of.
        job: How a chunk becomes tokens.
        kept: Where parts are kept.
        threads: Threads that make parts.
        together: Parts that a thread makes at once, where there are enough.
        on_bad: What becomes of records that cannot be used.
        quarantine: The folder for records that are kept aside.
    """

    def __init__(
        self,
        units: Units,
        job: Job,
        kept: Kept,
        *,
        threads: int,
        together: int = PARTS_TOGETHER,
        on_bad: OnBad = "error",
        quarantine: Path | None = None,
    ) -> None:
        if on_bad == "quarantine" and quarantine is None:
            raise SourceError(
                'on_bad="quarantine" needs a folder',
                hint='pass cache_dir= for the file, or on_bad="skip" to count only',
            )
        self.units, self.job, self.kept = units, job, kept
        self._together, self._count = together, threads
        self._on_bad, self._quarantine = on_bad, quarantine
        self.on_made: Callable[[], None] = lambda: None
        """Called by threads, when parts were made or found."""
        self.made = self.found = 0
        """Parts that this process made, and that others had made."""
        self._closed = False
        self._begin()
        after_fork(self._begin)

    def _begin(self) -> None:
        self._stopping = threading.Event()
        if self._closed:
            self._stopping.set()
        self._reader = SlotReader(self.units)
        self._threads = Threads(self._count, "millstream-parts")
        self._bad = Ledger()
        """Records of all parts that were left out: a reason is told loudly a few times, not in every part."""
        self._guard = threading.Condition()
        """Of all below; it says that a part is made, or cannot be."""
        self._pending: deque[int] = deque()
        self._parts: dict[int, PartFacts | BaseException | None] = {}
        """What became of those that are wanted; None while they are made."""
        self._dropped: list[object] = []
        self._working = 0
        """Threads that take what is pending until there is no more."""

    def want(self, units: Sequence[int]) -> None:
        """Have parts made, in this order; those that were wanted before and are not begun are not made."""
        with defer_sigint():  # a part that is wanted, and that no thread was told of, would be waited for
            self._want(units)

    def call_later(self, function: Callable[[], None]) -> None:
        """Have a thread call something, when the caller has done what it is at."""
        with suppress(ClosedError):
            self._threads.submit(self._later, function)

    def _later(self, function: Callable[[], None]) -> None:
        if not self._stopping.wait(_LATER_S):
            function()

    def let_go(self, things: Iterable[object]) -> None:
        """Have a thread release what is not used any more: unmapping files takes a while."""
        self._dropped.extend(things)

    def _want(self, units: Sequence[int]) -> None:
        wanted = set(units)
        with self._guard:
            for unit in [unit for unit, part in self._parts.items() if isinstance(part, BudgetError)]:
                del self._parts[unit]  # there may be room now
            waiting = set(self._pending)
            unwanted = [unit for unit in self._pending if unit not in wanted]
            unwanted += [unit for unit, part in self._parts.items() if unit not in wanted and part is not None]
            new = [unit for unit in units if unit not in self._parts]
            for unit in unwanted:
                self._parts.pop(unit, None)  # it may be both pending and made
            for unit in new:
                self._parts[unit] = None
            waiting.update(new)
            self._pending = deque(unit for unit in units if unit in waiting)
            if self.units.share_readers:
                self._reader.give_up(slot for unit in unwanted for slot in self.units.slots(unit))
                self._reader.announce(slot for unit in new for slot in self.units.slots(unit))
            starting = min(self._count - self._working, len(self._pending))
            self._working += starting
        for _ in range(starting):
            self._threads.submit(self._work)

    @property
    def is_closed(self) -> bool:
        """Whether no more parts are made."""
        return self._closed

    def is_made(self, unit: int) -> bool:
        """Whether a part that was wanted can be had without waiting."""
        return isinstance(self._parts.get(unit), PartFacts)

    @property
    def held(self) -> set[int]:
        """Units that are just being made: none of their parts may be dropped."""
        with self._guard:
            return {unit for unit, part in self._parts.items() if part is None}

    def look(self, unit: int) -> PartFacts | None:
        """The facts of a part that was wanted, if it is made by now; raises what kept it from being made, once."""
        part = self._parts.get(unit)
        if isinstance(part, BaseException):
            with self._guard:
                self._parts.pop(unit, None)  # the next request tries again: a full disk may have room by then
            raise part
        return part

    def wait(self, unit: int) -> PartFacts:
        """Wait for a part that was wanted."""
        while (facts := self.look(unit)) is None:
            if unit not in self._parts:
                with self._guard:
                    pending = list(self._pending)
                self.want([unit, *pending])
            elif self._stopping.is_set():
                raise self._closed_error()
            else:
                with self._guard:
                    if unit in self._parts and self._parts[unit] is None:
                        self._guard.wait(_CLOSED_S)
        return facts

    def _settle(self, unit: int, part: PartFacts | BaseException) -> None:
        """Say what became of a part that was wanted."""
        with self._guard:
            self._parts[unit] = part
            self._guard.notify_all()

    def _work(self) -> None:
        """Find or make what is pending, as long as there is something; in a thread. It takes more than one part at a
        time where there is enough for all threads."""
        tried = 0
        while True:
            self._dropped = []
            with self._guard:
                if not self._pending or self._stopping.is_set():
                    self._working -= 1
                    return
                count = max(1, min(self._together, len(self._pending) // self._count))
                units = [self._pending.popleft() for _ in range(count)]
            busy = self._obtain(units)
            self.on_made()
            with self._guard:
                self._pending.extend(busy)
                tried = tried + len(busy) if len(busy) == len(units) else 0
                all_tried = tried >= len(self._pending) > 0
            if all_tried:  # each of them is being made by another process
                tried = 0
                self._stopping.wait(_LOOK_S)

    def _obtain(self, units: list[int]) -> list[int]:
        """Find parts or make them; gives those that another process makes."""
        busy, missing = [], []
        with ExitStack() as locks:
            for unit in units:
                try:
                    found = self.kept.find(unit)
                    if found is None:
                        locks.enter_context(self.kept.lock(unit))
                        found = self.kept.find(unit)  # another may have made it just before
                except BusyError:
                    busy.append(unit)
                except BaseException as error:
                    self._settle(unit, error)
                else:
                    if found is None:
                        missing.append(unit)
                    else:
                        self.found += 1
                        self._settle(unit, found)
            self._make(missing)
        if self.units.share_readers:
            self._reader.give_up(slot for unit in units if unit not in busy for slot in self.units.slots(unit))
        return busy

    def _make(self, units: list[int]) -> None:
        """Make parts, and keep them."""
        pieces: dict[int, list[_Piece]] = {}
        for unit in units:
            try:
                pieces[unit] = [
                    _Piece(slot.file, file, chunk)
                    for slot in self.units.slots(unit)
                    for file, chunks in [self._reader.chunks(slot)]
                    for chunk in chunks
                ]
            except BaseException as error:
                self._settle(unit, error)
        made = self._at_once([piece for each in pieces.values() for piece in each])
        for unit, each in pieces.items():
            try:
                facts = self.kept.put(unit, self._joined(unit, each, made))
            except BaseException as error:
                self._settle(unit, error)
            else:
                self.made += 1
                self._settle(unit, facts)

    def _at_once(self, pieces: list[_Piece]) -> dict[_Piece, Part]:
        """The parts of pieces that are small together, if nothing is wrong with them; else none."""
        size = self.units.reading.chunk_bytes
        if len(pieces) < 2 or sum(piece.bytes(size) for piece in pieces) > 2 * self._together * size:
            return {}
        try:
            parts = make_parts(self.job, [(piece.found, piece.chunk) for piece in pieces])
        except Exception:  # which of them it was is found out one by one
            return {}
        return dict(zip(pieces, parts, strict=True))

    def _joined(self, unit: int, pieces: list[_Piece], made: dict[_Piece, Part]) -> UnitTokens:
        tokens, ends, origins = [np.empty(0, token_dtype(self.job.dtype))], [np.empty(0, np.int64)], []
        left_out, changed, before = Counter[str](), Counter[str](), 0
        path = None if self._quarantine is None else self._quarantine / f"{unit:08d}.quarantine.jsonl"
        kept = KeptAside(path) if path is not None and self._on_bad == "quarantine" else None
        try:
            policy = BadRecords(self._on_bad, kept, self._bad)
            for piece in pieces:
                part = made.pop(piece, None) or make_part(self.job, piece.found, piece.chunk)
                if self._stopping.is_set():
                    raise self._closed_error()
                self._judge(policy, part, piece.found, piece.chunk)
                left_out.update(each.reason for each in part.bad)
                for counts in (part.skipped, part.reasons):
                    left_out.update(counts)
                changed.update(part.changed)
                tokens.append(part.tokens)
                ends.append(part.ends + before)
                before += len(part.tokens)
                origins.append(numbered(part.origins, piece.file, _rows_before(part, piece.chunk)))
        finally:
            if kept is not None:
                kept.close()
        return UnitTokens(
            np.concatenate(tokens) if len(pieces) != 1 else tokens[1],
            np.concatenate(ends),
            np.concatenate([np.empty((0, 3), np.int64), *origins]),
            dict(+left_out),
            dict(+changed),
            self.job.dtype,
        )

    def _judge(self, policy: BadRecords, part: Part, file: FoundFile, chunk: Chunk) -> None:
        """Raise, count or keep aside what is bad.

        A file that is gone or has changed is never skipped: rows of other ranks and epochs would be others.
        """
        for bad in part.bad:
            if bad.reason in (GONE, CHANGED):
                raise SourceError(
                    f"{file.name}: {bad.reason}: {bad.found}",
                    hint="restore the file as it was, and ask again; or start a new run over the files as they are",
                )
        in_rows = bool(part.bad) and part.bad[0].start == NO_BYTES
        from_byte = f" from byte {chunk.start}" if chunk.start and not in_rows else ""
        policy.take(file.name + from_byte, part.bad, rows_before=chunk.start if in_rows else 0)

    def _closed_error(self) -> ClosedError:
        return ClosedError("this loader was closed while it waited for its rows", hint="make a new one")

    def close(self) -> None:
        """Make no more parts; one that takes long is given up when its chunk is done."""
        self._closed = True
        self._stopping.set()
        self._threads.close(_LONGEST_CLOSE_S)
        self._reader.close()


def _rows_before(part: Part, chunk: Chunk) -> int:
    """Rows of a file before a chunk, where places count rows; where they count bytes nothing tells."""
    return chunk.start if len(part.origins) and part.origins[0, 1] == NO_BYTES else 0
