"""Objects in memory that are read as if they were files: rows (a list of dicts), and Hugging Face `datasets`.

A row is read as if it were a line of a JSON file. A `Dataset` lies in Arrow tables, which are used as they are; an
`IterableDataset` is asked for batches. The library `datasets` itself is never imported.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeGuard

from millstream.errors import SourceError
from millstream.sources.arrow_checks import arrow, pyarrow_errors, validated
from millstream.sources.chunk import BadRecord, Chunk, ChunkRead, FileFailure, Reading, empty_block
from millstream.sources.columnar import (
    as_bytes,
    as_json,
    check_column,
    column_of,
    plain,
    raw_text,
    read_column,
)
from millstream.sources.jsonl import text_of
from millstream.sources.native_columns import LeftOut
from millstream.sources.record_block import NO_BYTES
from millstream.sources.record_format import Text, read_texts
from millstream.sources.separated import failed_chunk
from millstream.sources.source_file import FoundFile

_BATCH_ROWS = 1000


def is_rows(source: object) -> TypeGuard[list[object]]:
    """Whether a source is a list of rows, not of files.

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
    return "" if isinstance(found, LeftOut) else found


def written_row(row: object) -> str:
    """A row as it is read; "" if it cannot be."""
    try:
        return _line(row).decode()
    except (TypeError, ValueError, RecursionError):
        return ""


def _line(row: object) -> bytes:
    """The row as JSON. Half a surrogate pair is written as its escape, so that a parser of the row finds it."""
    try:
        return json.dumps(row, ensure_ascii=False, default=plain).encode()
    except UnicodeEncodeError:
        return json.dumps(row, default=plain).encode()


def found_dataset(dataset: Any, place: int, taken: Container[str]) -> FoundFile:
    """Describe a dataset like a file. Its name comes from its builder and split; its size is a guess of its own."""
    parts = [getattr(dataset, name, None) for name in ("builder_name", "config_name", "split")]
    name = "/".join(str(part) for part in parts if part is not None)
    if not name or name in taken:
        name = f"{name or 'dataset'}-{place}"
    info = getattr(dataset, "info", None)
    size = getattr(info, "dataset_size", None) or getattr(getattr(dataset, "data", None), "nbytes", 0)
    return FoundFile(Path(name), name, HuggingFaceFormat.name, int(size or 0), data=dataset)


class HuggingFaceFormat:
    """One row of a dataset is one record."""

    name = "huggingface"
    suffixes: tuple[str, ...] = ()
    gives_rows = True

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give columns of rows, each by itself: a slice would take the whole table along to another process."""
        number = start = stop = size = 0
        held: list[Any] = []
        failure: FileFailure | None = None
        try:
            for column in self._columns(file, reading):
                held.append(column)
                stop, size = stop + len(column), size + column.nbytes
                if size >= reading.chunk_bytes:
                    yield Chunk(number, start, stop, arrow().concat_arrays(held))
                    number, start, size, held = number + 1, stop, 0, []
        except FileFailure as error:
            failure = error
        if held:
            yield Chunk(number, start, stop, arrow().concat_arrays(held))
            number += 1
        if failure is not None:
            yield failed_chunk(failure, number)

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the rows of a table."""
        if chunk.bad is not None:
            return ChunkRead(empty_block(file.name), 0).ending_badly(chunk.bad)
        return read_column(chunk.data, file.name, reading)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The text of one row again."""
        seen = 0
        for column in self._columns(file, reading):
            if row < seen + len(column):
                return raw_text(column, row - seen, reading.max_expansion)
            seen += len(column)
        raise SourceError(
            f"{file.name}: there is no row {row + 1:,}; it has {seen:,}",
            hint="is this the very file that the store was made from?",
        )

    def _columns(self, file: FoundFile, reading: Reading) -> Iterator[Any]:
        """The column of the text, or whole rows as JSON, as bytes, some rows at a time."""
        pa = arrow()
        dataset, name = file.data, reading.text_field
        if reading.whole_rows:
            for table in dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS):
                with pyarrow_errors():
                    rows = as_json(validated(column_of(table, reading), reading.max_expansion))
                yield rows
            return
        if dataset.column_names is not None and name not in dataset.column_names:
            has = ", ".join(repr(each) for each in dataset.column_names[:8])
            hint = "pass text_field= to name the column of the text"
            raise SourceError(f"{file.name}: no text in {name!r}: it has {has}", hint=hint)
        for table in dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            column = table.column(name)
            if not pa.types.is_null(column.type):  # in rows without a schema: no text at all
                _check_text(file, table.schema, reading)
            with pyarrow_errors():
                texts = as_bytes(validated(column, reading.max_expansion))
            yield texts


def _check_text(file: FoundFile, schema: Any, reading: Reading) -> None:
    try:
        check_column(schema, reading)
    except FileFailure as failure:
        raise SourceError(f"{file.name}: {failure.reason}: {failure.found}", hint=failure.hint) from None
