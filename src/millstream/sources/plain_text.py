"""Plain text: a document is a file, a line, or what stands between two separators.

A text is exactly bytes [start, stop) of the decoded stream: a byte order mark, line ends and separators belong to no
record. Empty documents are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from millstream import _core
from millstream.sources.chunk import EMPTY, BadRecord, Chunk, ChunkRead, FileFailure, Reading, empty_block, too_long
from millstream.sources.decoding import decoded, layout_of, raw_bytes
from millstream.sources.native_columns import LeftOut, decoded_look, finish
from millstream.sources.record_block import Record, RecordBlock
from millstream.sources.separated import chunk_bytes, chunks_of
from millstream.sources.source_file import FoundFile

_CODE = ".c .cc .cpp .css .go .h .hpp .html .java .js .lean .pgn .py .rs .sh .sql .ts"


class TextFormat:
    """Text files, whole or cut."""

    name = "text"
    suffixes: tuple[str, ...] = (".txt", ".text", ".md", ".rst", ".tex", *_CODE.split())

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Cut a file by byte ranges, or leave it whole."""
        if reading.documents == "file":
            yield Chunk(0, 0, file.bytes)
        else:
            yield from chunks_of(file, reading, _separator(reading), "document")

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the documents of a chunk."""
        if reading.documents == "file":
            return _whole(file, reading)
        separator = _separator(reading)
        found = chunk_bytes(chunk, file, reading, separator)
        data = np.frombuffer(found.data, np.uint8)
        native = _core.parse_lines(data, separator.decode(), reading.documents == "line")
        read = finish(
            native, found.data, found.start, file.name, reading, _as_it_is, what="document", encoding=chunk.encoding
        )
        return read.ending_badly(found.bad)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The bytes of one document again."""
        return raw_bytes(file, reading, start, stop)


def _separator(reading: Reading) -> bytes:
    return b"\n" if reading.separator is None else reading.separator.encode()


def _as_it_is(raw: bytes, start: int) -> str | LeftOut | BadRecord:
    return raw.decode()


def _whole(file: FoundFile, reading: Reading) -> ChunkRead:
    """The one document of a file."""
    limit, pieces, size, start = reading.max_document_bytes, [], 0, 0
    read = ChunkRead(empty_block(file.name), 0)
    try:
        layout = layout_of(file, reading)
        with decoded(file, reading, layout) as (blocks, start):
            for block in blocks:
                pieces.append(block)
                size += len(block)
                if size > limit:
                    return read.ending_badly(too_long("document", start, limit, b"".join(pieces)))
    except FileFailure as failure:
        raw = b"".join(pieces)
        return read.ending_badly(failure.record(start, start + len(raw), raw))
    raw = b"".join(pieces)
    if not raw:
        return ChunkRead(read.block, 1, skipped={EMPTY: 1})
    repaired: Counter[str] = Counter()
    text = decoded_look(raw, start, reading, _as_it_is, repaired, layout.encoding)
    if isinstance(text, BadRecord):
        return read.ending_badly(text)
    assert isinstance(text, str)
    records = [Record(text, file.name, 0, start, start + len(raw))]
    return ChunkRead(RecordBlock.of(records, file.name), 1, repaired=dict(repaired))
