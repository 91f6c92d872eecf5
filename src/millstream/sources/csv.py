"""Tables as text, comma- or tab-separated: the first record names the columns, and `text_field` the one of the text.

Fields are cut as Python's csv module cuts them. A quote may span lines, so record boundaries are only known
from the front: a native scan, much faster than parsing, finds the chunks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from millstream import _core
from millstream.sources.chunk import EMPTY, KEPT_BYTES, BadRecord, Chunk, ChunkRead, FileFailure, Reading, too_long
from millstream.sources.decoding import decoded, layout_of, raw_bytes
from millstream.sources.native_columns import LeftOut, finish
from millstream.sources.separated import failed_chunk, stream_chunks
from millstream.sources.source_file import FoundFile

MANY = 1 << 40


class CsvFormat:
    """Tables with one delimiter."""

    def __init__(self, name: str, delimiter: str, suffixes: tuple[str, ...]) -> None:
        self.name = name
        self.delimiter = delimiter
        self.suffixes = suffixes

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Read the header and cut what follows between records."""
        number = 0
        try:
            layout = layout_of(file, reading)
            with decoded(file, reading, layout) as (blocks, start):
                header, rest = self._header(blocks, reading.max_document_bytes)
                if not header:
                    return
                place = self._place(header, reading.text_field)
                if rest:
                    blocks.put_back(rest)
                for chunk in stream_chunks(blocks, start + len(header), reading, self._cut, None, "record", place):
                    number = chunk.number + 1
                    yield replace(chunk, encoding=layout.encoding)
        except FileFailure as failure:
            yield failed_chunk(failure, number)

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the rows of a chunk."""
        column, fields = chunk.context or (0, 1)
        native = _core.parse_csv(np.frombuffer(chunk.data, np.uint8), self.delimiter, column, fields)

        def look(raw: bytes, start: int) -> str | LeftOut | BadRecord:
            return self._text(raw, start, column, fields, reading.text_field)

        read = finish(native, chunk.data, chunk.start, file.name, reading, look, what="record", encoding=chunk.encoding)
        return read.ending_badly(chunk.bad)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """One record of the table again."""
        return raw_bytes(file, reading, start, stop)

    def _cut(self, data: bytes, start: int, stop: int, *, first: bool = False) -> int:
        return start + _core.cut_csv(np.frombuffer(data, np.uint8)[start:stop], self.delimiter, first)

    def _header(self, blocks: Iterator[bytes], limit: int) -> tuple[bytes, bytes]:
        """The first record, and the bytes read after it."""
        held = b""
        for block in blocks:
            held += block
            if end := self._cut(held, 0, len(held), first=True):
                return held[:end], held[end:]
            if len(held) > limit:
                bad = too_long("header", 0, limit)
                raise FileFailure(bad.reason, bad.found, bad.hint)
        return held, b""

    def _place(self, header: bytes, name: str) -> tuple[int, int]:
        """The number of the column of the text, and how many columns there are."""
        lines = io.StringIO(header.decode(errors="replace"), newline="")
        try:
            names = next(csv.reader(lines, delimiter=self.delimiter), [])
        except csv.Error as error:
            raise FileFailure("no header", f"the first row cannot be read: {error}") from error
        if names.count(name) != 1:
            has = ", ".join(repr(each) for each in names[:8])
            found = f"{names.count(name)} columns have this name" if name in names else f"its first row has {has}"
            raise FileFailure(
                f"no text in {name!r}", found, "pass text_field= to name the column of the text", has_place=False
            )
        return names.index(name), len(names)

    def _text(self, raw: bytes, start: int, column: int, fields: int, name: str) -> str | LeftOut | BadRecord:
        """Look at a record that was not valid UTF-8, has no such field, or more fields than there are columns."""
        data = np.frombuffer(raw, np.uint8)
        text, *_, odd, _, _, empty = _core.parse_csv(data, self.delimiter, column, fields)
        if not len(odd):
            return LeftOut(EMPTY) if empty else text.tobytes().decode()
        if not len(_core.parse_csv(data, self.delimiter, column, MANY)[5]):
            reason, found = "too many fields", f"the first row has {fields}, and this one more"
            hint = "a field that holds the delimiter is put in quotes"
        elif self._cut(raw + b"\n", 0, len(raw) + 1):
            reason, found = f"no text in {name!r}", f"it has no field number {column + 1}"
            hint = "each row has as many fields as the first"
        else:
            reason, found = "open quote", "a field begins with a quote that is never closed"
            hint = 'a quote inside a field is written ""'
        return BadRecord(reason, 0, start, start + len(raw), found, hint, raw[:KEPT_BYTES])
