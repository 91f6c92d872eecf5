"""Tar archives in the manner of WebDataset: the files of one sample share a key and follow one another.

The text of a sample is its first file among .txt, .text, .md, .jsonl (each line a record) and .json (the text field);
samples without one are counted. A row is a record, its byte range that of its file or line inside the archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from millstream.sources.chunk import UTF_8, BadRecord, Chunk, ChunkRead, Reading
from millstream.sources.encoding import encoding_of, transcoded
from millstream.sources.failure import EMPTY, FileFailure, too_long
from millstream.sources.found import FoundFile
from millstream.sources.jsonl import read_lines, text_of
from millstream.sources.parsed import Left, decoded_look
from millstream.sources.record import RecordBlock, joined
from millstream.sources.stream import binary_layout, decoded, raw_bytes
from millstream.sources.tar_members import Member, members

TEXT_ENDINGS = (".txt", ".text", ".md", ".jsonl", ".json")
NO_TEXT = "sample without text"
SECOND_TEXT = "second text of a sample"


class TarFormat:
    """Samples in a tar archive."""

    name = "tar"
    suffixes: tuple[str, ...] = (".tar", ".tgz")

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give samples, small ones together."""
        number = start = stop = size = 0
        held: list[Member] = []
        failure: FileFailure | None = None

        def wanted(name: str, size: int) -> bool:
            return name.lower().endswith(TEXT_ENDINGS) and size <= reading.max_document_bytes

        try:
            with decoded(file, reading, binary_layout(file)) as (blocks, _):
                for member in members(blocks, wanted):
                    if size >= reading.chunk_bytes and held[-1].key != member.key:
                        yield Chunk(number, start, member.header, held, source_stop=blocks.taken)
                        number, start, size, held = number + 1, member.header, 0, []
                    held.append(member)
                    stop = member.stop
                    size += member.start - member.header + len(member.data or b"")
        except FileFailure as error:
            failure = error
        if held or failure is not None:
            bad = None if failure is None else failure.record(stop, stop)
            yield Chunk(number, start, stop, held, bad=bad, source_stop=file.bytes)

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the texts of some samples."""
        return _gathered(chunk, file, reading).done().ending_badly(chunk.bad)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """The file inside the archive, or its line, again; converted like other files, if it is not UTF-8."""
        raw = raw_bytes(file, reading, start, stop, binary_layout(file))
        text, encoding, _ = _as_utf8(raw, reading)
        if encoding == UTF_8:
            return raw
        first = self._first_line(file, reading, start)
        return text if first is None else text.split(b"\n")[row - first]

    def _first_line(self, file: FoundFile, reading: Reading, start: int) -> int | None:
        """The row of the first line of the converted lines that begin at place `start`, if there are such."""
        before = 0
        for chunk in self.chunks(file, reading):
            rows = _gathered(chunk, file, reading)
            if start in rows.converted:
                return before + rows.converted[start]
            before += rows.count
        return None


def _gathered(chunk: Chunk, file: FoundFile, reading: Reading) -> _Rows:
    """The records of a chunk."""
    rows = _Rows(file.name, reading)
    for _, sample in groupby(chunk.data, key=lambda member: member.key):
        rows.add(list(sample))
    return rows


@dataclass(slots=True)
class _Rows:
    """The records of a chunk while they are gathered."""

    file: str
    reading: Reading
    count: int = 0
    texts: list[bytes] = field(default_factory=list)
    origins: list[tuple[int, int, int]] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    converted: dict[int, int] = field(default_factory=dict)
    """Where lines begin that were not UTF-8, and the row of the first: only the row tells which of them is meant."""

    def add(self, sample: list[Member]) -> None:
        """Take the text of one sample."""
        for member in sample:
            if not member.is_safe:
                found = f"{member.name[:200]!r} leads out of the archive"
                hint = "no path inside an archive is trusted; make it again with relative names"
                self._take(BadRecord("unsafe name", 0, member.start, member.stop, found, hint), member)
        safe = [member for member in sample if member.is_safe]
        texts = [each for ending in TEXT_ENDINGS for each in safe if each.ending.endswith(ending)]
        if texts:
            self._read(texts[0])
            others = sum(each.ending.endswith(_last_ending(texts[0])) for each in texts[1:])
            self.skipped.update({SECOND_TEXT: others} if others else {})
        elif safe:
            self.skipped[NO_TEXT] += 1

    def done(self) -> ChunkRead:
        """All of them in columns."""
        text, ends = joined(self.texts)
        rows, starts, stops = np.ascontiguousarray(np.array(self.origins, np.int64).reshape(-1, 3).T)
        block = RecordBlock(self.file, text, ends, rows, starts, stops)
        return ChunkRead(block, self.count, self.bad, dict(self.skipped), dict(self.repaired))

    def _read(self, member: Member) -> None:
        if member.data is None:
            self._take(too_long("document", member.start, self.reading.max_document_bytes), member)
            return
        data, encoding, mark = _as_utf8(member.data, self.reading)
        start = member.start + mark
        if member.ending.endswith(".jsonl"):
            lines = read_lines(data, start, self.file, self.reading, encoding)
            self._take_lines(lines if encoding == UTF_8 else self._located(lines, member))
        elif not data:
            self._take(Left(EMPTY), member)
        else:
            look = self._json if member.ending.endswith(".json") else _as_it_is
            self._take(decoded_look(data, start, self.reading, look, self.repaired, encoding), member)

    def _json(self, raw: bytes, start: int) -> str | Left | BadRecord:
        return text_of(raw, start, self.reading.text_field)

    def _take(self, seen: str | Left | BadRecord, member: Member) -> None:
        if isinstance(seen, BadRecord):
            self.bad.append(replace(seen, row=self.count))
        elif isinstance(seen, Left):
            self.skipped[seen.reason] += 1
        else:
            self.texts.append(seen.encode())
            self.origins.append((self.count, member.start, member.stop))
        self.count += 1

    def _located(self, lines: ChunkRead, member: Member) -> ChunkRead:
        """Lines that were converted: places in what came out are none in the archive, so each has those of its file."""
        self.converted[member.start] = self.count
        count, place = len(lines.block), (member.start, member.stop)
        starts, stops = (np.full(count, each, np.int64) for each in place)
        bad = [replace(each, start=member.start, stop=member.stop) for each in lines.bad]
        return replace(lines, block=replace(lines.block, starts=starts, stops=stops), bad=bad)

    def _take_lines(self, lines: ChunkRead) -> None:
        lines = lines.counted_from(self.count)
        block = lines.block
        self.texts += [block.bytes_of(index) for index in range(len(block))]
        self.origins += zip(block.rows.tolist(), block.starts.tolist(), block.stops.tolist(), strict=True)
        self.bad += lines.bad
        self.skipped += Counter(lines.skipped)
        self.repaired += Counter(lines.repaired)
        self.count += lines.rows


def _last_ending(member: Member) -> str:
    return next(ending for ending in TEXT_ENDINGS if member.ending.endswith(ending))


def _as_it_is(raw: bytes, start: int) -> str | Left | BadRecord:
    return raw.decode()


def _as_utf8(data: bytes, reading: Reading) -> tuple[bytes, str, int]:
    """(a text in UTF-8, the encoding it had, the bytes of its byte order mark, if it was UTF-8 before)."""
    encoding, mark = encoding_of(data[:4], reading.encoding)
    if encoding == UTF_8:
        return data[mark:], encoding, mark
    return b"".join(transcoded(iter([data[mark:]]), encoding)), encoding, 0
