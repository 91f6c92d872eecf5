"""The folders composed: raw data -> a store."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.errors import SourceError
from millstream.loaders import PretrainDataLoader
from millstream.loaders.settings import positive
from millstream.sources import Found, Record, Rejects, discover, make_source, read_found
from millstream.sources.discover import Where
from millstream.sources.rejects import OnBad
from millstream.sources.source import MAX_RECORD_BYTES
from millstream.stats.progress import OnProgress, Progress
from millstream.store import TokenStore, TokenStoreWriter
from millstream.store.staging import staged
from millstream.tokens import Tokenizer, encode_records, learn_tokenizer, load_tokenizer, resolve_eos
from millstream.tokens.keep import describe_tokenizer, keep_tokenizer, smallest_dtype
from millstream.tokens.load import is_learned

_log = logging.getLogger("millstream.api")


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What became of the raw data: what is in the store, what was left out and why, and how long it took.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "the mill"}\\n{"title": "no text"}\\n')
    >>> report = prepare(folder / "a.jsonl", folder / "corpus", tokenizer="char", on_bad="skip")
    >>> report.documents, report.dtype, report.skipped
    (1, 'uint16', {"no text in 'text'": 1})
    """

    path: Path
    fingerprint: str
    files: int
    documents: int
    tokens: int
    bytes: int
    seconds: float
    dtype: str
    tokenizer: str
    skipped: dict[str, int]
    quarantine: Path | None

    @property
    def tokens_per_second(self) -> float:
        """How fast it went, from the first file to the finished store."""
        return self.tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How raw files are cut into documents."""

    text_field: str
    documents: str
    separator: str | None
    max_bytes: int


@dataclass(slots=True)
class _Ledger:
    """What was read so far: one entry per source file, and the documents that each gave."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)  # documents that were read but could not be encoded
    bytes_done: int = 0

    def documents_per_source(self) -> list[int]:
        """Count the documents of each file that are in the store."""
        each = zip(self.sources, self.documents, strict=True)
        return [count - self.lost[source["path"]] for source, count in each]


