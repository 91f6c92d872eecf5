"""Tar archives in the manner of WebDataset: the files of one sample share a key and follow one another.

The text of a sample is its first file among .txt, .text, .md, .jsonl (each line a record) and .json (the text field).
Samples without one are counted. A row is a record, its byte range that of its file or line inside the archive.

Headers of POSIX (ustar, pax) and GNU tar are read. Long names are limited, and sizes are checked against the data.
Nothing is ever written to disk, and no name is ever used as a path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from millstream.sources.chunk import EMPTY, UTF_8, BadRecord, Chunk, ChunkRead, FileFailure, Reading, too_long
from millstream.sources.decoding import binary_layout, decoded, encoding_of, raw_bytes, transcoded
from millstream.sources.jsonl import read_lines, text_of
from millstream.sources.native_columns import LeftOut, decoded_look
from millstream.sources.record_block import RecordBlock, joined
from millstream.sources.source_file import FoundFile

TEXT_ENDINGS = (".txt", ".text", ".md", ".jsonl", ".json")
NO_TEXT = "sample without text"
SECOND_TEXT = "second text of a sample"
_BLOCK = 512
_LONGEST_NAME = 1 << 16
_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
_EXTENDED = (b"L", b"x", b"g", b"K")  # a long name, what pax says of one member, of all, a long link


class TarFormat:
    """Samples in a tar archive."""

    name = "tar"
    suffixes: tuple[str, ...] = (".tar", ".tgz")

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Give samples, small ones together."""
        number = start = stop = size = 0
        held: list[TarMember] = []
        failure: FileFailure | None = None

        def wanted(name: str, size: int) -> bool:
            return name.lower().endswith(TEXT_ENDINGS) and size <= reading.max_document_bytes

        try:
            with decoded(file, reading, binary_layout(file)) as (blocks, _):
                for member in _members(blocks, wanted):
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

    def add(self, sample: list[TarMember]) -> None:
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

    def _read(self, member: TarMember) -> None:
        if member.data is None:
            self._take(too_long("document", member.start, self.reading.max_document_bytes), member)
            return
        data, encoding, mark = _as_utf8(member.data, self.reading)
        start = member.start + mark
        if member.ending.endswith(".jsonl"):
            lines = read_lines(data, start, self.file, self.reading, encoding)
            self._take_lines(lines if encoding == UTF_8 else self._located(lines, member))
        elif not data:
            self._take(LeftOut(EMPTY), member)
        else:
            look = self._json if member.ending.endswith(".json") else _as_it_is
            self._take(decoded_look(data, start, self.reading, look, self.repaired, encoding), member)

    def _json(self, raw: bytes, start: int) -> str | LeftOut | BadRecord:
        return text_of(raw, start, self.reading.text_field)

    def _take(self, seen: str | LeftOut | BadRecord, member: TarMember) -> None:
        if isinstance(seen, BadRecord):
            self.bad.append(replace(seen, row=self.count))
        elif isinstance(seen, LeftOut):
            self.skipped[seen.reason] += 1
        else:
            self.texts.append(seen.encode())
            self.origins.append((self.count, member.start, member.stop))
        self.count += 1

    def _located(self, lines: ChunkRead, member: TarMember) -> ChunkRead:
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


def _last_ending(member: TarMember) -> str:
    return next(ending for ending in TEXT_ENDINGS if member.ending.endswith(ending))


def _as_it_is(raw: bytes, start: int) -> str | LeftOut | BadRecord:
    return raw.decode()


def _as_utf8(data: bytes, reading: Reading) -> tuple[bytes, str, int]:
    """(a text in UTF-8, the encoding it had, the bytes of its byte order mark, if it was UTF-8 before)."""
    encoding, mark = encoding_of(data[:4], reading.encoding)
    if encoding == UTF_8:
        return data[mark:], encoding, mark
    return b"".join(transcoded(iter([data[mark:]]), encoding)), encoding, 0


