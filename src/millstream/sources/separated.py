"""Records that end with a separator, such as lines: where chunks begin and end, and the bytes of one chunk.

A record belongs to the chunk in which the separator before it begins; the first record belongs to the first chunk. So a
plain file, or one of several zstd frames, is cut without reading it. A worker finds its own records: it searches the
first separator, and reads past the end of the chunk up to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from millstream import _core
from millstream.sources.chunk import BadRecord, Chunk, FileFailure, Reading, too_long
from millstream.sources.decoding import DecodedBytes, StreamLayout, decoded, decoded_from, layout_of
from millstream.sources.source_file import FoundFile

Cut = Callable[[bytes, int, int], int]
"""(data, start, stop) -> where the last whole record of data[start:stop] ends, or `start`, where one begins."""


@dataclass(frozen=True, slots=True)
class FrameStart:
    """Where a chunk begins in a file of zstd frames: the place of the frame, and bytes in it that are no text."""

    offset: int
    skip: int


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """Whole records, the place of their first byte, and the bad record after them, if there is one."""

    data: bytes | memoryview
    start: int
    bad: BadRecord | None = None


def chunks_of(file: FoundFile, reading: Reading, separator: bytes, what: str) -> Iterator[Chunk]:
    """Cut a file into chunks, without reading it where that is possible."""
    try:
        layout = layout_of(file, reading)
    except FileFailure as failure:
        yield failed_chunk(failure)
        return
    overlaps = overlaps_itself(separator)
    if layout.is_plain and not overlaps:
        yield from _plain_chunks(layout.start, file.bytes, reading.chunk_bytes)
    elif layout.frames and not overlaps:
        yield from _frame_chunks(layout, reading.chunk_bytes)
    else:
        cut = partial(_cut_from_front if overlaps else cut_at_last, separator)
        number = 0
        try:
            with decoded(file, reading, layout) as (blocks, start):
                for chunk in stream_chunks(blocks, start, reading, cut, separator, what):
                    number = chunk.number + 1
                    yield replace(chunk, encoding=layout.encoding)
        except FileFailure as failure:
            yield failed_chunk(failure, number)


def failed_chunk(failure: FileFailure, number: int = 0) -> Chunk:
    """The chunk of a file of which nothing more can be read."""
    return Chunk(number, 0, 0, b"", bad=failure.record(0, 0))


def chunk_bytes(chunk: Chunk, file: FoundFile, reading: Reading, separator: bytes) -> ChunkBytes:
    """Fetch the records that belong to a chunk."""
    if chunk.data is not None:
        return ChunkBytes(chunk.data, chunk.start, chunk.bad)
    try:
        return _fetched(chunk, file, reading, separator)
    except FileFailure as failure:
        return ChunkBytes(b"", chunk.start, failure.record(chunk.start, chunk.stop))


def _fetched(chunk: Chunk, file: FoundFile, reading: Reading, separator: bytes) -> ChunkBytes:
    """Read them from the file, as long as it is the one that was found."""
    place, size, width = chunk.start, chunk.stop - chunk.start, len(separator)
    most = size + reading.max_document_bytes + 2 * width
    held: bytes | bytearray = b""
    begin = (chunk.context.skip if chunk.context else 0) if chunk.number == 0 else -1
    end = -1
    with decoded_from(file, reading, place, size, chunk.context and chunk.context.offset) as stream:
        blocks = _UntilFailure(stream)
        for block in blocks:
            searched = max(size, len(held) - width + 1)
            held = _longer(held, block)
            if len(held) < size + width:
                continue
            if begin < 0 and (begin := _first_record(held, separator, size)) < 0:
                break
            end = held.find(separator, searched)
            if end >= 0 or len(held) > most:
                break
    if begin < 0 and (begin := _first_record(held, separator, size)) < 0:
        return ChunkBytes(b"", place)  # a failure belongs to the record in which it happens, so to an earlier chunk
    if blocks.failure is not None:
        end = max(begin, held.rfind(separator) + width)
        bad = blocks.failure.record(place + end, place + len(held), bytes(held[end:]))
        return ChunkBytes(memoryview(held)[begin:end], place + begin, bad)
    end = len(held) if end < 0 else end + width
    return ChunkBytes(memoryview(held)[begin:end], place + begin)


def stream_chunks(
    stream: DecodedBytes,
    start: int,
    reading: Reading,
    cut: Cut,
    separator: bytes | None,
    what: str,
    context: object = None,
) -> Iterator[Chunk]:
    """Give chunks of whole records of a stream that begins at `start`.

    Where they end depends on the content alone, not on the blocks it comes in. Without a separator nothing follows a
    record that is too long: where the next one begins is unknown.
    """
    blocks, limit = _UntilFailure(stream), reading.max_document_bytes
    data, at, target, number, ended = b"", 0, reading.chunk_bytes, 0, False
    while True:
        if not ended and len(data) - at < target:
            data, at = _filled(data[at:], blocks, target), 0
            ended = len(data) < target
        end = min(at + target, len(data))
        is_rest = ended and end == len(data)
        stop = end if is_rest and blocks.failure is None else cut(data, at, end)
        if stop > at:
            yield Chunk(number, start, start + stop - at, data[at:stop], context, source_stop=stream.taken)
            number, start, at, target = number + 1, start + stop - at, stop, reading.chunk_bytes
        elif not is_rest and target <= limit + len(separator or b"\r"):  # its end may be half a separator
            target *= 2  # looking again at each block would take quadratic time
        elif not is_rest:
            long = too_long(what, start, limit, data[at:])
            passed, data = _skip_record(data[at:], blocks, separator)
            yield Chunk(number, start, start + passed, b"", context, long)
            if separator is None:
                return
            number, start, at, target = number + 1, start + passed, 0, reading.chunk_bytes
        if is_rest:
            if blocks.failure is not None:
                bad = blocks.failure.record(start, start + len(data) - at, data[at:])
                yield Chunk(number, start, bad.stop, b"", context, bad)
            return


def _filled(data: bytes, blocks: Iterator[bytes], size: int) -> bytes:
    """At least `size` bytes, unless the stream ends."""
    pieces, held = [data], len(data)
    while held < size and (block := next(blocks, b"")):
        pieces.append(block)
        held += len(block)
    return b"".join(pieces)


class _UntilFailure:
    """Blocks up to the place where their file fails, if it does."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.failure: FileFailure | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self.blocks)
        except FileFailure as failure:
            self.failure = failure
            raise StopIteration from failure


