"""One run of `prepare`, everything decided: files -> parts -> a store, whole or not at all.

A run that was stopped finds the parts it had made and writes the store from them: it does not know where it was
stopped, and need not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import BudgetError, StoreError
from millstream.preparation.bad_records import BadRecords, KeptAside, OnBad
from millstream.preparation.builder import (
    Accounts,
    PlacedPart,
    StoreBuilder,
    accounted,
    placed,
    progressing,
    refuse_nothing,
)
from millstream.preparation.deduplicate import Deduplication
from millstream.preparation.earlier import (
    BOOKMARK_FILE,
    Bookmark,
    differences,
    differences_before_learning,
    identity_of,
    load_bookmark,
    save_bookmark,
    settings_before,
    settings_of,
    sources_of,
)
from millstream.preparation.learn import learned_or_loaded
from millstream.preparation.mixing import Mixing
from millstream.preparation.part import PartCache
from millstream.preparation.process import MEMORY_PER_CHUNK, Job, Make, PrepareRun, digested, make_part
from millstream.preparation.report import FileCounts, Statistics
from millstream.records import Recipe
from millstream.sources import Found, Reading, check_gives_rows
from millstream.stages import Threads
from millstream.stats import OnProgress
from millstream.storage import ZSTD_LEVEL, FinishedStore, disk, staged
from millstream.store import WEIGHTED, TokenStore, origins_path, token_dtype
from millstream.tokens import Tokenizer, is_learned, keep_tokenizer, resolve_eos, smallest_dtype

if TYPE_CHECKING:
    from millstream.chats import ChatSettings, DecidedChat

SPOOL = ".parts"

log = logging.getLogger("millstream.preparation")


@dataclass(frozen=True)
class StoreRecipe:
    """What is to be made: everything here decides the bytes of the store."""

    reading: Reading = field(default_factory=Reading)
    recipe: Recipe = field(default_factory=Recipe)
    tokenizer: object = "bpe"
    eos: str | int | None = "auto"
    dtype: str | None = None
    compress: int | None = None
    before: Any = None
    after: Any = None
    chat: ChatSettings | DecidedChat | None = None
    """How conversations become tokens, as it was asked for; or decided, by a loader that had to know before."""
    mixing: Mixing | None = None


@dataclass(frozen=True)
class RunOptions:
    """How it is made: none of this changes the store."""

    workers: int = 1
    on_bad: OnBad = "error"
    resume: bool = False
    overwrite: bool = False
    cache_dir: Path | None = None
    cache_limit: int = 64 << 30
    level: int | None = ZSTD_LEVEL
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
class PrepareOutcome:
    """What a run made and what it counted."""

    manifest: dict[str, Any]
    tokenizer: str
    engine: str | None
    statistics: Statistics
    quarantine: Path | None
    rejected: Path | None
    parts_made: int
    parts_found: int
    token_bytes: int
    file_bytes: int
    spool_bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """How long what took: getting the tokenizer, reading and encoding, and finishing."""
    was_there: bool = False
    """Whether an earlier run had made the store, and nothing was left to do."""


def prepare_store(
    found: Found,
    output: Path,
    making: StoreRecipe,
    means: RunOptions,
    report: Callable[[PrepareOutcome, Path], object] | None = None,
) -> PrepareOutcome:
    """Make the store of some files at `output`; `report` writes down what was counted beside the unpublished store.

    With `resume` a finished store of the same files, made in the same way, is what was asked for.
    """
    started, cpu = time.perf_counter(), time.process_time()
    ahead = means.ahead(making.reading.chunk_bytes)
    if making.chat is not None:
        check_gives_rows(found.files)
    cache = None if means.cache_dir is None else PartCache(means.cache_dir, level=means.level)
    with ExitStack() as stack:
        try:
            path = stack.enter_context(
                staged(output, overwrite=means.overwrite, resume=means.resume, bookmark=BOOKMARK_FILE)
            )
        except FinishedStore:
            if not means.resume:
                raise
            return _found_finished(found, output, making, means, cache, started)
        if cache is None and making.recipe.pipeline().global_steps:
            cache = PartCache(path.parent / SPOOL, level=means.level)  # the parts are needed twice
        workers = stack.enter_context(Threads(means.workers, "millstream-part"))
        run = _run(found, making, means, cache, workers)
        loaded = time.perf_counter()
        accounts, manifest = _write(run, path, making, means, ahead)
        written = time.perf_counter()
        keep_tokenizer(run.job.tokenizer, path)
        outcome = _outcome(run, accounts, manifest, path, output)
        began = started, loaded, written
        if report is not None:
            report(_timed(outcome, began, cpu), path)
    if cache is not None and means.cache_dir is not None:
        cache.prune(means.cache_limit)
    return _timed(outcome, began, cpu)


def _outcome(run: PrepareRun, accounts: Accounts, manifest: dict[str, Any], path: Path, output: Path) -> PrepareOutcome:
    """What a run counted; its store lies at `path`, and will lie at `output`."""
    aside = {name: output.parent / kept.path.name for name, kept in accounts.aside.items() if kept.records}
    return PrepareOutcome(
        manifest=manifest,
        tokenizer=run.job.tokenizer.name,
        engine=run.job.engine if run.counts.made else None,
        statistics=accounts.statistics,
        quarantine=aside.get("quarantine"),
        rejected=aside.get("rejected"),
        parts_made=run.counts.made,
        parts_found=run.counts.found,
        token_bytes=_token_bytes(manifest),
        file_bytes=_file_bytes(path),
        spool_bytes=0 if run.cache is None else run.cache.bytes_written,
    )


def _timed(outcome: PrepareOutcome, began: tuple[float, float, float], cpu: float) -> PrepareOutcome:
    """With the time up to now; `began` says when the run, the reading and the finishing did."""
    started, loaded, written = began
    now = time.perf_counter()
    phases = {"tokenizer": loaded - started, "reading": written - loaded, "finishing": now - written}
    return replace(outcome, seconds=now - started, cpu_seconds=time.process_time() - cpu, phases=phases)


def _run(found: Found, making: StoreRecipe, means: RunOptions, cache: PartCache | None, workers: Threads) -> PrepareRun:
    tokenizer = learned_or_loaded(making.tokenizer, found, making.reading, making.recipe, cache, means.progress)
    job = _job(making, tokenizer, found, keep_rejected=means.keep_rejected)
    return PrepareRun(job, found.files, cache, workers, means.make)


def _found_finished(
    found: Found, output: Path, making: StoreRecipe, means: RunOptions, cache: PartCache | None, started: float
) -> PrepareOutcome:
    """What is known of a finished store, if it is the one that would be made; else refuse it, and say what differs."""
    with TokenStore(output) as store:
        manifest = dict(store.manifest)
    with Threads(means.workers, "millstream-part") as workers:
        sources = sources_of(found.files, list(digested(found.files, cache, workers)))
        if is_learned(making.tokenizer):
            known = settings_before(found.files, making.reading, making.recipe, making.mixing)
            _refuse(output, differences_before_learning(manifest, str(making.tokenizer), sources, known))
        run = _run(found, making, means, cache, workers)
    _refuse(output, differences(manifest, run.job, sources, settings_of(run, making.mixing)))
    recipe = manifest["recipe"]
    statistics = Statistics([FileCounts(documents=documents) for documents in recipe["documents_per_source"]])
    statistics.losses.add_all("skipped", recipe["left_out"])
    statistics.losses.add_all("changed", recipe["changed"])
    return PrepareOutcome(
        manifest=manifest,
        tokenizer=run.job.tokenizer.name,
        engine=None,
        statistics=statistics,
        quarantine=_aside(output, "quarantine"),
        rejected=_aside(output, "rejected"),
        parts_made=0,
        parts_found=0,
        token_bytes=_token_bytes(manifest),
        file_bytes=_file_bytes(output),
        seconds=time.perf_counter() - started,
        was_there=True,
    )


def _refuse(output: Path, differ: list[str]) -> None:
    if differ:
        raise StoreError(
            f"{output}: this store exists, and {'; '.join(differ)}",
            hint="choose another output, or pass overwrite=True",
        )


def _token_bytes(manifest: Mapping[str, Any]) -> int:
    return int(manifest["tokens"] * token_dtype(manifest["dtype"]).itemsize)


def _file_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.glob("*.bin")))


def _aside(output: Path, kind: str) -> Path | None:
    return next(output.parent.glob(f"{escape(output.name)}.{kind}.jsonl*"), None)


def _job(making: StoreRecipe, tokenizer: Tokenizer, found: Found, *, keep_rejected: bool) -> Job:
    chat = making.chat
    if chat is not None:
        from millstream.chats import ChatSettings, DecidedChat

        if isinstance(chat, ChatSettings):
            chat = DecidedChat.of(chat, found.files, making.reading, tokenizer)
        tokenizer = chat.encoder.tokenizer  # it may have got control tokens
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


def _write(
    run: PrepareRun, path: Path, making: StoreRecipe, means: RunOptions, ahead: int
) -> tuple[Accounts, dict[str, Any]]:
    """Take all parts in order and write the store at `path`, from where an earlier run stopped, if one did.

    Gives what was counted, and the manifest of the store.
    """
    folder, identity = path.parent, identity_of(run.job, run.files, [making.compress, making.mixing])
    mark = load_bookmark(folder, identity) or Bookmark(identity or "")
    if not mark.parts:
        _clear(folder)
    accounts = _accounts(run, folder, path.name, means, mark)
    is_two_pass = bool(run.job.pipeline.global_steps)
    with ExitStack() as stack:
        for kept in accounts.aside.values():
            stack.enter_context(kept)
        parts: Iterable[PlacedPart] = placed(run.parts(ahead=ahead, skip=mark.parts), mark.file, mark.rows_before)
        parts = progressing(run, accounted(run, parts, accounts), accounts, means.progress)
        if is_two_pass:
            if identity is not None and means.cache_dir is None:
                save_bookmark(folder, mark)  # the spool outlives a failure
            parts = Deduplication(run, accounts, folder / ".dedup")(parts, ahead=ahead)
        builder = StoreBuilder(run, path, accounts, mark, making.compress, making.mixing)
        stack.callback(builder.origins.close)
        with builder.writer as writer:
            for number, each in enumerate(parts, mark.parts + 1):
                builder.add(each)
                if identity is not None and not is_two_pass:
                    builder.mark_if_due(each, number)
            builder.finish_group()
            refuse_nothing(run, accounts)
            writer.describe(sources=sources_of(run.files, run.digests), recipe=_recipe(run, accounts, making.mixing))
        manifest = writer.manifest
        assert manifest is not None
        builder.origins.seal(origins_path(path, manifest["fingerprint"]))
    return accounts, manifest


def _clear(folder: Path) -> None:
    """Remove the unfinished store and what belongs to it; parts and the bookmark stay."""
    for entry in folder.iterdir():
        if entry.name in (SPOOL, BOOKMARK_FILE):
            continue
        if entry.is_dir():
            disk.remove_tree(entry)
        else:
            disk.remove(entry)


def _accounts(run: PrepareRun, folder: Path, name: str, means: RunOptions, mark: Bookmark) -> Accounts:
    """The counts and the records kept aside up to the mark; counting resumes there."""
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
    return Accounts(statistics, BadRecords(means.on_bad, aside["quarantine"], statistics.losses), aside)


def _recipe(run: PrepareRun, accounts: Accounts, mixing: Mixing | None) -> dict[str, Any]:
    """What the manifest says of the way from the files to the tokens."""
    documents = [counts.documents for counts in accounts.statistics.files]
    return {"documents_per_source": documents, **accounts.counts, **settings_of(run, mixing)}
