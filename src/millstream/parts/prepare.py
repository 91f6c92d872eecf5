"""One run of `prepare`, everything decided: files -> parts -> a store, whole or not at all.

A run that was stopped finds the parts it had made and writes the store from them: it does not know where it was
stopped, and need not.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millstream.compression import LEVEL
from millstream.errors import BudgetError, SourceError
from millstream.parts.cache import PartCache
from millstream.parts.learn import learned_or_loaded
from millstream.parts.policy import BadRecords, KeptAside, OnBad
from millstream.parts.pool import Threads
from millstream.parts.process import Job, make_part
from millstream.parts.run import Make, Run
from millstream.parts.statistics import Statistics
from millstream.parts.write import Deduplication, Ledger, Placed, accounted, placed, written
from millstream.records import Recipe
from millstream.sources import Found, Reading
from millstream.stats.progress import OnProgress, Progress
from millstream.store import TokenStore, TokenStoreWriter
from millstream.store.origin import OriginsWriter, origins_path
from millstream.store.staging import staged
from millstream.tokens import resolve_eos
from millstream.tokens.keep import describe_tokenizer, keep_tokenizer, smallest_dtype

SPOOL = ".parts"
MEMORY_PER_CHUNK = 12
"""A chunk of n bytes, its records, its ids and its part take at most about this many times n bytes together."""

log = logging.getLogger("millstream.parts")


@dataclass(frozen=True)
class Making:
    """What is to be made: everything here decides the bytes of the store."""

    reading: Reading = field(default_factory=Reading)
    recipe: Recipe = field(default_factory=Recipe)
    tokenizer: object = "bpe"
    eos: str | int | None = "auto"
    dtype: str | None = None
    before: Any = None
    after: Any = None


@dataclass(frozen=True)
class Means:
    """How it is made: none of this changes the store."""

    workers: int = 1
    on_bad: OnBad = "error"
    resume: bool = False
    overwrite: bool = False
    cache_dir: Path | None = None
    cache_limit: int = 64 << 30
    level: int | None = LEVEL
    keep_rejected: bool = False
    memory_budget: int | None = None
    make: Make = make_part
    progress: OnProgress = field(default=lambda progress: None)

    def ahead(self, chunk_bytes: int) -> int:
        """How many parts may be under way: one per worker and one that waits, or what the memory allows."""
        wanted = self.workers + 1
        if self.memory_budget is None:
            return wanted
        least = MEMORY_PER_CHUNK * chunk_bytes
        if self.memory_budget < least:
            raise BudgetError(
                f"memory_budget={self.memory_budget:,} bytes are not enough for one chunk, which takes {least:,}",
                hint=f"raise it, or pass a smaller chunk_bytes than {chunk_bytes:,}",
            )
        return min(wanted, self.memory_budget // least)


@dataclass(frozen=True)
class Outcome:
    """What a run left behind and what it counted."""

    manifest: dict[str, Any]
    tokenizer: str
    engine: str
    statistics: Statistics
    bad: dict[str, int]
    quarantine: Path | None
    rejected: Path | None
    parts_made: int
    parts_found: int
    spool_bytes: int
    seconds: float
    cpu_seconds: float


def prepare_store(found: Found, output: Path, order: Making, means: Means) -> Outcome:
    """Make the store of some files at `output`."""
    started, cpu = time.perf_counter(), time.process_time()
    ahead = means.ahead(order.reading.chunk_bytes)
    with ExitStack() as stack:
        path = stack.enter_context(staged(output, overwrite=means.overwrite, resume=means.resume, spool=SPOOL))
        cache = PartCache(means.cache_dir or path.parent / SPOOL, level=means.level)
        workers = stack.enter_context(Threads(means.workers))
        tokenizer = learned_or_loaded(order.tokenizer, found, order.reading, order.recipe, cache, means.progress)
        job = Job(
            order.reading,
            order.recipe,
            tokenizer,
            resolve_eos(tokenizer, order.eos),
            order.dtype or smallest_dtype(tokenizer),
            means.keep_rejected,
            order.before,
            order.after,
        )
        if job.identity is None:
            log.warning("a step of the recipe cannot be identified: a stopped run will begin again, nothing is cached")
        run = Run(job, found.files, cache, workers, means.make)
        quarantine, rejected = _aside(output, path.parent, means)
        ledger = Ledger(Statistics.of(found.files), BadRecords(means.on_bad, quarantine), rejected)
        with quarantine, rejected or ExitStack():
            _write(run, path, ledger, means, ahead)
        keep_tokenizer(tokenizer, path)
    if means.cache_dir is not None:
        cache.prune(means.cache_limit)
    with TokenStore(output) as store:
        manifest = store.manifest
    return Outcome(
        manifest=dict(manifest),
        tokenizer=tokenizer.name,
        engine=getattr(tokenizer, "engine", tokenizer.name),
        statistics=ledger.statistics,
        bad=dict(sorted(ledger.bad.counts.items())),
        quarantine=output.parent / quarantine.path.name if quarantine.records else None,
        rejected=output.parent / rejected.path.name if rejected and rejected.records else None,
        parts_made=run.counts.made,
        parts_found=run.counts.found,
        spool_bytes=cache.bytes_written,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu,
    )


def _aside(output: Path, folder: Path, means: Means) -> tuple[KeptAside, KeptAside | None]:
    """Files for bad records and for what the recipe dropped; they are published with the store."""
    quarantine = KeptAside(folder / f"{output.name}.quarantine.jsonl", level=means.level)
    rejected = KeptAside(folder / f"{output.name}.rejected.jsonl", level=means.level) if means.keep_rejected else None
    return quarantine, rejected


def _write(run: Run, path: Path, ledger: Ledger, means: Means, ahead: int) -> None:
    """Take all parts in order and write the store at `path`."""
    job, statistics = run.job, ledger.statistics
    parts: Iterable[Placed] = accounted(run, placed(run.parts(ahead=ahead)), ledger)
    parts = _counted(run, parts, ledger, means.progress)
    if job.pipeline.global_steps:
        parts = Deduplication(run, ledger, path.parent / ".dedup")(parts, ahead=ahead)
    with TokenStoreWriter(path, dtype=job.dtype, tokenizer=describe_tokenizer(job.tokenizer)) as writer:
        origins = OriginsWriter(path.parent / ".origins")
        for _ in written(parts, writer, origins, ledger):
            pass
        if not statistics.documents:
            counts = statistics.skipped + statistics.dropped + ledger.bad.counts
            left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "nothing at all"
            raise SourceError(
                f"no document was found (files read: {len(run.files)}; left out: {left_out})",
                hint="look at what was left out and why; is it the right source and text_field?",
            )
        writer.describe(sources=_sources(run), recipe=_recipe(run, ledger))
    with TokenStore(path) as store:
        origins.seal(origins_path(path, store.fingerprint))


def _counted(run: Run, parts: Iterable[Placed], ledger: Ledger, progress: OnProgress) -> Iterable[Placed]:
    """Say how far the run is."""
    total = sum(file.bytes for file in run.files)
    before, file, tokens, documents = 0, 0, 0, 0
    for each in parts:
        while file < each.file:
            before, file = before + run.files[file].bytes, file + 1
        tokens += len(each.part.tokens)
        documents += len(each.part.ends)
        done = min(before + each.part.source_stop, total)
        ledger.statistics.tick(done, tokens)
        dropped = sum(ledger.statistics.dropped.values())
        share = f", {100 * dropped / max(1, dropped + documents):.1f} % rejected" if dropped else ""
        progress(
            Progress("prepare", done, total, "bytes", f"{documents:,} documents, {tokens:,} tokens{share}", tokens)
        )
        yield each
    progress(Progress("prepare", total, total, "bytes", f"{documents:,} documents, {tokens:,} tokens", tokens))


def _sources(run: Run) -> list[dict[str, Any]]:
    """What the manifest says of each file."""
    return [
        {"path": file.name, "bytes": file.bytes, "blake2b": digest}
        for file, digest in zip(run.files, run.digests, strict=True)
    ]


def _recipe(run: Run, ledger: Ledger) -> dict[str, Any]:
    """What the manifest says of the way from the files to the tokens."""
    statistics, reading = ledger.statistics, run.job.reading
    limits = ("chunk_bytes", "max_expansion", "max_decoded_bytes")
    return {
        "documents_per_source": [counts.documents for counts in statistics.files],
        "eos_id": run.job.eos_id,
        "formats": [file.format for file in run.files],
        "left_out": dict(sorted((statistics.skipped + statistics.dropped + ledger.bad.counts).items())),
        "reading": {name: value for name, value in asdict(reading).items() if name not in limits},
        "steps": run.job.recipe.canonical(),
        "weights": [file.weight for file in run.files],
    }


def cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
