"""Plain text: a document is a file, a line, or what stands between two separators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from millstream.errors import SourceError
from millstream.sources.reading import decode, drop_bom, split
from millstream.sources.record import Record
from millstream.sources.rejects import Rejects
from millstream.sources.source import MAX_RECORD_BYTES

EMPTY = "empty"
TOO_LONG = "too long"
KEPT_OF_LONG = 1 << 16
"""Bytes of an overlong record that are kept aside; its byte range says where the rest is."""


class TextSource:
    """UTF-8 text. `documents` is "file", "line", or "separator" (then `separator` says which).

    A record's text is exactly bytes [start, stop) of the file: a byte order mark, line ends and separators
    belong to no record. Empty documents are left out and counted.

    >>> import io
    >>> for record in TextSource("line").records(io.BytesIO(b"one\\n\\ntwo"), "a.txt", Rejects()):
    ...     print(record)
    Record(text='one', file='a.txt', row=0, start=0, stop=3)
    Record(text='two', file='a.txt', row=2, start=5, stop=8)
    """

    format = "text"

    def __init__(
        self, documents: str = "file", *, separator: str | None = None, max_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        if documents not in ("file", "line", "separator"):
            raise SourceError(f"documents={documents!r} is unknown", hint='choose "file", "line" or "separator"')
        if (documents == "separator") != bool(separator):
            raise SourceError(
                f"documents={documents!r} and separator={separator!r} do not fit together",
                hint='pass documents="separator" and a separator such as "<|endoftext|>"',
            )
        self.documents = documents
        self.separator = separator
        self.max_bytes = max_bytes

    def records(self, stream: BinaryIO, file: str, rejects: Rejects) -> Iterator[Record]:
        """Give the documents of `stream` in their order."""
        for row, (raw, start, stop, whole) in enumerate(self._pieces(stream)):
            if self.documents == "line" and raw.endswith(b"\r") and whole:
                raw, stop = raw[:-1], stop - 1
            if not whole:
                self._reject_long(raw, file, row, (start, stop), rejects)
            elif not raw:
                rejects.skip(EMPTY)
            else:
                text = decode(raw, file, row, start, rejects)
                if text is not None:
                    yield Record(text, file, row, start, stop)

    def _pieces(self, stream: BinaryIO) -> Iterator[tuple[bytes, int, int, bool]]:
        if self.documents != "file":
            separator = b"\n" if self.separator is None else self.separator.encode()
            yield from split(stream, separator, self.max_bytes)
            return
        head, start = drop_bom(stream)
        raw = head + stream.read(self.max_bytes + 1 - len(head))
        yield raw, start, start + len(raw), len(raw) <= self.max_bytes

    def _reject_long(self, raw: bytes, file: str, row: int, span: tuple[int, int], rejects: Rejects) -> None:
        to_the_end = self.documents == "file"  # and how far that is was not read
        seen = f"more than {self.max_bytes:,}" if to_the_end else f"{span[1] - span[0]:,}"
        found = f"this document has {seen} bytes; the limit is {self.max_bytes:,}"
        hint = 'cut it with documents="line" or a separator, or raise max_document_bytes'
        where = (span[0], None) if to_the_end else span
        rejects.reject(TOO_LONG, file, row=row, found=found, hint=hint, span=where, raw=raw[:KEPT_OF_LONG])