@dataclass(frozen=True, slots=True)
class TarMember:
    """A regular file in an archive: bytes [start, stop) of the archive; `data` unless it was not wanted."""

    name: str
    header: int
    start: int
    stop: int
    data: bytes | None

    @property
    def key(self) -> str:
        """What the files of one sample share: the path up to the first dot of the last part.

        >>> member = TarMember("a.b/000.seg.txt", 0, 0, 0, None)
        >>> member.key, member.ending
        ('a.b/000', '.seg.txt')
        """
        folder, slash, name = self.name.rpartition("/")
        return folder + slash + name.split(".", 1)[0]

    @property
    def ending(self) -> str:
        """What follows the key."""
        return self.name[len(self.key) :].lower()

    @property
    def is_safe(self) -> bool:
        """Whether the name stays inside the folder it would be unpacked into."""
        parts = self.name.replace("\\", "/").split("/")
        return ".." not in parts and not self.name.startswith(("/", "\\")) and "\0" not in self.name


def _members(blocks: Iterator[bytes], wanted: Callable[[str, int], bool]) -> Iterator[TarMember]:
    """Give the regular files of an archive, with their data where `wanted(name, size)` says so."""
    archive = _Archive(blocks)
    long_name: str | None = None
    first: int | None = None  # where the headers of the coming member begin
    long_size: int | None = None
    while (header := archive.take(_BLOCK, at_end=True)) and header != bytes(_BLOCK):
        _check(header, archive.place)
        kind, size = header[156:157], _number(header[124:136])
        first = archive.place - _BLOCK if first is None else first
        if kind in _EXTENDED:
            if size > _LONGEST_NAME:
                raise FileFailure("damaged", f"an extended tar header has {size:,} bytes")
            extra = archive.take_padded(size, keep=kind in (b"L", b"x"))
            if kind == b"L":
                long_name = _text(extra)
            elif kind == b"x":
                values = _pax(extra)
                long_name = values.get("path", long_name)
                long_size = int(values["size"]) if values.get("size", "").isdecimal() else long_size
            continue
        size = size if long_size is None else long_size
        name = long_name if long_name is not None else _name(header)
        start = archive.place
        regular = kind in _REGULAR and not name.endswith("/")
        data = archive.take_padded(0 if kind in _WITHOUT_DATA else size, keep=regular and wanted(name, size))
        if regular:
            yield TarMember(name, first, start, start + size, data)
        long_name = long_size = first = None


class _Archive:
    """A cursor in the blocks of an archive."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held, self.at, self.place = iter(blocks), b"", 0, 0

    def take(self, size: int, *, at_end: bool = False) -> bytes:
        """The next `size` bytes; nothing at the end of the data if that is allowed."""
        pieces, left = [], size
        while left:
            if self.at == len(self.held):
                self.held, self.at = next(self.blocks, b""), 0
                if not self.held:
                    if at_end and left == size:
                        return b""
                    raise FileFailure("truncated", "the archive ends in the middle of a member")
            piece = self.held[self.at : self.at + left]
            pieces.append(piece)
            self.at += len(piece)
            self.place += len(piece)
            left -= len(piece)
        return b"".join(pieces)

    def take_padded(self, size: int, *, keep: bool) -> bytes | None:
        """The data of a member, which is filled up to a whole block."""
        data = self.take(size) if keep else None
        left = (0 if keep else size) + -size % _BLOCK
        while left:
            left -= len(self.take(min(left, 1 << 20)))
        return data


def _check(header: bytes, place: int) -> None:
    stated = _number(header[148:156])
    computed = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if stated != computed:
        raise FileFailure("damaged", f"there is no tar header at byte {place - _BLOCK:,} of the archive")


def _number(field: bytes) -> int:
    """Octal digits, or with the first bit set a binary number."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits and not digits.isdigit():
        raise FileFailure("damaged", f"a tar header has {field!r} for a number")
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise FileFailure("damaged", f"a tar header has {field!r} for a number") from None


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes | None) -> str:
    return (field or b"").split(b"\0", 1)[0].decode(errors="replace")


def _pax(records: bytes | None) -> dict[str, str]:
    """The records of a pax header: "length key=value\\n".

    >>> _pax(b"12 path=a/b\\n9 size=7\\n")
    {'path': 'a/b', 'size': '7'}
    """
    values, rest = {}, records or b""
    while rest.strip(b"\0"):
        length = rest.split(b" ", 1)[0]
        size = int(length) if length.isdigit() and len(length) < 9 else 0
        record = rest[len(length) + 1 : size]
        if size < 5 or not record.endswith(b"\n") or b"=" not in record:
            raise FileFailure("damaged", "an extended tar header cannot be read")
        key, value = record[:-1].split(b"=", 1)
        values[key.decode(errors="replace")] = value.decode(errors="replace")
        rest = rest[size:]
    return values
