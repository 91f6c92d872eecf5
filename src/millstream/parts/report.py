"""The report of a run: everything it counted, as JSON and as a page to look at, beside the store."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.parts.statistics import LEFT_OUT
from millstream.sources import Found
from millstream.stats import peak_bytes

if TYPE_CHECKING:
    from millstream.parts.prepare import Means, Outcome

VERSION = 1


def report_of(outcome: Outcome, found: Found, means: Means) -> dict[str, Any]:
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


def _chat(outcome: Outcome) -> dict[str, Any] | None:
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


def reporting(found: Found, means: Means) -> Callable[[Outcome, Path], Path]:
    """What writes the report of a run beside its store before anybody sees either."""
    return lambda outcome, store: write_report(store, report_of(outcome, found, means))


def write_report(store: Path, report: dict[str, Any]) -> Path:
    """Write the report beside a store, and give the place of the page."""
    from millstream.parts.page import render

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
