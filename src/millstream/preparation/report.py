"""What a run of `prepare` did: its counts, added up part by part, and its report beside the store."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.preparation.part import Part, RejectedRecord
from millstream.sources import Found, FoundFile
from millstream.stats import Ledger, peak_bytes
from millstream.store import carries_loss

if TYPE_CHECKING:
    from millstream.preparation.prepare import PrepareOutcome, RunOptions


MOST_EXAMPLES = 5
MOST_SAMPLES = 200
LENGTH_BINS = 48
LEFT_OUT = ("skipped", "dropped", "bad")
"""Why a record of a source is not in its store: it holds nothing, a rule says so, or it cannot be used."""


@dataclass(slots=True)
class FileCounts:
    """What one source file gave."""

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0


@dataclass(slots=True)
class Statistics:
    """Counts of a whole run; `losses` has what was skipped, bad, dropped by a rule and changed, by reason.

    `lengths[b]` counts documents of [2^(b-1), 2^b) tokens (0: none). `pace` holds (seconds, source bytes, tokens) as
    time went by. Of dropped records there are a few examples of each reason. Of `weighted` tokens
    those are counted that the loss is computed of: not the first of a document, which nothing comes before.
    """

    files: list[FileCounts]
    started: float = field(default_factory=time.perf_counter)
    lengths: list[int] = field(default_factory=lambda: [0] * LENGTH_BINS)
    losses: Ledger = field(default_factory=Ledger)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    pace: list[tuple[float, int, int]] = field(default_factory=list)
    source_bytes: int = 0
    writing_cpu_seconds: float = 0.0
    weighted: bool = False
    trained_tokens: int = 0

    @classmethod
    def of(cls, files: Sequence[FoundFile], *, weighted: bool = False) -> Statistics:
        """Counts of a run that has done nothing yet."""
        return cls([FileCounts() for _ in files], weighted=weighted)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Statistics:
        """Counts as `to_json` gave them."""
        losses = Ledger()
        losses.restart(content["losses"])
        files = [FileCounts(**counts) for counts in content["files"]]
        pace = [(seconds, source_bytes, tokens) for seconds, source_bytes, tokens in content["pace"]]
        return cls(**{**content, "losses": losses, "files": files, "pace": pace, "started": time.perf_counter()})

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values.

        >>> counts = Statistics.of([])
        >>> counts.losses.add("changed", "repaired", 2)
        >>> Statistics.from_json(counts.to_json()).losses.counts
        {'changed:repaired': 2}
        """
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return plain | {"files": [asdict(counts) for counts in self.files], "losses": self.losses.counts}

    def left_out(self, part: Part, file: FoundFile, rows_before: int) -> None:
        """Count what a part left out and changed."""
        for what, reasons in (("skipped", part.skipped), ("changed", part.changed), ("dropped", part.reasons)):
            self.losses.add_all(what, reasons)
        for rejected in part.rejected:
            self.example(rejected, file.name, rows_before)

    def example(self, rejected: RejectedRecord, file: str, rows_before: int) -> None:
        """Keep an example of what a rule dropped, if there are not enough of them."""
        kept = self.examples.setdefault(rejected.reason, [])
        if len(kept) < MOST_EXAMPLES:
            kept.append({"file": file, "row": rows_before + rejected.row, "text": rejected.text[:2000]})

    def wants(self, reason: str) -> int:
        """How many more examples of a reason are welcome."""
        return MOST_EXAMPLES - len(self.examples.get(reason, ()))

    def written(self, part: Part, file: int) -> None:
        """Count the documents of a part that got into the store."""
        counts = self.files[file]
        counts.rows += part.rows
        counts.documents += len(part.ends)
        counts.tokens += len(part.tokens)
        counts.text_bytes += part.text_bytes
        lengths = np.diff(part.ends, prepend=0)
        bins = np.bincount(np.ceil(np.log2(lengths + 1)).astype(np.int64), minlength=LENGTH_BINS)
        self.lengths = (np.asarray(self.lengths) + bins[:LENGTH_BINS]).tolist()
        if self.weighted:
            trained = carries_loss(part.tokens)
            trained[(part.ends - lengths)[lengths > 0]] = False
            self.trained_tokens += int(np.count_nonzero(trained))

    def tick(self, source_bytes: int, tokens: int) -> None:
        """Note how far the run is; of a long one, every other note but the newest is forgotten now and then."""
        self.source_bytes = source_bytes
        self.pace.append((round(time.perf_counter() - self.started, 3), source_bytes, tokens))
        if len(self.pace) > MOST_SAMPLES:
            self.pace = [*self.pace[:-1:2], self.pace[-1]]

    @property
    def documents(self) -> int:
        """Documents in the store."""
        return sum(counts.documents for counts in self.files)

    @property
    def tokens(self) -> int:
        """Tokens in the store."""
        return sum(counts.tokens for counts in self.files)


