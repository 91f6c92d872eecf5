"""Which format a file has, and the road from a found file to its records.

One more format is one more file in this folder and one more line in `SUFFIXES` and `make_source`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import SourceError
from millstream.sources.jsonl import JsonlSource
from millstream.sources.reading import HashedFile
from millstream.sources.record import Record
from millstream.sources.rejects import Rejects
from millstream.sources.source import MAX_RECORD_BYTES, Source
from millstream.sources.text import TextSource

_CODE = ".c .cc .cpp .css .go .h .hpp .html .java .js .lean .pgn .py .rs .sh .sql .ts"
SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "text": (".txt", ".text", ".md", ".rst", ".tex", *_CODE.split()),
}
"""The formats and the file names they are known by."""

_BY_SUFFIX = {suffix: name for name, suffixes in SUFFIXES.items() for suffix in suffixes}


def format_of(path: Path) -> str | None:
    """The format of a file by its name, or None.

    >>> format_of(Path("a/B.JSONL")), format_of(Path("notes.md")), format_of(Path("photo.png"))
    ('jsonl', 'text', None)
    """
    return _BY_SUFFIX.get(path.suffix.lower())


def make_source(
    format: str,
    *,
    text_field: str = "text",
    documents: str = "file",
    separator: str | None = None,
    max_bytes: int = MAX_RECORD_BYTES,
) -> Source:
    """Build the reader of a format.

    >>> make_source("jsonl", text_field="content").format
    'jsonl'
    """
    if format == "jsonl":
        return JsonlSource(text_field, max_bytes=max_bytes)
    if format == "text":
        return TextSource(documents, separator=separator, max_bytes=max_bytes)
    raise SourceError(f"format={format!r} is unknown", hint=f"choose one of {', '.join(SUFFIXES)}")


@dataclass(slots=True)
class FileRead:
    """One file while it is read: iterate over its records; then `bytes` and `blake2b` say what was read."""

    path: Path
    name: str
    source: Source
    rejects: Rejects
    bytes: int = 0
    blake2b: str = ""

    def __iter__(self) -> Iterator[Record]:
        with HashedFile(self.path) as raw:
            stream = io.BufferedReader(raw, 1 << 20)
            yield from self.source.records(stream, self.name, self.rejects)
            while stream.read(1 << 20):  # what a source did not want to see is hashed all the same
                pass
            self.bytes, self.blake2b = raw.bytes_read, raw.digest()


def read_found(path: Path, name: str, source: Source, rejects: Rejects | None = None) -> FileRead:
    """Read one file: records as they come, then what was read in all.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("hello")
    >>> read = read_found(path, "a.txt", TextSource())
    >>> [record.text for record in read], read.bytes
    (['hello'], 5)
    """
    return FileRead(path, name, source, Rejects() if rejects is None else rejects)
