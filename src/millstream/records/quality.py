"""Filters: length, language, and quality rules in the manner of C4, Gopher and FineWeb.

The rules are native; the first that a record breaks drops it. The defaults are the published thresholds, and the
definitions those of datatrove; tests compare both document by document. Words are ours (`words`): a limit of None is
off. Ratios lie between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import MissingExtra
from millstream.records.processor import BlockProcessor, DataProcessor, Outcome, ProcessedBlock, Reject
from millstream.sources import Record, RecordBlock

_LENGTH_REASONS = (
    "",
    "too few characters",
    "too many characters",
    "too few words",
    "too many words",
    "too few bytes",
    "too many bytes",
)
_LANGUAGE_CHARACTERS = 20_000
"""A language shows in the first characters: no more are classified."""
NGramLimits = tuple[tuple[int, float], ...]

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


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
        return ProcessedBlock.judged(block, verdicts, _LENGTH_REASONS)


def _count_bytes(text: NDArray[np.uint8], ends: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    out[:] = np.diff(ends, prepend=0)


@dataclass(frozen=True)
class Language(DataProcessor):
    """Keep records in one of the languages (ISO 639-1), if the model is sure enough."""

    name = "language"

    keep: tuple[str, ...] = ("en",)
    min_confidence: float = 0.5

    def __post_init__(self) -> None:
        if find_spec("py3langid") is None:  # once, not for every record
            raise MissingExtra.of("py3langid", "quality")

    def process(self, record: Record) -> Outcome:
        """Keep the record if its language is wanted and certain."""
        language, confidence = _model().classify(record.text[:_LANGUAGE_CHARACTERS])
        if language not in self.keep:
            return Reject(f"language is {language or 'unknown'}")
        return record if confidence >= self.min_confidence else Reject("language is not certain")

    def identity(self) -> dict[str, Any]:
        """The settings and the model's version."""
        return {"version": self.version, **self.settings(), "py3langid": version("py3langid")}


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def words(text: str) -> list[str]:
    """The words of a text, as the rules count them.

    A word is a run of letters, marks, numbers and underscores, in which an apostrophe or a full stop may stand between
    two of them. Every other character that is not a space is a word of its own; a run of the same one is one word.

    >>> words("Don't stop -- it's 3.14, e.g. here...")
    ["Don't", 'stop', '--', "it's", '3.14', ',', 'e.g', '.', 'here', '...']
    """
    return _core.words(text)


@dataclass(frozen=True)
class GopherQuality(BlockProcessor):
    """Gopher's quality rules: length, word length, symbols, bullets, ellipses, letters, stop words."""

    name = "gopher_quality"

    min_words: int | None = 50
    max_words: int | None = 100_000
    min_mean_word_length: float | None = 3
    max_mean_word_length: float | None = 10
    max_symbol_ratio: float | None = 0.1
    max_bullet_lines: float | None = 0.9
    max_ellipsis_lines: float | None = 0.3
    min_alphabetic_words: float | None = 0.8
    min_stop_words: int | None = 2
    stop_words: tuple[str, ...] = STOP_WORDS

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Judge each record."""
        return _judged(
            self,
            block,
            _core.gopher_quality,
            _core.gopher_quality_reasons(),
            min_stop_words=self.min_stop_words or 0,
            stop_words=list(self.stop_words),
        )


@dataclass(frozen=True)
class GopherRepetition(BlockProcessor):
    """Gopher's repetition rules: how much of the text is lines, paragraphs and n-grams that it had before."""

    name = "gopher_repetition"

    max_repeated_lines: float | None = 0.3
    max_repeated_paragraphs: float | None = 0.3
    max_repeated_line_characters: float | None = 0.2
    max_repeated_paragraph_characters: float | None = 0.2
    top_n_grams: NGramLimits = ((2, 0.2), (3, 0.18), (4, 0.16))
    repeated_n_grams: NGramLimits = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Judge each record."""
        top = [f"one {n}-gram is too much of the text" for n, _ in self.top_n_grams]
        repeated = [f"too much text in repeated {n}-grams" for n, _ in self.repeated_n_grams]
        return _judged(
            self,
            block,
            _core.gopher_repetition,
            [*_core.gopher_repetition_reasons(), *top, *repeated],
            top_n_grams=[(n, float(limit)) for n, limit in self.top_n_grams],
            repeated_n_grams=[(n, float(limit)) for n, limit in self.repeated_n_grams],
        )


@dataclass(frozen=True)
class FineWebQuality(BlockProcessor):
    """FineWeb's rules about lines: punctuation at their end, length, repetition, lists.

    `line_ends` are the characters that may end a line; none means the sentence punctuation of all scripts.
    """

    name = "fineweb_quality"

    min_punctuated_lines: float | None = 0.12
    keep_if_none_punctuated: bool = False
    max_short_lines: float | None = 0.67
    short_line_characters: int = 30
    max_repeated_characters: float | None = 0.01
    max_newlines_per_word: float | None = 0.3
    line_ends: str = ""

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Judge each record."""
        return _judged(
            self,
            block,
            _core.fineweb_quality,
            _core.fineweb_quality_reasons(),
            keep_if_none_punctuated=self.keep_if_none_punctuated,
            short_line_characters=self.short_line_characters,
            line_ends=[ord(each) for each in self.line_ends],
        )