VERSION = 1


def report_of(outcome: PrepareOutcome, found: Found, means: RunOptions) -> dict[str, Any]:
    """Put what a run did into plain JSON."""
    manifest, statistics = outcome.manifest, outcome.statistics
    source_bytes = sum(file.bytes for file in found.files)
    losses = statistics.losses
    return {
        "version": VERSION,
        "fingerprint": manifest["fingerprint"],
        "dtype": manifest["dtype"],
        "tokenizer": manifest["tokenizer"],
        "tokenizer_engine": outcome.engine,
        "recipe": manifest["recipe"]["steps"],
        "documents": manifest["documents"],
        "tokens": manifest["tokens"],
        "source_bytes": source_bytes,
        "text_bytes": sum(counts.text_bytes for counts in statistics.files),
        "root": str(found.root),
        "sources": [
            {"path": file.name, "format": file.format, "bytes": file.bytes, "weight": file.weight}
            | {"rows": counts.rows, "documents": counts.documents, "tokens": counts.tokens}
            for file, counts in zip(found.files, statistics.files, strict=True)
        ],
        "storage": {
            "token_bytes": outcome.token_bytes,
            "file_bytes": outcome.file_bytes,
            "ratio": round(outcome.token_bytes / max(1, outcome.file_bytes), 3),
            "cpu_seconds": round(statistics.writing_cpu_seconds, 3),
        },
        "lengths": statistics.lengths,
        "left_out": dict(sorted((found.skipped + losses.reasons(*LEFT_OUT)).items())),
        "bad": dict(sorted(losses.reasons("bad").items())),
        "skipped": dict(sorted((found.skipped + losses.reasons("skipped")).items())),
        "changed": dict(sorted(losses.reasons("changed").items())),
        "dropped": dict(sorted(losses.reasons("dropped").items(), key=lambda item: (-item[1], item[0]))),
        "examples": statistics.examples,
        "pace": statistics.pace,
        "seconds": round(outcome.seconds, 3),
        "phases": {name: round(seconds, 3) for name, seconds in outcome.phases.items()},
        "cpu_seconds": round(outcome.cpu_seconds, 3),
        "peak_memory_bytes": peak_bytes(),
        "workers": means.workers,
        "parts": {"made": outcome.parts_made, "found": outcome.parts_found, "bytes_written": outcome.spool_bytes},
        "machine": {"processors": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "chat": _chat(outcome),
    }


def _chat(outcome: PrepareOutcome) -> dict[str, Any] | None:
    """How conversations became tokens, and how many of these are learned; None: the records were texts."""
    described = outcome.manifest["recipe"].get("chat")
    if described is None:
        return None
    trained, changed = outcome.statistics.trained_tokens, outcome.statistics.losses.reasons("changed")
    return {
        **described,
        "trained_tokens": trained,
        "trained_share": round(trained / max(1, outcome.manifest["tokens"]), 6),
        "truncated": changed["truncated"],
        "straddlers": changed["straddlers"],
    }


def report_path(store: Path, suffix: str) -> Path:
    """Where the report of a store lies.

    >>> report_path(Path("data.bin"), ".json").name, report_path(Path("corpus"), ".html").as_posix()
    ('data.report.json', 'corpus/report.html')
    """
    return store.with_suffix(f".report{suffix}") if store.suffix == ".bin" else store / f"report{suffix}"


def reporting(found: Found, means: RunOptions) -> Callable[[PrepareOutcome, Path], Path]:
    """What writes the report of a run beside its store before either is published."""
    return lambda outcome, store: write_report(store, report_of(outcome, found, means))


def write_report(store: Path, report: dict[str, Any]) -> Path:
    """Write the report beside a store, and give the place of the page."""
    from millstream.preparation.page import render

    report_path(store, ".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page = report_path(store, ".html")
    page.write_text(render(report, store.name), encoding="utf-8")
    return page


def read_report(store: Path) -> dict[str, Any] | None:
    """Read the report of a store, if it has one that can be read."""
    try:
        report = json.loads(report_path(store, ".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("version") == VERSION else None
