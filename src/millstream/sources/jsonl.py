"""JSON lines: one object per line, its text in one field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO

from millstream.sources.reading import decode, split
from millstream.sources.record import Record
from millstream.sources.rejects import Rejects
from millstream.sources.source import MAX_RECORD_BYTES
from millstream.sources.text import EMPTY, TOO_LONG


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
            if not whole:
                found = f"this line has {stop - start:,} bytes; the limit is {self.max_bytes:,}"
                rejects.reject(TOO_LONG, file, row=row, found=found, hint="raise max_document_bytes")
            elif not raw.strip():
                rejects.skip("blank line")
            else:
                text = self._text(raw, file, row, start, rejects)
                if text:
                    yield Record(text, file, row, start, stop)

    def _text(self, raw: bytes, file: str, row: int, start: int, rejects: Rejects) -> str | None:
        line = decode(raw, file, row, start, rejects)
        if line is None:
            return None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            found = f"{error}; the line begins {_short(line)}"
            rejects.reject("not JSON", file, row=row, found=found, hint="each line holds one object", raw=raw)
            return None
        if not isinstance(value, dict):
            found = f"a JSON {_kind(value)}: {_short(line)}"
            hint = f'each line looks like {{"{self.text_field}": "…"}}'
            rejects.reject("not an object", file, row=row, found=found, hint=hint, raw=raw)
            return None
        return self._field(value, file, row, rejects, raw)

    def _field(self, value: dict[str, object], file: str, row: int, rejects: Rejects, raw: bytes) -> str | None:
        name = self.text_field
        text = value.get(name)
        if not isinstance(text, str):
            has = ", ".join(repr(key) for key in list(value)[:8]) or "no fields"
            found = f"it has {has}" if name not in value else f"it is a JSON {_kind(text)}"
            reason = f"no text in {name!r}"
            rejects.reject(reason, file, row=row, found=found, hint="pass text_field= to name it", raw=raw)
            return None
        if not text:
            rejects.skip(EMPTY)
            return None
        if not _is_unicode(text):
            found = "half of a surrogate pair (\\ud800 to \\udfff alone) is not a character"
            rejects.reject("not Unicode", file, row=row, found=found, raw=raw)
            return None
        return text


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
