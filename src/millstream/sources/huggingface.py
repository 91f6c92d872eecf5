"""Hugging Face `datasets`: objects that are read as if they were files. The library itself is never imported.

A `Dataset` lies in Arrow tables, which are used as they are; an `IterableDataset` is asked for batches.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from millstream.errors import SourceError
from millstream.sources.chunk import Chunk, ChunkRead, Reading, empty_block
from millstream.sources.columnar import (
    as_bytes,
    as_json,
    check_column,
    column_of,
    raw_text,
    read_column,
)
from millstream.sources.failure import FileFailure
from millstream.sources.found import FoundFile
from millstream.sources.separated import failed_chunk
from millstream.sources.sound import arrow, refused, sound

_BATCH_ROWS = 1000


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
                with refused():
                    rows = as_json(sound(column_of(table, reading), reading.max_expansion))
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
            with refused():
                texts = as_bytes(sound(column, reading.max_expansion))
            yield texts


def _check_text(file: FoundFile, schema: Any, reading: Reading) -> None:
    try:
        check_column(schema, reading)
    except FileFailure as failure:
        raise SourceError(f"{file.name}: {failure.reason}: {failure.found}", hint=failure.hint) from None
