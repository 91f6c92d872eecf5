"""Blocks and records for tests."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.records import DataProcessor
from millstream.sources import Record, RecordBlock


def record(text: str, row: int = 0) -> Record:
    return Record(text, "a.txt", row, 10 * row, 10 * row + 5)


def block_of(texts: Sequence[str]) -> RecordBlock:
    return RecordBlock.of([record(text, row) for row, text in enumerate(texts)], "a.txt")


def judged(step: DataProcessor, texts: Sequence[str]) -> list[str]:
    """For each text the reason why it is dropped, or "" if it is kept."""
    done = step.process_block(block_of(texts))
    reasons = [""] * len(texts)
    for place, reason in done.rejected:
        reasons[place] = reason
    return reasons


def texts_of(block: RecordBlock) -> list[str]:
    return [each.text for each in block]