def prepare(
    source: Where | Iterable[Where],
    output: Where,
    tokenizer: object = "bpe",
    *,
    workers: int | None = None,
    on_bad: OnBad = "error",
    eos: str | int | None = "auto",
    format: str | None = None,
    text_field: str = "text",
    documents: str = "file",
    separator: str | None = None,
    max_document_bytes: int = MAX_RECORD_BYTES,
    dtype: str | None = None,
    overwrite: bool = False,
    progress: OnProgress | None = None,
) -> PrepareReport:
    """Turn text or JSON lines into a token store; the same input gives the same bytes.

    `source` is a file, a folder, a pattern or a list of them. `tokenizer` is what `load_tokenizer` takes, or
    "char", "bpe" or "bpe:4096" to learn one from the source; it is kept beside the tokens. `documents`
    says what a document is in a text file: the "file", a "line", or what is between two `separator`s. Each
    document ends with the `eos` token. Bad records raise (`on_bad="error"`), or are counted ("skip") and kept
    aside ("quarantine").

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "the mill"}\\n{"text": "the stream"}\\n')
    >>> report = prepare(folder / "a.jsonl", folder / "corpus", tokenizer="char")
    >>> report.documents, report.tokens, report.skipped
    (2, 20, {})
    """
    started = time.perf_counter()
    progress = progress or _to_nobody
    found = discover(source, format=format)
    reading = _Reading(text_field, documents, separator, positive("max_document_bytes", max_document_bytes))
    threads = _cpus() if workers is None else positive("workers", workers)
    output = Path(output)
    quarantine = output.with_name(f"{output.name}.rejected.jsonl")
    with staged(output, overwrite=overwrite) as path, Rejects(on_bad, quarantine) as rejects:
        ready = _tokenizer(tokenizer, found, reading, on_bad, progress)
        job = _Job(found, reading, rejects, ready, resolve_eos(ready, eos), threads, progress)
        _write(job, path, dtype or smallest_dtype(ready))
        keep_tokenizer(ready, path)
    return _report(output, job, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Job:
    """One run of `prepare`, with everything decided."""

    found: Found
    reading: _Reading
    rejects: Rejects
    tokenizer: Tokenizer
    eos_id: int | None
    workers: int
    progress: OnProgress
    ledger: _Ledger = field(default_factory=_Ledger)


def _write(job: _Job, path: Path, dtype: str) -> None:
    """Read, encode and store everything."""
    ledger, tokens = job.ledger, 0

    def tell(done: int) -> None:
        job.progress(Progress("prepare", done, job.found.bytes, "bytes", f"{tokens:,} tokens"))

    records = _records(job.found, job.reading, job.rejects, ledger)
    with TokenStoreWriter(path, dtype=dtype, tokenizer=describe_tokenizer(job.tokenizer)) as writer:
        encoded = encode_records(records, job.tokenizer, eos_id=job.eos_id, workers=job.workers, rejects=job.rejects)
        for batch in encoded:
            writer.extend(batch.tokens, batch.ends)
            tokens += len(batch.tokens)
            ledger.lost.update(record.file for record, _ in batch.failed)
            tell(ledger.bytes_done)
        if not tokens:
            left_out = ", ".join(f"{count} {reason}" for reason, count in job.rejects.counts.items())
            raise SourceError(
                f"no document was found (files read: {len(job.found.files)}; left out: {left_out or 'nothing'})",
                hint='look at the files, at text_field= and documents=, and at what on_bad="quarantine" keeps aside',
            )
        tell(job.found.bytes)
        recipe = {
            "documents": job.reading.documents,
            "documents_per_source": ledger.documents_per_source(),
            "eos_id": job.eos_id,
            "left_out": dict(job.rejects.counts),
            "separator": job.reading.separator,
            "text_field": job.reading.text_field,
        }
        writer.describe(sources=ledger.sources, recipe=recipe)


def _report(output: Path, job: _Job, seconds: float) -> PrepareReport:
    with TokenStore(output) as store:
        manifest = store.manifest
    _log.info("%s: %d tokens of %d documents", output, manifest["tokens"], manifest["documents"])
    return PrepareReport(
        path=output,
        fingerprint=manifest["fingerprint"],
        files=len(job.found.files),
        documents=manifest["documents"],
        tokens=manifest["tokens"],
        bytes=job.ledger.bytes_done,
        seconds=seconds,
        dtype=manifest["dtype"],
        tokenizer=job.tokenizer.name,
        skipped=dict(sorted((job.found.skipped + job.rejects.counts).items())),
        quarantine=job.rejects.kept,
    )


def _records(found: Found, reading: _Reading, rejects: Rejects, ledger: _Ledger) -> Iterator[Record]:
    """Give the records of all files in order and write down what was read."""
    for file in found.files:
        source = make_source(
            file.format,
            text_field=reading.text_field,
            documents=reading.documents,
            separator=reading.separator,
            max_bytes=reading.max_bytes,
        )
        read = read_found(file.path, file.name, source, rejects)
        before, count = ledger.bytes_done, 0
        for record in read:
            count += 1
            ledger.bytes_done = before + record.stop
            yield record
        ledger.bytes_done = before + read.bytes
        ledger.sources.append({"path": file.name, "bytes": read.bytes, "blake2b": read.blake2b})
        ledger.documents.append(count)


def _tokenizer(wanted: object, found: Found, reading: _Reading, on_bad: OnBad, progress: OnProgress) -> Tokenizer:
    """Load the tokenizer, or learn it in a pass of its own over the source."""
    if not is_learned(wanted):
        return load_tokenizer(wanted)
    ledger = _Ledger()
    passing = Rejects("error" if on_bad == "error" else "skip", quiet=True)  # the second pass counts, tells and keeps

    def texts() -> Iterator[str]:
        for record in _records(found, reading, passing, ledger):
            yield record.text
            progress(Progress("learn tokenizer", ledger.bytes_done, found.bytes, "bytes"))
        progress(Progress("learn tokenizer", found.bytes, found.bytes, "bytes"))

    return learn_tokenizer(str(wanted), texts())


def _to_nobody(progress: Progress) -> None:
    """Nobody asked how far it is."""


def _cpus() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load(path: Where | TokenStore, **settings: Any) -> PretrainDataLoader:
    """Open the loader that fits what `path` holds; settings are those of the loader.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with load(example_loader().store, chunk_size=4, framework="numpy") as loader:
    ...     loader.get_num_batches()
    1
    """
    return PretrainDataLoader(path, **settings)
