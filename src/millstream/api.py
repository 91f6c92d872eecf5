"""The folders composed: raw data -> a store."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.errors import SourceError
from millstream.loaders import PretrainDataLoader
from millstream.sources import Found, FoundFile, Reading, Record, Rejects, discover, read_file
from millstream.sources.chunk import MAX_DOCUMENT_BYTES
from millstream.sources.rejects import OnBad
from millstream.stats.progress import OnProgress, Progress
from millstream.store import TokenStore, TokenStoreWriter
from millstream.store.staging import staged
from millstream.tokens import Tokenizer, encode_records, learn_tokenizer, load_tokenizer, resolve_eos
from millstream.tokens.keep import describe_tokenizer, keep_tokenizer, smallest_dtype
from millstream.tokens.load import is_learned

_log = logging.getLogger("millstream.prepare")

Where = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What became of the raw data: what is in the store, what was left out and why, and how long it took."""

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


@dataclass(slots=True)
class _Ledger:
    """What was read so far: one entry per source file, and the documents that each gave."""

    sources: list[dict[str, Any]] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    bytes_done: int = 0


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
    max_document_bytes: int = MAX_DOCUMENT_BYTES,
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
    found = discover(source, format=format)
    reading = Reading(text_field, documents, separator, max_document_bytes=max_document_bytes)
    output = Path(output)
    quarantine = output.with_name(f"{output.name}.rejected.jsonl")
    with staged(output, overwrite=overwrite) as path, Rejects(on_bad, quarantine) as rejects:
        ready = _tokenizer(tokenizer, found, reading, on_bad, progress)
        job = _Job(found, reading, rejects, ready, resolve_eos(ready, eos), workers or _cpus(), progress)
        _write(job, path, dtype or smallest_dtype(ready))
        keep_tokenizer(ready, path)
    return _report(output, job, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Job:
    """One run of `prepare`, with everything decided."""

    found: Found
    reading: Reading
    rejects: Rejects
    tokenizer: Tokenizer
    eos_id: int | None
    workers: int
    progress: OnProgress | None
    ledger: _Ledger = field(default_factory=_Ledger)


def _write(job: _Job, path: Path, dtype: str) -> None:
    """Read, encode and store everything."""
    ledger, tokens = job.ledger, 0
    records = _records(job.found, job.reading, job.rejects, ledger)
    with TokenStoreWriter(path, dtype=dtype, tokenizer=describe_tokenizer(job.tokenizer)) as writer:
        for batch in encode_records(records, job.tokenizer, eos_id=job.eos_id, workers=job.workers):
            writer.extend(batch.tokens, batch.ends)
            tokens += len(batch.tokens)
            if job.progress is not None:
                done, total = ledger.bytes_done, job.found.bytes
                job.progress(Progress("prepare", done, total, "bytes", f"{tokens:,} tokens"))
        if not tokens:
            left_out = ", ".join(f"{count} {reason}" for reason, count in job.rejects.counts.items())
            raise SourceError(f"{len(job.found.files)} files hold no document ({left_out or 'nothing at all'})")
        recipe = {
            "documents": job.reading.documents,
            "documents_per_source": ledger.documents,
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
        quarantine=job.rejects.quarantine if job.rejects.counts else None,
    )


def _records(found: Found, reading: Reading, rejects: Rejects, ledger: _Ledger) -> Iterator[Record]:
    """Give the records of all files in order and write down what was read."""
    for file in found.files:
        before, count = ledger.bytes_done, 0
        for read in read_file(file, reading):
            rejects.take(read, file.name)
            for record in read.block:
                count += 1
                ledger.bytes_done = before + min(max(record.stop, 0), file.bytes)
                yield record
        ledger.bytes_done = before + file.bytes
        ledger.sources.append({"path": file.name, "bytes": file.bytes, "blake2b": _digest(file)})
        ledger.documents.append(count)


def _digest(file: FoundFile) -> str:
    """Blake2b (16 bytes, hexadecimal) of a file."""
    if file.data is not None:
        return ""
    with file.path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _tokenizer(wanted: object, found: Found, reading: Reading, on_bad: OnBad, progress: OnProgress | None) -> Tokenizer:
    """Load the tokenizer, or learn it in a pass of its own over the source."""
    if not is_learned(wanted):
        return load_tokenizer(wanted)
    ledger = _Ledger()
    passing = Rejects("error" if on_bad == "error" else "skip")  # the second pass counts and keeps

    def texts() -> Iterator[str]:
        for record in _records(found, reading, passing, ledger):
            yield record.text
            if progress is not None:
                progress(Progress("learn tokenizer", ledger.bytes_done, found.bytes, "bytes"))

    return learn_tokenizer(str(wanted), texts())


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
