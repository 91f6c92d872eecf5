"""Parquet: the text is a column; a chunk is some row groups. Its own compression is undone where a chunk is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.errors import SourceError
from millstream.sources.arrow_checks import arrow
from millstream.sources.chunk import Chunk, ChunkRead, FileFailure, Reading, empty_block
from millstream.sources.columnar import (
    check_column,
    column_of,
    lost,
    opened_by_arrow,
    raw_text,
    read_column,
    rows_of,
)
from millstream.sources.separated import failed_chunk
from millstream.sources.source_file import FoundFile


class ParquetFormat:
    """One row of a Parquet file is one record."""

    name = "parquet"
    suffixes: tuple[str, ...] = (".parquet", ".pq")
    gives_rows = True

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give row groups, small ones together."""
        try:
            with _parquet(file) as table:
                check_column(table.schema_arrow, reading)
                groups = [table.metadata.row_group(each) for each in range(table.num_row_groups)]
                _check_rows(groups, reading.max_expansion * file.bytes)
        except FileFailure as failure:
            yield failed_chunk(failure)
            return
        first, rows, size, start, number = 0, 0, 0, 0, 0
        for place, group in enumerate(groups):
            rows += group.num_rows
            size += group.total_byte_size
            if size >= reading.chunk_bytes or place + 1 == len(groups):
                after = file.bytes * rows // max(1, table.metadata.num_rows)
                yield Chunk(number, start, rows, context=range(first, place + 1), source_stop=after)
                number, start, first, size = number + 1, rows, place + 1, 0

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the rows of some row groups."""
        if chunk.bad is not None:
            return ChunkRead(empty_block(file.name), 0).ending_badly(chunk.bad)
        try:
            with _parquet(file) as table:
                return read_column(column_of(_rows(table, chunk, _columns(reading)), reading), file.name, reading)
        except FileFailure as failure:
            return lost(failure, chunk, file)

    def rows(self, chunk: Chunk, file: FoundFile) -> list[dict[str, Any]]:
        """The rows of some row groups as Python values: fast for lists of numbers. May raise `FileFailure`."""
        with _parquet(file) as table:
            return rows_of(_rows(table, chunk))

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The text of one row again."""
        seen = 0
        with _parquet(file) as table:
            for group in range(table.num_row_groups):
                rows = table.metadata.row_group(group).num_rows
                if row < seen + rows:
                    found = table.read_row_group(group, columns=_columns(reading))
                    return raw_text(column_of(found, reading), row - seen, reading.max_expansion)
                seen += rows
        raise SourceError(
            f"{file.name}: there is no row {row + 1:,}; it has {seen:,}",
            hint="is this the very file that the store was made from?",
        )


def _check_rows(groups: list[Any], most: int) -> None:
    """Refuse groups that say they have rows which cannot be there."""
    for number, group in enumerate(groups):
        if not 0 <= group.num_rows <= most:
            found = f"row group {number} says that it has {group.num_rows:,} rows"
            raise FileFailure("damaged", found, "copy the file again, or raise max_expansion", has_place=False)


def _rows(table: Any, chunk: Chunk, columns: list[str] | None = None) -> Any:
    """The row groups of a chunk, as many rows as they say they have."""
    # One at a time: pyarrow cannot read nested words from several groups at once.
    rows = arrow().concat_tables([table.read_row_group(group, columns=columns) for group in chunk.context])
    if len(rows) != chunk.stop - chunk.start:
        found = f"it says that there are {chunk.stop - chunk.start:,} rows, and there are {len(rows):,}"
        raise FileFailure("damaged", found, has_place=False)
    return rows


def _columns(reading: Reading) -> list[str] | None:
    return None if reading.whole_rows else [reading.text_field]


@contextmanager
def _parquet(file: FoundFile) -> Iterator[Any]:
    """An open Parquet file."""
    with opened_by_arrow(file) as source:
        import pyarrow.parquet

        yield pyarrow.parquet.ParquetFile(source)
