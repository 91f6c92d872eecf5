"""Records that are too short or too long, in characters, words or bytes of UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.records.processor import BlockProcessor, ProcessedBlock
from millstream.sources import RecordBlock

REASONS = (
    "",
    "too few characters",
    "too many characters",
    "too few words",
    "too many words",
    "too few bytes",
    "too many bytes",
)


@dataclass(frozen=True)
class Length(BlockProcessor):
    """Keep records inside all limits; words are those of `words`.

    >>> from millstream.sources import Record
    >>> Length(min_words=3).process(Record("too short", "a.txt", 0, 0, 9))
    Reject(reason='too few words')
    """

    name = "length"

    min_characters: int | None = None
    max_characters: int | None = None
    min_words: int | None = None
    max_words: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Judge each record."""
        verdicts = np.zeros(len(block), np.uint8)
        limits = (
            (self.min_characters, self.max_characters, _core.count_characters),
            (self.min_words, self.max_words, _core.count_words),
            (self.min_bytes, self.max_bytes, _count_bytes),
        )
        for place, (low, high, count) in enumerate(limits):
            if low is None and high is None:
                continue
            counts = np.zeros(len(block), np.int64)
            count(block.text, block.ends, counts)
            if low is not None:
                verdicts[(counts < low) & (verdicts == 0)] = 2 * place + 1
            if high is not None:
                verdicts[(counts > high) & (verdicts == 0)] = 2 * place + 2
        return ProcessedBlock.judged(block, verdicts, REASONS)


def _count_bytes(text: NDArray[np.uint8], ends: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    out[:] = np.diff(ends, prepend=0)
