"""Bytes somewhere -> records, each with its origin (file, row, byte range).

`discover` finds the files. A `Format` (one file of this folder each) cuts a file into chunks, and reads a chunk into
columns of records; chunks are read independently, by any number of threads. What cannot be used is reported beside
them. Memory does not grow with the files.
"""

from millstream.sources.appended import GrowingLines
from millstream.sources.chunk import BadRecord, Chunk, ChunkRead, Reading, numbered
from millstream.sources.discover import Found, discover
from millstream.sources.formats import Format, format_named, format_of, raw_record, read_file, register_format
from millstream.sources.found import FoundFile
from millstream.sources.record import Record, RecordBlock
from millstream.sources.record_format import RecordFormat

__all__ = [
    "BadRecord",
    "Chunk",
    "ChunkRead",
    "Format",
    "Found",
    "FoundFile",
    "GrowingLines",
    "Reading",
    "Record",
    "RecordBlock",
    "RecordFormat",
    "discover",
    "format_named",
    "format_of",
    "numbered",
    "raw_record",
    "read_file",
    "register_format",
]
