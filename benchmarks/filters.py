"""What quality rules cost, against datatrove's own filters on the same documents in the same run.

    python benchmarks/filters.py [--megabytes 8] [--output benchmarks/results/filters.md]

Needs what requirements-records.txt lists. CPU seconds of this process, one thread, documents in memory.
datatrove is measured twice: as it comes, with spaCy's words, and with our words in their place, so that what is left is
its rules alone. The last row is all rules in a row, then exact deduplication; datatrove's is a set of digests, since it
has no exact deduplication of documents.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import machine
from millstream.records import CleaningPipeline, DataProcessor, DuplicateFinder
from millstream.records.dedup import ExactDedup
from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition, words
from millstream.sources import RecordBlock
from processes import best_cpu_seconds
from prose import documents, records

FILTERS = "datatrove.pipeline.filters"
RULES: tuple[tuple[DataProcessor, str, str], ...] = (
    (C4Quality(), f"{FILTERS}.c4_filters", "C4QualityFilter"),
    (GopherQuality(), f"{FILTERS}.gopher_quality_filter", "GopherQualityFilter"),
    (GopherRepetition(), f"{FILTERS}.gopher_repetition_filter", "GopherRepetitionFilter"),
    (FineWebQuality(), f"{FILTERS}.fineweb_quality_filter", "FineWebQualityFilter"),
)

BLOCK = 512


def blocks(texts: list[str]) -> list[RecordBlock]:
    given = records(texts)
    return [RecordBlock.of(given[i : i + BLOCK], "bench") for i in range(0, len(given), BLOCK)]


def ours(steps: list[DataProcessor], given: list[RecordBlock], *, dedup: bool) -> Callable[[], int]:
    def work() -> int:
        pipeline = CleaningPipeline([*steps, ExactDedup()] if dedup else steps)
        kept = 0
        with tempfile.TemporaryDirectory() as folder:
            finder = DuplicateFinder(Path(folder) / "keys", key_words=2)
            for block in given:
                done = pipeline.run(block)
                for keys in done.keys:
                    finder.add(keys, kept)
                kept += len(done.block)
            return kept - len(finder.finish())

    return work


def theirs(filters: list[Any], texts: list[str], *, dedup: bool) -> Callable[[], int]:
    from datatrove.data import Document

    def work() -> int:
        seen: set[bytes] = set()
        kept = 0
        for text in texts:
            document = Document(text=text, id="0")
            if all(each.filter(document) is True for each in filters):
                digest = hashlib.sha1(document.text.encode()).digest() if dedup else b""
                kept += not dedup or digest not in seen
                seen.add(digest)
        return kept

    return work


def row(name: str, steps: list[DataProcessor], peers: list[tuple[str, str]], texts: list[str], *, dedup: bool) -> str:
    size = sum(len(text.encode()) for text in texts) / 1e6
    given = blocks(texts)
    modules = [importlib.import_module(module) for module, _ in peers]
    filters = [getattr(module, cls)() for module, (_, cls) in zip(modules, peers, strict=True)]
    fast = best_cpu_seconds(ours(steps, given, dedup=dedup), 5)
    whole = best_cpu_seconds(theirs(filters, texts, dedup=dedup), 1)
    with ExitStack() as patched:
        for module in modules:
            if hasattr(module, "split_into_words"):
                patched.enter_context(patch.object(module, "split_into_words", lambda text, _: words(text)))
        rules = best_cpu_seconds(theirs(filters, texts, dedup=dedup), 1)
    compared = [f"{size / slow:.2f} | {slow / fast:.0f}" for slow in (whole, rules)]
    return f"| {name} | {size / fast:.0f} | {' | '.join(compared)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "filters.md")
    settings = parser.parse_args()
    texts = documents(settings.megabytes)
    facts = machine.facts(["datatrove", "spacy", "millstream"])
    lines = [
        "# Quality rules",
        "",
        machine.one_line(facts),
        "",
        f"{len(texts)} documents, {sum(len(text.encode()) for text in texts) / 1e6:.1f} MB. MB per CPU second.",
        "",
        "| rules | ours | datatrove | ratio | datatrove with our words | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for step, module, cls in RULES:
        lines.append(row(step.name, [step], [(module, cls)], texts, dedup=False))
        print(lines[-1], flush=True)
    everything = [(module, cls) for _, module, cls in RULES]
    lines.append(row("all of them, and exact dedup", [step for step, _, _ in RULES], everything, texts, dedup=True))
    print(lines[-1])
    settings.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