def overlaps_itself(separator: bytes) -> bool:
    """Whether a separator can begin inside itself; then only reading from the front decides which ones count.

    >>> overlaps_itself(b"<|end|>"), overlaps_itself(b"\\n\\n")
    (False, True)
    """
    return any(separator.startswith(separator[shift:]) for shift in range(1, len(separator)))


def cut_at_last(separator: bytes, data: bytes, start: int, stop: int) -> int:
    """Where the last record that ends with a separator ends.

    >>> cut_at_last(b"\\n", b"a\\nb\\nc", 0, 5)
    4
    """
    at = data.rfind(separator, start, stop)
    return start if at < 0 else at + len(separator)


def _cut_from_front(separator: bytes, data: bytes, start: int, stop: int) -> int:
    """Count separators from the front.

    >>> _cut_from_front(b"\\n\\n", b"a\\n\\n\\n", 0, 4)
    3
    """
    return start + _core.cut_separated(np.frombuffer(data, np.uint8)[start:stop], separator.decode())


def _longer(held: bytes | bytearray, block: bytes) -> bytes | bytearray:
    """Append without copying the first block for nothing, nor all of them again and again."""
    if not held:
        return block
    if isinstance(held, bytes):
        held = bytearray(held)
    held += block
    return held


def _first_record(held: bytes | bytearray, separator: bytes, size: int) -> int:
    at = held.find(separator, 0, size + len(separator) - 1)
    return -1 if at < 0 else at + len(separator)


def plain_chunk(number: int, start: int, size: int, chunk_bytes: int) -> Chunk:
    """Chunk `number` of a plain file whose text is bytes [start, size).

    >>> [(chunk.start, chunk.stop) for chunk in (plain_chunk(0, 3, 25, 10), plain_chunk(2, 3, 25, 10))]
    [(3, 10), (20, 25)]
    """
    first = start // chunk_bytes
    return Chunk(number, max(start, (first + number) * chunk_bytes), min((first + number + 1) * chunk_bytes, size))


def _plain_chunks(start: int, size: int, chunk_bytes: int) -> Iterator[Chunk]:
    count = -(-size // chunk_bytes) - start // chunk_bytes if start < size else 0
    return (plain_chunk(number, start, size, chunk_bytes) for number in range(count))


def _frame_chunks(layout: StreamLayout, chunk_bytes: int) -> Iterator[Chunk]:
    number = start = stop = 0
    frame_start: FrameStart | None = None
    for frame in layout.frames:
        if stop - start >= max(chunk_bytes, layout.start + 1):
            yield Chunk(number, start, stop, context=frame_start, source_stop=frame.offset)
            number, start, frame_start = number + 1, stop, None
        frame_start = frame_start or FrameStart(frame.offset, 0 if number else layout.start)
        stop += frame.content_bytes
    if stop > start:
        yield Chunk(number, start, stop, context=frame_start)


def _skip_record(held: bytes, blocks: Iterator[bytes], separator: bytes | None) -> tuple[int, bytes]:
    """Read up to the next separator: (bytes skipped, what follows)."""
    if separator is None:
        return len(held), b""
    passed, keep = 0, len(separator) - 1
    while (at := held.find(separator)) < 0:
        gone = len(held) - keep
        block = next(blocks, b"")
        if not block:
            return passed + len(held), b""
        passed, held = passed + gone, held[gone:] + block
    return passed + at + len(separator), held[at + len(separator) :]
