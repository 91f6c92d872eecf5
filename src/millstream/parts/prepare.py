"""One run of `prepare`, everything decided: files -> parts -> a store, whole or not at all.

A run that was stopped finds the parts it had made and writes the store from them: it does not know where it was
stopped, and need not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millstream.chats.settings import ChatSettings
from millstream.compression import LEVEL
from millstream.errors import BudgetError, SourceError
from millstream.parts import bookmark
from millstream.parts.cache import PartCache
from millstream.parts.deduplicate import Deduplication
from millstream.parts.learn import learned_or_loaded
from millstream.parts.mixing import Mixing
from millstream.parts.policy import BadRecords, KeptAside, OnBad
from millstream.parts.pool import Threads
from millstream.parts.process import Job, make_part
from millstream.parts.run import Make, Run
from millstream.parts.statistics import Statistics
from millstream.parts.write import Ledger, Placed, StoreBuilder, accounted, placed
from millstream.records import Recipe
from millstream.sources import Found, FoundFile, Reading
from millstream.sources.formats import check_gives_rows
from millstream.stats.figures import counted
from millstream.stats.progress import OnProgress, Progress
from millstream.store import TokenStore, disk
from millstream.store.format import token_dtype
from millstream.store.origin import origins_path
from millstream.store.staging import staged
from millstream.store.weights import WEIGHTED
from millstream.tokens import Tokenizer, resolve_eos
from millstream.tokens.keep import keep_tokenizer, smallest_dtype

SPOOL = ".parts"
MEMORY_PER_CHUNK = 12
"""A chunk of n bytes, its records, its ids and its part take at most about this many times n bytes together."""

log = logging.getLogger("millstream.parts")
_NO_TEXT = "look at what was left out and why; is it the right source and text_field?"
_NO_CONVERSATION = (
    'look at what was left out and why: what is too long needs a larger max_length, or truncation="keep_end" where one '
    "exchange alone does not fit; what has nothing to train another train=; `millstream lint` names the rows"
)


@dataclass(frozen=True)
class Making:
    """What is to be made: everything here decides the bytes of the store."""

    reading: Reading = field(default_factory=Reading)
    recipe: Recipe = field(default_factory=Recipe)
    tokenizer: object = "bpe"
    eos: str | int | None = "auto"
    dtype: str | None = None
    compress: int | None = None
    before: Any = None
    after: Any = None
    chat: ChatSettings | None = None
    mixing: Mixing | None = None


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
    engine: str | None
    statistics: Statistics
    bad: dict[str, int]
    quarantine: Path | None
    rejected: Path | None
    parts_made: int
    parts_found: int
    spool_bytes: int
    token_bytes: int
    file_bytes: int
    seconds: float
    cpu_seconds: float


def prepare_store(found: Found, output: Path, making: Making, means: Means) -> Outcome:
    """Make the store of some files at `output`."""
    started, cpu = time.perf_counter(), time.process_time()
    ahead = means.ahead(making.reading.chunk_bytes)
    if making.chat is not None:
        check_gives_rows(found.files)
    cache = None if means.cache_dir is None else PartCache(means.cache_dir, level=means.level)
    with ExitStack() as stack:
        path = stack.enter_context(
            staged(output, overwrite=means.overwrite, resume=means.resume, bookmark=bookmark.NAME)
        )
        if cache is None and making.recipe.pipeline().global_steps:
            cache = PartCache(path.parent / SPOOL, level=means.level)  # the parts are needed twice
        workers = stack.enter_context(Threads(means.workers))
        tokenizer = learned_or_loaded(making.tokenizer, found, making.reading, making.recipe, cache, means.progress)
        job = _job(making, tokenizer, found, keep_rejected=means.keep_rejected)
        tokenizer = job.tokenizer
        run = Run(job, found.files, cache, workers, means.make)
        ledger = _write(run, path, making, means, ahead)
        keep_tokenizer(tokenizer, path)
    if cache is not None and means.cache_dir is not None:
        cache.prune(means.cache_limit)
    with TokenStore(output) as store:
        manifest = store.manifest
    aside = {name: output.parent / kept.path.name for name, kept in ledger.aside.items() if kept.records}
    return Outcome(
        manifest=dict(manifest),
        tokenizer=tokenizer.name,
        engine=job.engine if run.counts.made else None,
        statistics=ledger.statistics,
        bad=dict(sorted(ledger.bad.counts.items())),
        quarantine=aside.get("quarantine"),
        rejected=aside.get("rejected"),
        parts_made=run.counts.made,
        parts_found=run.counts.found,
        spool_bytes=0 if cache is None else cache.bytes_written,
        token_bytes=manifest["tokens"] * token_dtype(manifest["dtype"]).itemsize,
        file_bytes=sum(file.stat().st_size for file in ([output] if output.is_file() else output.glob("*.bin"))),
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu,
    )


def _job(making: Making, tokenizer: Tokenizer, found: Found, *, keep_rejected: bool) -> Job:
    chat = making.chat
    if chat is not None:
        chat = chat.decided(found.files, making.reading)
        tokenizer = chat.encoder(tokenizer).tokenizer  # it may have got control tokens
    job = Job(
        making.reading,
        making.recipe,
        tokenizer,
        resolve_eos(tokenizer, making.eos) if chat is None else None,
        WEIGHTED if chat is not None else making.dtype or smallest_dtype(tokenizer),
        keep_rejected,
        making.before,
        making.after,
        chat,
    )
    if job.identity is None:
        log.warning("a step of the recipe cannot be identified: nothing is cached, and a stopped run begins again")
    return job


def _write(run: Run, path: Path, making: Making, means: Means, ahead: int) -> Ledger:
    """Take all parts in order and write the store at `path`, from where an earlier run stopped, if one did."""
    folder, identity = path.parent, bookmark.identity_of(run.job, run.files, [making.compress, making.mixing])
    mark = bookmark.load_bookmark(folder, identity) or bookmark.Bookmark(identity or "")
    if not mark.parts:
        _clear(folder)
    ledger = _ledger(run, folder, path.name, means, mark)
    is_two_pass = bool(run.job.pipeline.global_steps)
    with ExitStack() as stack:
        for kept in ledger.aside.values():
            stack.enter_context(kept)
        parts: Iterable[Placed] = placed(run.parts(ahead=ahead, skip=mark.parts), mark.file, mark.rows_before)
        parts = _counted(run, accounted(run, parts, ledger), ledger, means.progress)
        if is_two_pass:
            if identity is not None and means.cache_dir is None:
                bookmark.save_bookmark(folder, mark)  # the spool outlives a failure
            parts = Deduplication(run, ledger, folder / ".dedup")(parts, ahead=ahead)
        builder = StoreBuilder(run, path, ledger, mark, making.compress, making.mixing)
        stack.callback(builder.origins.close)
        with builder.writer as writer:
            for number, each in enumerate(parts, mark.parts + 1):
                builder.add(each)
                if identity is not None and not is_two_pass:
                    builder.mark_if_due(each, number)
            builder.finish_group()
            _refuse_nothing(run, ledger)
            writer.describe(sources=_sources(run), recipe=_recipe(run, ledger, making.mixing))
        with TokenStore(path) as store:
            builder.origins.seal(origins_path(path, store.fingerprint))
    return ledger


def _clear(folder: Path) -> None:
    """Remove the unfinished store and what belongs to it; parts and the bookmark stay."""
    for entry in folder.iterdir():
        if entry.name in (SPOOL, bookmark.NAME):
            continue
        if entry.is_dir():
            disk.remove_tree(entry)
        else:
            disk.remove(entry)


def _ledger(run: Run, folder: Path, name: str, means: Means, mark: bookmark.Bookmark) -> Ledger:
    """What was counted and kept aside up to the mark, and goes on from there."""
    aside = {"quarantine": KeptAside(folder / f"{name}.quarantine.jsonl", level=means.level)}
    if means.keep_rejected:
        aside["rejected"] = KeptAside(folder / f"{name}.rejected.jsonl", level=means.level)
    for kind, (size, records) in mark.kept.items():
        if kind in aside:
            aside[kind].go_back(size, records)
    statistics = (
        Statistics.from_json(mark.statistics)
        if mark.parts
        else Statistics.of(run.files, weighted=run.job.chat is not None)
    )
    bad = BadRecords(means.on_bad, aside["quarantine"])
    bad.counts.update(mark.bad)
    return Ledger(statistics, bad, aside)


def _refuse_nothing(run: Run, ledger: Ledger) -> None:
    """A store without a document is no store."""
    if not ledger.statistics.documents:
        counts = ledger.statistics.skipped + ledger.statistics.dropped + ledger.bad.counts
        left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "nothing at all"
        raise SourceError(
            f"{_named(run.files)}: no document was found (left out: {left_out})",
            hint=_NO_TEXT if run.job.chat is None else _NO_CONVERSATION,
        )


def _named(files: Sequence[FoundFile]) -> str:
    """Files in few words."""
    more = f" and {counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    return f"{files[0].name}{more}"


def _counted(run: Run, parts: Iterable[Placed], ledger: Ledger, progress: OnProgress) -> Iterable[Placed]:
    """Say how far the run is."""
    total = sum(file.bytes for file in run.files)
    before, file = 0, 0
    tokens, documents = ledger.statistics.tokens, ledger.statistics.documents
    for each in parts:
        while file < each.file:
            before, file = before + run.files[file].bytes, file + 1
        tokens += len(each.part.tokens)
        documents += len(each.part.ends)
        done = min(before + each.part.source_stop, total)
        ledger.statistics.tick(done, tokens)
        dropped = sum(ledger.statistics.dropped.values())
        share = f", {100 * dropped / max(1, dropped + documents):.1f} % rejected" if dropped else ""
        progress(Progress("prepare", done, total, "bytes", f"{_amounts(documents, tokens)}{share}", tokens))
        yield each
    progress(Progress("prepare", total, total, "bytes", _amounts(documents, tokens), tokens))


def _amounts(documents: int, tokens: int) -> str:
    return f"{counted(documents, 'document')}, {counted(tokens, 'token')}"


def _sources(run: Run) -> list[dict[str, Any]]:
    """What the manifest says of each file."""
    return [
        {"path": file.name, "bytes": file.bytes, "blake2b": digest}
        for file, digest in zip(run.files, run.digests, strict=True)
    ]


def _recipe(run: Run, ledger: Ledger, mixing: Mixing | None) -> dict[str, Any]:
    """What the manifest says of the way from the files to the tokens."""
    statistics, reading = ledger.statistics, run.job.reading
    limits = ("chunk_bytes", "max_expansion", "max_decoded_bytes")
    return {
        "documents_per_source": [counts.documents for counts in statistics.files],
        "eos_id": run.job.eos_id,
        "formats": [file.format for file in run.files],
        **ledger.counts,
        "reading": {name: value for name, value in asdict(reading).items() if name not in limits},
        "steps": run.job.recipe.canonical(),
        "weights": [file.weight for file in run.files],
        **({} if run.job.chat is None else {"chat": run.job.chat.description}),
        **({} if mixing is None else {"mixing": asdict(mixing)}),
    }
