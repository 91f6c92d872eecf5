"""The shortest way to a format of one's own: a generator of the texts of a stream.

This class does compression, encodings, limits and chunks. One thread reads the stream, so a format on the hot
path implements the methods of `Format` itself.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar

import numpy as np

from millstream.errors import MillstreamError, SourceError
from millstream.sources.chunk import (
    FORMAT_FAILED,
    NO_TEXT,
    BadRecord,
    Chunk,
    ChunkRead,
    FileFailure,
    Reading,
    empty_block,
)
from millstream.sources.columnar import checked
from millstream.sources.decoding import decoded
from millstream.sources.record_block import NO_BYTES, RecordBlock, joined
from millstream.sources.separated import failed_chunk
from millstream.sources.source_file import FoundFile

Text = str | bytes | BadRecord


class RecordFormat(ABC):
    """A format that is read from front to back by one generator.

    >>> class Fortunes(RecordFormat):
    ...     name, suffixes = "fortunes", (".fortunes",)
    ...
    ...     def records(self, stream, reading):
    ...         yield from stream.read().split(b"\\n%\\n")
    >>> list(Fortunes().records(io.BytesIO(b"Ask again.\\n%\\nYes."), Reading()))
    [b'Ask again.', b'Yes.']
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def records(self, stream: BinaryIO, reading: Reading) -> Iterator[Text]:
        """Give the texts of a stream (decompressed, UTF-8) in their order, and bad records among them.

        Bytes are checked, so a text need not be decoded.
        """

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give the texts, many at a time."""
        number = start = size = 0
        held: list[Text] = []
        failure: FileFailure | None = None
        try:
            with decoded(file, reading) as (blocks, _):
                for record in self._given(blocks, reading):
                    held.append(record)
                    size += 0 if isinstance(record, BadRecord) else len(record)
                    if size >= reading.chunk_bytes:
                        yield Chunk(number, start, start + len(held), held, source_stop=blocks.taken)
                        number, start, size, held = number + 1, start + len(held), 0, []
        except FileFailure as error:
            failure = error
        if held:
            yield Chunk(number, start, start + len(held), held, source_stop=file.bytes)
        if failure is not None:
            yield replace(failed_chunk(failure, number + bool(held)), data=[])

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Lay the texts out in columns."""
        return read_texts(chunk, file, reading)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The text of one record again."""
        with decoded(file, reading) as (blocks, _):
            for place, record in enumerate(self._given(blocks, reading)):
                if place == row:
                    return _raw(record)
        raise SourceError(
            f"{file.name}: there is no row {row + 1:,}", hint="is this the very file that the store was made from?"
        )

    def _given(self, blocks: Iterator[bytes], reading: Reading) -> Iterator[Text]:
        """What `records` gives; what is no text is a bad record, and a failure of the format ends the file."""
        try:
            for record in self.records(io.BufferedReader(_BlockStream(blocks)), reading):
                yield self._checked(record)
        except (FileFailure, MillstreamError, MemoryError):
            raise
        except Exception as error:
            found = f"the format {self.name!r} raised {type(error).__name__}: {error}"
            hint = f"mend {type(self).__name__}.records; it gives a BadRecord for what it cannot use"
            raise FileFailure(FORMAT_FAILED, found, hint, has_place=False) from error

    def _checked(self, record: object) -> Text:
        if isinstance(record, bytes | BadRecord):
            return record
        if not isinstance(record, str):
            found = f"the format {self.name!r} gave a record of type {type(record).__name__}"
            return BadRecord(NO_TEXT, 0, NO_BYTES, NO_BYTES, found, f"{type(self).__name__}.records gives str or bytes")
        try:
            record.isascii() or record.encode()
            return record
        except UnicodeEncodeError as error:
            found = f"the format {self.name!r} gave a str with {record[error.start]!r}, half of a character"
            return BadRecord("not Unicode", 0, NO_BYTES, NO_BYTES, found, "decode with errors='replace', or give bytes")


def read_texts(chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
    """Lay the texts of a chunk, which have no byte range, out in columns."""
    texts = [(row, _raw(each)) for row, each in enumerate(chunk.data) if not isinstance(each, BadRecord)]
    bad = [replace(each, row=row) for row, each in enumerate(chunk.data) if isinstance(each, BadRecord)]
    read = ChunkRead(empty_block(file.name), len(chunk.data))
    if texts:
        text, ends = joined([text for _, text in texts])
        nowhere = np.full(len(texts), NO_BYTES, np.int64)
        rows = np.array([row for row, _ in texts], np.int64)
        read = checked(RecordBlock(file.name, text, ends, rows, nowhere, nowhere), len(chunk.data), reading)
    read = replace(read, bad=sorted([*read.bad, *bad], key=lambda each: each.row))
    return read.ending_badly(chunk.bad)


def _raw(record: Text) -> bytes:
    if isinstance(record, BadRecord):
        return record.raw or b""
    return record if isinstance(record, bytes) else record.encode()


class _BlockStream(io.RawIOBase):
    """Blocks as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.held:
            block = next(self.blocks, b"")
            if not block:
                return 0
            self.held = memoryview(block)
        size = min(len(buffer), len(self.held))
        buffer[:size], self.held = self.held[:size], self.held[size:]
        return size
