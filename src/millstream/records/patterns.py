"""Regular expressions: records that match, records that must match, and text to replace."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from millstream.errors import RecipeError
from millstream.records.processor import DataProcessor, Outcome, Reject
from millstream.sources import Record


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
