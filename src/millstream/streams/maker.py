"""Makes the parts of a stream: threads of this process, side by side with all others that share its cache."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import numpy as np

from millstream.errors import BusyError, ClosedError, SourceError
from millstream.parts.part import Part
from millstream.parts.policy import BadRecords, KeptAside, OnBad
from millstream.parts.process import Job, make_part
from millstream.sources import Chunk, FoundFile
from millstream.sources.record import NO_BYTES
from millstream.stages.lifetime import after_fork, defer_sigint
from millstream.stages.ordered import Threads
from millstream.store.format import token_dtype
from millstream.store.origin import numbered
from millstream.streams.kept import Kept, PartFacts, UnitTokens
from millstream.streams.plan import Units
from millstream.streams.slots import SlotReader

_LOOK_S = 0.02
"""Time between two looks at a part that another process makes."""
_CLOSED_S = 0.2
"""Time between two looks whether the loader was closed."""
_LONGEST_CLOSE_S = 0.5
"""How long closing waits for parts that are being made: a step of a recipe may take any time for one record."""


class PartMaker:
    """Gives the facts of parts, which it finds where they are kept, or makes.

    Args:
        units: What parts are made of.
        job: How a chunk becomes tokens.
        kept: Where parts are kept.
        threads: Threads that make parts.
        on_bad: What becomes of records that cannot be used.
        quarantine: The folder for records that are kept aside.
        id_limit: 1 + the largest id that the model has an embedding for.
    """

    def __init__(
        self,
        units: Units,
        job: Job,
        kept: Kept,
        *,
        threads: int,
        on_bad: OnBad = "error",
        quarantine: Path | None = None,
        id_limit: int | None = None,
    ) -> None:
        if on_bad == "quarantine" and quarantine is None:
            raise SourceError(
                'on_bad="quarantine" needs a folder',
                hint='pass cache_dir= for the file, or on_bad="skip" to count only',
            )
        self.units, self.job, self.kept = units, job, kept
        self._count, self._on_bad, self._quarantine, self._id_limit = threads, on_bad, quarantine, id_limit
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
        self._guard = threading.Lock()
        self._pending: deque[int] = deque()
        self._parts: dict[int, Future[PartFacts]] = {}

    def want(self, units: Sequence[int]) -> None:
        """Have parts made, in this order; those that were wanted before and are not begun are not made."""
        with defer_sigint():  # a part that is wanted, and that no thread was told of, would be waited for
            self._want(units)

    def _want(self, units: Sequence[int]) -> None:
        wanted = set(units)
        with self._guard:
            dropped = [unit for unit in self._pending if unit not in wanted]
            dropped += [unit for unit, part in self._parts.items() if unit not in wanted and part.done()]
            new = [unit for unit in units if unit not in self._parts]
            for unit in dropped:
                del self._parts[unit]
            for unit in new:
                self._parts[unit] = Future()
            self._pending = deque(unit for unit in units if unit in new or unit in self._pending)
        for unit in dropped:
            self._reader.give_up(self.units.slots(unit))
        for unit in new:
            self._reader.announce(self.units.slots(unit))
            self._threads.submit(self._work)

    @property
    def held(self) -> set[int]:
        """Units that are wanted, or that were and are just being made: none of their parts may be dropped."""
        with self._guard:
            return set(self._parts)

    def look(self, unit: int) -> PartFacts | None:
        """The facts of a part that was wanted, if it is made by now; raises what kept it from being made, once."""
        part = self._parts.get(unit)
        if part is None or not part.done():
            return None
        try:
            return part.result()
        except BaseException:
            with self._guard:
                self._parts.pop(unit, None)  # whoever wants it again tries again: a full disk may have room by then
            raise

    def wait(self, unit: int) -> PartFacts:
        """Wait for a part that was wanted."""
        while (facts := self.look(unit)) is None:
            part = self._parts.get(unit)
            if part is None:
                with self._guard:
                    pending = list(self._pending)
                self.want([unit, *pending])
            elif self._stopping.is_set():
                raise self._closed_error()
            else:
                wait([part], timeout=_CLOSED_S)
        return facts

    def _work(self) -> None:
        """Find or make the first part that no other process makes just now; in a thread."""
        tried = 0
        while not self._stopping.is_set():
            with self._guard:
                if not self._pending:
                    return
                unit = self._pending.popleft()
                part = self._parts[unit]
            try:
                facts = self._obtain(unit)
            except BusyError:
                with self._guard:
                    self._pending.append(unit)
                    tried += 1
                    all_tried = tried >= len(self._pending)
                if all_tried:
                    tried = 0
                    self._stopping.wait(_LOOK_S)
                continue
            except BaseException as error:
                part.set_exception(error)
            else:
                part.set_result(facts)
            self._reader.give_up(self.units.slots(unit))
            return

    def _obtain(self, unit: int) -> PartFacts:
        """Find a part or make it; raises BusyError while another process makes it."""
        found = self.kept.find(unit)
        if found is None:
            with self.kept.lock(unit):
                found = self.kept.find(unit)  # another may have made it just before
                if found is None:
                    return self.kept.put(unit, self._made(unit))
        self.found += 1
        return found

    def _made(self, unit: int) -> UnitTokens:
        tokens, ends, origins = [np.empty(0, token_dtype(self.job.dtype))], [np.empty(0, np.int64)], []
        left_out, changed, before = Counter[str](), Counter[str](), 0
        path = None if self._quarantine is None else self._quarantine / f"{unit:08d}.quarantine.jsonl"
        kept = KeptAside(path) if path is not None and self._on_bad == "quarantine" else None
        try:
            policy = BadRecords(self._on_bad, kept)
            for slot in self.units.slots(unit):
                file, chunks = self._reader.chunks(slot)
                for chunk in chunks:
                    part = make_part(self.job, file, chunk)
                    if self._stopping.is_set():
                        raise self._closed_error()
                    self._judge(policy, part, file, chunk)
                    left_out += (
                        Counter(each.reason for each in part.bad) + Counter(part.skipped) + Counter(part.reasons)
                    )
                    changed += Counter(part.changed)
                    tokens.append(part.tokens)
                    ends.append(part.ends + before)
                    before += len(part.tokens)
                    origins.append(numbered(part.origins, slot.file, _rows_before(part, chunk)))
        finally:
            if kept is not None:
                kept.close()
        self.made += 1
        return UnitTokens(
            np.concatenate(tokens),
            np.concatenate(ends),
            np.concatenate([np.empty((0, 3), np.int64), *origins]),
            dict(left_out),
            dict(changed),
            self.job.dtype,
        )

    def _judge(self, policy: BadRecords, part: Part, file: FoundFile, chunk: Chunk) -> None:
        """Raise, count or keep aside what is bad, and insist on ids that the model has an embedding for."""
        in_rows = bool(part.bad) and part.bad[0].start == NO_BYTES
        from_byte = f" from byte {chunk.start}" if chunk.start and not in_rows else ""
        policy.take(file.name + from_byte, part.bad, rows_before=chunk.start if in_rows else 0)
        limit = self._id_limit
        if limit is None or limit >= self.job.tokenizer.vocab_size or not len(part.tokens):
            return
        largest = int(part.tokens.max())
        if largest >= limit:
            raise SourceError(
                f"{file.name}: its tokens hold the id {largest}, but the model's vocabulary has {limit} ids",
                hint="use the model's tokenizer, or enlarge the model's embedding",
            )

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
