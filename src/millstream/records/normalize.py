"""Steps that rewrite texts: one spelling for what looks the same, and replacements by regular expressions."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np

from millstream import _core
from millstream.errors import RecipeError
from millstream.records.processor import BlockProcessor, DataProcessor, Outcome, ProcessedBlock, Reject
from millstream.sources import Record, RecordBlock

FORMS = ("NFC", "NFKC", "NFD", "NFKD")


@dataclass(frozen=True)
class Normalize(BlockProcessor):
    """Bring texts into a Unicode form (None: leave it) and put them in order.

    `controls` leaves out control characters, soft hyphens, zero-width spaces, byte order marks and direction marks;
    those that separate (form feed, U+0085) become line ends or spaces. `line_ends` writes "\\n" for "\\r\\n" and "\\r".
    `whitespace` leaves one space between words, none around line ends, at most one empty line, nothing at the ends.

    >>> from millstream.sources import Record
    >>> Normalize(whitespace=True).process(Record("a\\u0300  b\\x07\\r\\n\\r\\n\\r\\nc ", "a.txt", 0, 0, 9)).text
    'à b\\n\\nc'
    """

    name = "normalize"

    form: str | None = "NFC"
    controls: bool = True
    line_ends: bool = True
    whitespace: bool = False

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise RecipeError(f"normalize: form={self.form!r} is unknown", hint=f"choose one of {', '.join(FORMS)}")

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Clean natively, then bring what is not ASCII into the Unicode form."""
        if self.form is not None:
            block = _in_form(block, self.form)
        if self.controls or self.line_ends or self.whitespace:
            ends = np.zeros(len(block), np.int64)
            text = _core.clean(block.text, block.ends, self.controls, self.line_ends, self.whitespace, ends)
            block = replace(block, text=np.frombuffer(text, np.uint8), ends=ends)
        return ProcessedBlock(block, np.arange(len(block), dtype=np.int64))


def _in_form(block: RecordBlock, form: str) -> RecordBlock:
    """The form of the texts that are not ASCII, which is in every form already."""
    traits = np.zeros(len(block), np.uint8)
    _core.find_traits(block.text, block.ends, traits)
    named = cast(Literal["NFC", "NFD", "NFKC", "NFKD"], form)
    changed: dict[int, bytes] = {}
    for place in np.flatnonzero(traits & _core.BEYOND_ASCII).tolist():
        text = block.text_of(place)
        if not unicodedata.is_normalized(named, text):
            changed[place] = unicodedata.normalize(named, text).encode()
    if not changed:
        return block
    return block.with_texts([changed.get(place) or block.bytes_of(place) for place in range(len(block))])


@dataclass(frozen=True)
class Regex(DataProcessor):
    """Replace first (pairs of pattern and replacement), then drop what matches one of `drop` or lacks one of `need`.

    >>> record = Record("call 555-1234", "a.txt", 0, 0, 13)
    >>> Regex(replace=(("\\\\d+", "#"),)).process(record).text
    'call #-#'
    >>> Regex(drop=("^call",)).process(record)
    Reject(reason="matches '^call'")
    """

    name = "regex"

    drop: tuple[str, ...] = ()
    need: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()
    ignore_case: bool = False
    _compiled: dict[str, re.Pattern[str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        flags = re.MULTILINE | (re.IGNORECASE if self.ignore_case else 0)
        for pattern in (*self.drop, *self.need, *(pattern for pattern, _ in self.replace)):
            try:
                self._compiled[pattern] = re.compile(pattern, flags)
            except re.error as error:
                raise RecipeError(
                    f"regex: {pattern!r} is no regular expression: {error}",
                    hint="in TOML, write patterns in single quotes: nothing is escaped there",
                ) from None

    def process(self, record: Record) -> Outcome:
        """Replace, then judge."""
        text = record.text
        for pattern, replacement in self.replace:
            text = self._compiled[pattern].sub(replacement, text)
        for pattern in self.drop:
            if self._compiled[pattern].search(text):
                return Reject(f"matches {pattern!r}")
        for pattern in self.need:
            if not self._compiled[pattern].search(text):
                return Reject(f"does not match {pattern!r}")
        return record if text is record.text else replace(record, text=text)
