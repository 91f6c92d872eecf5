"""The outer shape of zstd files (RFC 8878): frames of blocks. Nothing is decompressed here.

Cutting at blocks bounds what a decoder can give at once (128 KiB a block), tells a cut file from a whole one, and
shows where a file can be read from the middle: at the frames that say how much they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millstream.sources.failure import FileFailure

MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_STEP_BLOCKS = 2
_LARGEST_BLOCK = 1 << 17


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole blocks of one frame."""

    data: bytes
    starts_frame: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a file: the place of its first byte, and how many bytes it stands for."""

    offset: int
    content_bytes: int


def is_skippable(head: bytes) -> bool:
    """Tell whether these bytes begin a frame without content."""
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == _SKIPPABLE


def pieces(blocks: Iterator[bytes]) -> Iterator[Piece]:
    """Cut a stream into pieces that decode to a bounded amount."""
    ahead = _Ahead(blocks)
    while magic := ahead.peek(4):
        if is_skippable(magic):
            ahead.skip(4)
            ahead.skip(int.from_bytes(ahead.take(4), "little"))
            continue
        header = _Header.parse(ahead.take)
        held, first, last = [header.raw], True, False
        try:
            while not last:
                start = ahead.take(3)
                payload, last = _block(start)
                held.append(start + ahead.take(payload))
                if last and header.has_checksum:
                    held.append(ahead.take(4))
                if len(held) >= _STEP_BLOCKS:
                    yield Piece(b"".join(held), first)
                    held, first = [], False
        except FileFailure:
            yield Piece(b"".join(held), first)  # what lies before the failure can be had
            raise
        if held:
            yield Piece(b"".join(held), first)


def frames(read: Callable[[int, int], bytes], size: int) -> list[Frame] | None:
    """The frames of a file of which `read(place, count)` gives bytes; None unless all say how much they hold."""
    found, at = [], 0
    try:
        while at < size:
            start, cursor = at, _At(read, at)
            if is_skippable(read(at, 4)):
                at += 8 + int.from_bytes(read(at + 4, 4), "little")
                continue
            header = _Header.parse(cursor.take)
            if header.content_bytes is None:
                return None
            last = False
            while not last:
                payload, last = _block(cursor.take(3))
                cursor.at += payload
            at = cursor.at + (4 if header.has_checksum else 0)
            if header.content_bytes:
                found.append(Frame(start, header.content_bytes))
    except FileFailure:
        return None
    return found if at == size else None


@dataclass(frozen=True, slots=True)
class _Header:
    raw: bytes
    content_bytes: int | None
    has_checksum: bool

    @classmethod
    def parse(cls, take: Callable[[int], bytes]) -> _Header:
        raw = take(5)
        if raw[:4] != MAGIC:
            raise FileFailure("damaged", f"this is not zstd data: a frame begins with {raw[:4].hex(' ')}")
        descriptor = raw[4]
        single, width = descriptor >> 5 & 1, descriptor >> 6
        content = (single, 2, 4, 8)[width]
        rest = take((1 - single) + (0, 1, 2, 4)[descriptor & 3] + content)
        value = int.from_bytes(rest[len(rest) - content :], "little") + (256 if content == 2 else 0)
        return cls(raw + rest, value if content else None, bool(descriptor & 4))


def _block(header: bytes) -> tuple[int, bool]:
    """(bytes that follow, whether it is the last block)."""
    word = int.from_bytes(header, "little")
    kind, size = word >> 1 & 3, word >> 3
    if kind == 3 or size > _LARGEST_BLOCK:
        raise FileFailure("damaged", "this is not zstd data: a block of an impossible kind or size")
    return (1 if kind == 1 else size), bool(word & 1)


class _At:
    """A cursor in a file that can be read anywhere."""

    def __init__(self, read: Callable[[int, int], bytes], at: int) -> None:
        self.read, self.at = read, at

    def take(self, count: int) -> bytes:
        data = self.read(self.at, count)
        if len(data) < count:
            raise FileFailure("truncated", "the zstd data ends in the middle")
        self.at += count
        return data


class _Ahead:
    """A cursor in a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held, self.at = blocks, b"", 0

    def peek(self, count: int) -> bytes:
        while len(self.held) - self.at < count and (block := next(self.blocks, b"")):
            self.held, self.at = self.held[self.at :] + block, 0
        return self.held[self.at : self.at + count]

    def take(self, count: int) -> bytes:
        data = self.peek(count)
        if len(data) < count:
            raise FileFailure("truncated", "the zstd data ends in the middle")
        self.at += count
        return data

    def skip(self, count: int) -> None:
        while count:
            count -= len(self.take(min(count, 1 << 20)))
