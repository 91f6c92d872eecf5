"""Blocks of a tar archive -> its members. Nothing is ever written to disk, and no name is ever used as a path.

Read are the headers of POSIX (ustar, pax) and GNU tar; long names are limited, sizes are checked against the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.sources.failure import FileFailure

_BLOCK = 512
_LONGEST_NAME = 1 << 16
_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
_EXTENDED = (b"L", b"x", b"g", b"K")  # a long name, what pax says of one member, of all, a long link


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file in an archive: bytes [start, stop) of the archive; `data` unless it was not wanted."""

    name: str
    header: int
    start: int
    stop: int
    data: bytes | None

    @property
    def key(self) -> str:
        """What the files of one sample share: the path up to the first dot of the last part.

        >>> Member("a.b/000.seg.txt", 0, 0, 0, None).key, Member("a.b/000.seg.txt", 0, 0, 0, None).ending
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


def members(blocks: Iterator[bytes], wanted: Callable[[str, int], bool]) -> Iterator[Member]:
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
            yield Member(name, first, start, start + size, data)
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
    told = _number(header[148:156])
    seen = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if told != seen:
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
