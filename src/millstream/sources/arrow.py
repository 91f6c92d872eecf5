"""Arrow and Feather files: the text is a column; a chunk is some record batches. Streams are read from the front."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.errors import SourceError
from millstream.sources.arrow_checks import arrow, pyarrow_errors, validated
from millstream.sources.chunk import Chunk, ChunkRead, FileFailure, Reading, empty_block
from millstream.sources.columnar import (
    check_column,
    column_of,
    lost,
    opened_by_arrow,
    raw_text,
    read_column,
)
from millstream.sources.separated import failed_chunk
from millstream.sources.source_file import FoundFile

_FILE_MAGIC = b"ARROW1"


class ArrowFormat:
    """One row of an Arrow file or stream (IPC; Feather V2 is the same) is one record."""

    name = "arrow"
    suffixes: tuple[str, ...] = (".arrow", ".feather", ".ipc", ".arrows")
    gives_rows = True

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give record batches, small ones together."""
        number = start = stop = size = 0
        held: list[Any] = []
        failure: FileFailure | None = None
        try:
            with opened_by_arrow(file) as source:
                batches = _batches(source, reading)
                for column, after in batches:
                    held.append(column)
                    stop += len(column)
                    size += _bytes_of(column, reading)
                    if size >= reading.chunk_bytes:
                        yield Chunk(number, start, stop, held, source_stop=after)
                        number, start, size, held = number + 1, stop, 0, []
        except FileFailure as error:
            failure = error
        if held:
            yield Chunk(number, start, stop, held, source_stop=file.bytes)
            number, start = number + 1, stop
        if failure is not None:
            yield failed_chunk(failure, number)

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the rows of some batches."""
        read = ChunkRead(empty_block(file.name), 0)
        try:
            if chunk.data:
                read = read_column(arrow().chunked_array(chunk.data), file.name, reading)
        except FileFailure as failure:
            read = lost(failure, chunk, file)
        return read.ending_badly(chunk.bad)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The text of one row again."""
        seen = 0
        with opened_by_arrow(file) as source:
            for column, _ in _batches(source, reading):
                if row < seen + len(column):
                    return raw_text(column, row - seen, reading.max_expansion)
                seen += len(column)
        raise SourceError(
            f"{file.name}: there is no row {row + 1:,}; it has {seen:,}",
            hint="is this the very file that the store was made from?",
        )


def _bytes_of(column: Any, reading: Reading) -> int:
    """The bytes of a column. pyarrow follows offsets and indices to count them, so these are looked at before; those of
    texts that lie end to end were."""
    types = arrow().types
    try:
        if not any(is_one(column.type) for is_one in (types.is_string, types.is_large_string, types.is_binary)):
            with pyarrow_errors():
                validated(column, reading.max_expansion)
        return int(column.nbytes)
    except FileFailure:  # `read` meets it again
        return int(column.get_total_buffer_size())


def _batches(source: Any, reading: Reading) -> Iterator[tuple[Any, int]]:
    """The column of the text, or whole rows, batch by batch, and the byte after each, nearly."""
    arrow()
    import pyarrow.ipc

    is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    source.seek(0)
    if is_file:
        reader = pyarrow.ipc.open_file(source)
        check_column(reader.schema, reading)
        for number in range(reader.num_record_batches):
            after = source.size() * (number + 1) // reader.num_record_batches
            yield column_of(reader.get_batch(number), reading), after
    else:
        reader = pyarrow.ipc.open_stream(source)
        check_column(reader.schema, reading)
        for batch in reader:
            yield column_of(batch, reading), source.tell()
