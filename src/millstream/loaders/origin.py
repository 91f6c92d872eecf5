"""Where a row came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Input tokens [start, stop) of a document, counted inside that document."""

    source: str
    document: int
    start: int
    stop: int
    file: str


@dataclass(frozen=True)
class RowOrigin:
    """One row of a batch: its source and sample, the documents it was cut from and, with a tokenizer, its text."""

    row: int
    source: str
    sample: int
    spans: tuple[Span, ...]
    text: str | None = None
