"""Raw files that are tokenised while training runs: what is read, how it is cut into units, what memory it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from millstream.batches import bytes_for_batches
from millstream.errors import BudgetError
from millstream.loaders import LoaderSettings, Span
from millstream.loaders.growing.raw_files import RawSettings, check_streamable, described, in_words_of_loaders, touch
from millstream.preparation import MEMORY_PER_CHUNK, Job, OnBad
from millstream.records import Recipe
from millstream.sources import Found, fingerprint_files
from millstream.storage import key_of
from millstream.store import token_dtype
from millstream.streams import (
    PARTS_TOGETHER,
    STREAM_ORDER,
    WINDOW_UNITS,
    Kept,
    KeptInMemory,
    KeptOnDisk,
    Units,
    size_of,
    unit_bytes,
)
from millstream.tokens import Tokenizer, resolve_eos, smallest_dtype

AHEAD = 3
"""Windows that are made ahead, and come into use together, where there is room."""
DOCUMENT_BITS = 32
"""Of a document's number: its place in its unit. The unit is the rest."""


@dataclass(frozen=True)
class StreamSpan(Span):
    """A span whose document is a record of a raw file: bytes [first_byte, last_byte) of its decoded text.

    Without a byte range (Parquet, Arrow) both are None, and `row` is the row in the file. `document` numbers the
    record by its unit and its place in that: the same number in every run over these files with these settings.
    """

    row: int | None = None
    first_byte: int | None = None
    last_byte: int | None = None


@dataclass(frozen=True)
class Stream:
    """Raw files under some settings: what every rank, and every mixture, reads."""

    path: str
    found: Found
    units: Units
    job: Job
    on_bad: OnBad = "error"
    threads: int | None = None
    id_limit: int | None = None

    @classmethod
    @in_words_of_loaders()
    def open(
        cls, path: Any, tokenizer: Tokenizer, raw: RawSettings, settings: LoaderSettings, threads: int | None
    ) -> Stream:
        """Find the files, and cut them into units; hardly anything is read."""
        found, reading, recipe = raw.found(path), raw.how(), Recipe.of(raw.recipe)
        check_streamable(recipe)
        if "chunk_bytes" not in raw.reading:
            total = sum(size_of(file, reading) or 0 for file in found.files)
            reading = replace(reading, chunk_bytes=unit_bytes(total))
        job = Job(reading, recipe, tokenizer, resolve_eos(tokenizer, raw.eos), smallest_dtype(tokenizer))
        units = Units(found.files, reading)
        return cls(described(path), found, units, job, raw.on_bad, threads, settings.limits.vocab_size)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What decides the tokens, as a state keeps it."""
        job = self.job
        return {
            "fingerprint": fingerprint_files(self.found.files),
            "files": len(self.found.files),
            "bytes": self.found.bytes,
            "units": self.units.count,
            "reading": key_of(asdict(job.reading)),
            "recipe": job.recipe.digest(),
            "tokenizer": job.tokenizer.fingerprint,
            "eos": job.eos_id,
            "stream_order": STREAM_ORDER,
        }

    def folder(self, cache_dir: Path | None) -> Path | None:
        """Where parts are kept for others; nowhere if a step of the recipe, or what is read, cannot be identified."""
        identity = self.job.identity
        touches = [touch(file) for file in self.found.files]
        if cache_dir is None or identity is None or not all(touches):
            return None
        return cache_dir / "streams" / key_of("stream", STREAM_ORDER, identity, touches, self.on_bad)

    def parts_together(self, budget: int | None, threads: int) -> int:
        """Parts that a thread makes at once, in an eighth of the budget."""
        each = MEMORY_PER_CHUNK * self.job.reading.chunk_bytes
        return PARTS_TOGETHER if budget is None else max(1, min(PARTS_TOGETHER, budget // 8 // (threads * each)))

    def kept(self, folder: Path | None, settings: LoaderSettings, at_once: int) -> Kept:
        """Where parts are kept: in the cache, else in memory, in what batches and threads leave of the budget, which
        make so many parts at once."""
        if folder is not None:
            return KeptOnDisk(folder, settings.cache_limit)
        budget, chunk_bytes = settings.memory_budget, self.job.reading.chunk_bytes
        if budget is None:
            return KeptInMemory()
        working = at_once * MEMORY_PER_CHUNK * chunk_bytes
        left = budget - bytes_for_batches(budget) - working
        if left <= 0:
            raise BudgetError(
                f"memory_budget is {budget:,} bytes, half of it for batches; {at_once} units of {chunk_bytes:,} bytes "
                f"that are made at once take {working:,}",
                hint=f"pass memory_budget={4 * working} or more, fewer threads, or reading={{'chunk_bytes': …}}",
            )
        return KeptInMemory(left)

    def windows_ahead(self, kept: Kept, cache_limit: int | None) -> int:
        """Windows that are made ahead: one where there is not surely room for more."""
        if isinstance(kept, KeptInMemory) and kept.budget is not None:
            most = WINDOW_UNITS * self.job.reading.chunk_bytes * token_dtype(self.job.dtype).itemsize
            return max(1, min(AHEAD, (kept.budget // most - 1) // 2))
        return AHEAD if cache_limit is None else 1
