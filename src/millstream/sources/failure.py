"""A file that fails in the middle: what was read before is kept, and one bad record says where and why it ended."""

from __future__ import annotations

from millstream.sources.chunk import KEPT_BYTES, BadRecord

TOO_LONG = "too long"
EMPTY = "empty"
BLANK = "blank line"
GONE, CHANGED, UNREADABLE = "gone", "changed", "unreadable"
FORMAT_FAILED, NO_TEXT = "the format failed", "not text"
FLEETING = frozenset({GONE, CHANGED, UNREADABLE, FORMAT_FAILED, NO_TEXT})
"""Failures that say nothing about the content of a file: what was made of it then must not be found again later."""


class FileFailure(Exception):  # noqa: N818 - it says what a file did
    """A file cannot be read beyond the present place. It never reaches users: formats turn it into a bad record."""

    def __init__(self, reason: str, found: str, hint: str | None = None, *, has_place: bool = True) -> None:
        super().__init__(f"{reason}: {found}")
        self.reason, self.found, self.hint, self.has_place = reason, found, hint, has_place

    def record(self, start: int, stop: int, raw: bytes | None = None) -> BadRecord:
        """The bad record: what was read of it is bytes [start, stop) of the decoded stream."""
        found = f"{self.found}; what could be read ends at byte {stop:,}" if self.has_place else self.found
        hint = self.hint or "copy or download the file again"
        return BadRecord(self.reason, 0, start, stop, found, hint, raw[:KEPT_BYTES] if raw else None)


def too_long(what: str, start: int, limit: int, raw: bytes | memoryview | None = None) -> BadRecord:
    """A record that has more than `limit` bytes, and as many of them as there are at hand.

    >>> too_long("line", 5, 10).found
    'this line has more than 10 bytes; the limit is 10'
    """
    hint = "raise max_document_bytes"
    if what == "document":
        hint = f'cut it with documents="line" or a separator, or {hint}'
    found = f"this {what} has more than {limit:,} bytes; the limit is {limit:,}"
    kept = None if raw is None else bytes(raw[: min(KEPT_BYTES, limit)])
    return BadRecord(TOO_LONG, 0, start, start + limit, found, hint, kept)
