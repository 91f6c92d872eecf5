"""Bytes somewhere -> records, each with its origin (file, row, byte range).

`discover` finds the files, a `Source` reads one format (one file of this folder per format), and `Rejects`
decides what becomes of input that cannot be used. Files are read as streams: memory does not grow with them.
"""

from millstream.sources.discover import Found, FoundFile, discover
from millstream.sources.formats import make_source, read_found
from millstream.sources.jsonl import JsonlSource
from millstream.sources.record import Record, RecordBlock
from millstream.sources.rejects import Rejects
from millstream.sources.source import Source
from millstream.sources.text import TextSource

__all__ = [
    "Found",
    "FoundFile",
    "JsonlSource",
    "Record",
    "RecordBlock",
    "Rejects",
    "Source",
    "TextSource",
    "discover",
    "make_source",
    "read_found",
]