@dataclass(frozen=True)
class C4Quality(BlockProcessor):
    """C4's rules: lines that do not look like prose are left out (counted), pages with too little left are dropped.

    A sentence ends with sentence punctuation before a space or the end of the line.
    """

    name = "c4_quality"

    min_sentences: int | None = 5
    min_words_per_line: int | None = 3
    max_word_characters: int | None = 1000
    need_punctuation: bool = True
    remove_citations: bool = True
    no_lorem_ipsum: bool = True
    no_javascript: bool = True
    no_curly_bracket: bool = True
    no_policy: bool = True

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Judge each line, then each record."""
        verdicts = np.zeros(len(block), np.uint8)
        ends = np.zeros(len(block), np.int64)
        left_out = np.zeros(len(_core.c4_line_reasons()), np.uint64)
        text = _core.c4_quality(
            block.text,
            block.ends,
            max_word_characters=np.iinfo(np.int64).max
            if self.max_word_characters is None
            else self.max_word_characters,
            min_words_per_line=self.min_words_per_line or 0,
            min_sentences=-1 if self.min_sentences is None else self.min_sentences,
            remove_citations=self.remove_citations,
            need_punctuation=self.need_punctuation,
            no_lorem_ipsum=self.no_lorem_ipsum,
            no_javascript=self.no_javascript,
            no_curly_bracket=self.no_curly_bracket,
            no_policy=self.no_policy,
            verdicts=verdicts,
            out_ends=ends,
            left_out=left_out,
        )
        kept = replace(block, text=np.frombuffer(text, np.uint8), ends=ends)
        judged = ProcessedBlock.judged(kept, verdicts, _core.c4_reasons())
        notes = zip(_core.c4_line_reasons(), left_out.tolist(), strict=True)
        return replace(judged, notes={f"lines left out: {reason}": count for reason, count in notes})


def _judged(
    step: BlockProcessor, block: RecordBlock, judge: Callable[..., None], reasons: list[str], **settings: object
) -> ProcessedBlock:
    """Let a native rule judge each record by the limits of a step (min_…, max_…) and its other settings."""
    verdicts = np.zeros(len(block), np.uint8)
    limits = {name: _limit(name, value) for name, value in vars(step).items() if name.startswith(("min_", "max_"))}
    judge(block.text, block.ends, verdicts=verdicts, **(limits | settings))
    return ProcessedBlock.judged(block, verdicts, reasons)


def _limit(name: str, value: float | None) -> float:
    if value is None:
        return -math.inf if name.startswith("min_") else math.inf
    return float(value)
