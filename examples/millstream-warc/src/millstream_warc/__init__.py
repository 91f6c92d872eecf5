"""WET files, the plain text that Common Crawl has taken from web pages, as a format of Millstream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from millstream.sources import BadRecord, Reading, RecordFormat

_LONGEST_LINE = 1 << 16


class WetFormat(RecordFormat):
    """One page is one record; what describes the crawl is passed over."""

    name = "wet"
    suffixes = (".wet",)

    def records(self, stream: BinaryIO, reading: Reading) -> Iterator[bytes | BadRecord]:
        """Give the text of each page."""
        while version := _next_line(stream):
            fields = dict(_fields(stream)) if version.startswith(b"WARC/") else {}
            length = fields.get(b"content-length", b"")
            if not length.isdigit():
                found = f"a record begins with {version[:40]!r}" + (" and has no length" if fields else "")
                yield BadRecord("not WARC", 0, -1, -1, found, "is this a WET file?", version)
                return
            body = stream.read(min(int(length), reading.max_document_bytes + 1))
            left = int(length) - len(body)
            while left > 0 and (passed := stream.read(min(left, 1 << 20))):
                left -= len(passed)
            if left:
                yield BadRecord("truncated", 0, -1, -1, f"{left:,} bytes of the last record are missing", raw=body)
            elif fields.get(b"warc-type") == b"conversion":
                yield body


def _next_line(stream: BinaryIO) -> bytes:
    """The next line that is not blank."""
    while line := stream.readline(_LONGEST_LINE):
        if line.strip():
            return line.strip()
    return b""


def _fields(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while line := stream.readline(_LONGEST_LINE).strip():
        name, _, value = line.partition(b":")
        yield name.strip().lower(), value.strip()
