"""Rows at hand, a list of dicts: read as if each were a line of a JSON file."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TypeGuard

from millstream.sources.chunk import BadRecord, Chunk, ChunkRead, Reading
from millstream.sources.columnar import plain
from millstream.sources.found import FoundFile
from millstream.sources.jsonl import text_of
from millstream.sources.parsed import Left
from millstream.sources.record import NO_BYTES
from millstream.sources.record_format import Text, read_texts


def is_rows(source: object) -> TypeGuard[list[object]]:
    """Tell rows from a list of files.

    >>> is_rows([{"text": "x"}]), is_rows(["a.txt"]), is_rows([])
    (True, False, False)
    """
    return isinstance(source, list | tuple) and bool(source) and isinstance(source[0], Mapping)


def found_rows(rows: list[object], taken: Container[str]) -> FoundFile:
    """Describe rows like a file."""
    name = next(name for name in chain(["rows"], (f"rows-{number}" for number in count(2))) if name not in taken)
    return FoundFile(Path(name), name, RowsFormat.name, 0, data=rows)


class RowsFormat:
    """One dict is one record."""

    name = "rows"
    suffixes: tuple[str, ...] = ()
    gives_rows = True

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give rows, many at a time."""
        number = start = size = 0
        held: list[Text] = []
        for row in file.data:
            held.append(_text(row, reading))
            size += 0 if isinstance(held[-1], BadRecord) else len(held[-1])
            if size >= reading.chunk_bytes:
                yield Chunk(number, start, start + len(held), held)
                number, start, size, held = number + 1, start + len(held), 0, []
        if held:
            yield Chunk(number, start, start + len(held), held)

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Lay the rows of a chunk out in columns."""
        return read_texts(chunk, file, reading)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """One row again."""
        return _line(file.data[row])


def _text(row: object, reading: Reading) -> Text:
    try:
        line = _line(row)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "it holds strings, numbers, lists and dicts only"
        return BadRecord("not JSON", 0, NO_BYTES, NO_BYTES, str(error), hint)
    if reading.whole_rows:
        return line
    found = text_of(line, 0, reading.text_field)
    if isinstance(found, BadRecord):
        return replace(found, start=NO_BYTES, stop=NO_BYTES)
    return "" if isinstance(found, Left) else found


def written_row(row: object) -> str:
    """A row as it is read; "" if it cannot be."""
    try:
        return _line(row).decode()
    except (TypeError, ValueError, RecursionError):
        return ""


def _line(row: object) -> bytes:
    """The row as JSON. Half a surrogate pair is written as its escape, so that whoever parses the row finds it."""
    try:
        return json.dumps(row, ensure_ascii=False, default=plain).encode()
    except UnicodeEncodeError:
        return json.dumps(row, default=plain).encode()
