"""JSON lines: one object per line, its text in one field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from millstream.sources.reading import decode, split
from millstream.sources.record import Record
from millstream.sources.rejects import Rejects
from millstream.sources.source import MAX_RECORD_BYTES
from millstream.sources.text import EMPTY, KEPT_OF_LONG, TOO_LONG


class JsonlSource:
    """One JSON object per line; `text_field` names the text.

    Blank lines and empty texts are left out and counted.

    >>> import io
    >>> lines = io.BytesIO(b'{"text": "one"}\\n{"text": "two", "id": 2}\\n')
    >>> for record in JsonlSource().records(lines, "a.jsonl", Rejects()):
    ...     print(record)
    Record(text='one', file='a.jsonl', row=0, start=0, stop=15)
    Record(text='two', file='a.jsonl', row=1, start=16, stop=40)
    """

    format = "jsonl"

    def __init__(self, text_field: str = "text", *, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.text_field = text_field
        self.max_bytes = max_bytes

    def records(self, stream: BinaryIO, file: str, rejects: Rejects) -> Iterator[Record]:
        """Give the texts of `stream` in their order, each with the byte range of its line."""
        for row, (raw, start, stop, whole) in enumerate(split(stream, b"\n", self.max_bytes)):
            if whole and not raw.strip():
                rejects.skip("blank line")
                continue
            line = decode(raw, file, row, start, rejects) if whole else ""
            if line is None:
                continue
            text = self._text(line) if whole else self._too_long(stop - start)
            if isinstance(text, _Flaw):
                reason, found, hint = text
                kept = raw if whole else raw[:KEPT_OF_LONG]
                rejects.reject(reason, file, row=row, found=found, hint=hint, span=(start, stop), raw=kept)
            elif text:
                yield Record(text, file, row, start, stop)
            else:
                rejects.skip(EMPTY)

    def _too_long(self, size: int) -> _Flaw:
        found = f"this line has {size:,} bytes; the limit is {self.max_bytes:,}"
        return _Flaw(TOO_LONG, found, f"pass max_document_bytes={size} or more")

    def _text(self, line: str) -> str | _Flaw:
        """The text in a line, or what is wrong with it."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            return _Flaw("not JSON", f"{error}; the line begins {_short(line)}", "each line holds one object")
        name = self.text_field
        if not isinstance(value, dict):
            hint = f'each line looks like {{"{name}": "…"}}'
            return _Flaw("not an object", f"a JSON {_kind(value)}: {_short(line)}", hint)
        text = value.get(name)
        if not isinstance(text, str):
            has = ", ".join(repr(key) for key in list(value)[:8]) or "no fields"
            found = f"it has {has}" if name not in value else f"it is a JSON {_kind(text)}"
            return _Flaw(f"no text in {name!r}", found, "pass text_field= to name it")
        if not _is_unicode(text):
            found = "half of a surrogate pair (\\ud800 to \\udfff alone) is not a character"
            return _Flaw("not Unicode", found, "write the line again, e.g. with json.dumps of text without it")
        return text


class _Flaw(NamedTuple):
    reason: str
    found: str
    hint: str


def _is_unicode(text: str) -> bool:
    """JSON can spell half a surrogate pair; no tokenizer can encode it without changing it.

    >>> _is_unicode("é"), _is_unicode("\\ud800")
    (True, False)
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _short(line: str, width: int = 60) -> str:
    return repr(line if len(line) <= width else line[:width] + "…")
