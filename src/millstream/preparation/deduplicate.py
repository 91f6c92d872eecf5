"""Parts -> the same without duplicates: all of them go by once, and are read again when duplicates are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.preparation.builder import Accounts, PlacedPart, keep
from millstream.preparation.part import Part, PartCache, RejectedRecord
from millstream.preparation.process import PrepareRun, without
from millstream.records import DuplicateFinder, Duplicates, label_of
from millstream.stages import in_order
from millstream.store import ids_in

DEDUP_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class SeenPart:
    """A part that went by: its place, where it can be found again, and the number of its first document."""

    file: int
    rows_before: int
    cache: PartCache
    key: str
    first_record: int


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Leaves out the documents that share a key with an earlier one.

    Only when every document has been seen is it known which are the first of their kind. So all parts go by once, their
    keys are collected on disk in `folder`, and the parts are read again.
    """

    run: PrepareRun
    accounts: Accounts
    folder: Path
    memory_bytes: int = DEDUP_BYTES

    def __call__(self, parts: Iterable[PlacedPart], *, ahead: int) -> Iterator[PlacedPart]:
        """Give the parts again, without duplicates."""
        seen: list[SeenPart] = []
        duplicates = self._found(parts, seen)
        fetched = in_order(self.run.workers, _fetch, ((each.cache, each.key) for each in seen), ahead=ahead)
        for each, part in zip(seen, fetched, strict=True):
            heads = _heads(part)
            kept = np.ones(len(heads), np.bool_)
            for step, found in zip(self.run.job.pipeline.global_steps, duplicates, strict=True):
                dropped = found.among(each.first_record, each.first_record + len(heads)) & kept
                kept &= ~dropped
                self._account(f"{label_of(step)}: duplicate", part, heads[dropped], each)
            kept = np.repeat(kept, np.diff(heads, append=len(part.ends)))
            yield PlacedPart(each.file, each.rows_before, without(part, kept), each.key)

    def _found(self, parts: Iterable[PlacedPart], seen: list[SeenPart]) -> list[Duplicates]:
        """Collect the keys of all documents, and find the duplicates; `seen` tells where each part is."""
        spool = PartCache(self.folder / "parts")
        steps = self.run.job.pipeline.global_steps
        finders = [
            DuplicateFinder(
                self.folder / f"keys-{place}", key_words=step.key_words, memory_bytes=self.memory_bytes // len(steps)
            )
            for place, step in enumerate(steps)
        ]
        first = 0
        for number, each in enumerate(parts):
            cache, key = self.run.cache, each.key
            if cache is None or key is None:  # a part without a name is not in the cache
                cache, key = spool, f"{number:032x}"
                spool.put(key, each.part)
            heads = _heads(each.part)
            for finder, keys in zip(finders, each.part.keys, strict=True):
                finder.add(keys[heads], first)
            seen.append(SeenPart(each.file, each.rows_before, cache, key, first))
            first += len(heads)
        return [finder.finish() for finder in finders]

    def _account(self, reason: str, part: Part, dropped: NDArray[np.int64], seen: SeenPart) -> None:
        statistics, name = self.accounts.statistics, self.run.files[seen.file].name
        if len(dropped):
            statistics.losses.add("dropped", reason, len(dropped))
        wanted = dropped if self.accounts.rejected is not None else dropped[: statistics.wants(reason)]
        for document in wanted.tolist():
            begin = int(part.ends[document - 1]) if document else 0
            end = int(part.ends[document]) - (self.run.job.eos_id is not None)
            text = self.run.job.tokenizer.decode(ids_in(part.tokens[begin:end], self.run.job.dtype).tolist())
            row, start, stop = part.origins[document].tolist()
            rejected = RejectedRecord(reason, row, start, stop, text)
            statistics.example(rejected, name, seen.rows_before)
            if self.accounts.rejected is not None:
                keep(self.accounts.rejected, rejected, name, seen.rows_before)


def _heads(part: Part) -> NDArray[np.int64]:
    """The first document of each record: one that became several, as a pair does, is no duplicate of itself."""
    return np.flatnonzero((np.diff(part.origins, axis=0, prepend=-1) != 0).any(axis=1))


def _fetch(cache: PartCache, key: str) -> Part:
    part = cache.get(key)
    if part is None:
        raise StoreError(f"{cache.folder}: a part has left it meanwhile", hint="run again")
    return part
