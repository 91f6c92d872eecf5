"""`.json` files: one array of objects, as instruction data is often published, or JSON lines under another name.

A comma between two elements is the end of a line: chunks are cut there by a native scan from the front, as those of
tables are, and handed on as lines, byte for byte at their places. From there on everything is as with JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from millstream import _core
from millstream.sources.chunk import KEPT_BYTES, BadRecord, Chunk, Reading
from millstream.sources.failure import FileFailure
from millstream.sources.found import FoundFile
from millstream.sources.jsonl import JsonlFormat
from millstream.sources.separated import failed_chunk, stream_chunks
from millstream.sources.stream import Decoded, Layout, decoded, layout_of

_SPACE = b" \t\r\n"
_BLANK = b" \t\r"
"""What may stand behind the last element: then it is no line of its own."""
_CONVERT = "convert it to JSON lines, one object per line, or to one array of objects"


class JsonFormat(JsonlFormat):
    """One element of an array is one record; a file with an object per line is read as JSON lines."""

    name = "json"
    suffixes = (".json",)

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Cut an array between its elements, and lines by byte ranges."""
        try:
            layout = layout_of(file, reading)
            with decoded(file, reading, layout) as (blocks, _):
                first_line = _first_line(blocks, reading.max_document_bytes)
        except FileFailure as failure:
            yield failed_chunk(failure)
            return
        if first_line.startswith(b"["):
            yield from _array_chunks(file, reading, layout)
        elif not first_line or (first_line.startswith(b"{") and first_line.endswith(b"}")):
            yield from super().chunks(file, reading)
        else:
            found = f"it begins with {first_line[:40].decode(errors='replace')!r}"
            yield failed_chunk(FileFailure("neither an array nor JSON lines", found, _CONVERT, has_place=False))

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """One element, or one line, again."""
        return super().raw(file, reading, row, start, stop).strip(_SPACE)


def _first_line(blocks: Decoded, limit: int) -> bytes:
    """The first line that is not blank, without the space around it; only the beginning of an array."""
    held = bytearray()
    try:
        for block in blocks:
            more = block if held else block.lstrip(_SPACE)
            held += more
            if held and (held[0] != ord("{") or b"\n" in more or len(held) > limit):
                break
    except FileFailure:
        pass  # whoever reads the stream meets it again
    return bytes(held.partition(b"\n")[0].rstrip(_SPACE))


def _array_chunks(file: FoundFile, reading: Reading, layout: Layout) -> Iterator[Chunk]:
    """Whole elements, as lines; a bad record comes behind them unless the array ends, and the file with it."""
    number = place = 0
    ended = False
    try:
        with decoded(file, reading, layout) as (blocks, start):
            start = _step_inside(blocks, start)
            for chunk in stream_chunks(blocks, start, reading, _cut, None, "element"):
                number, place = chunk.number + 1, chunk.stop
                if chunk.bad is None:
                    chunk, ended = _as_lines(chunk, behind=ended)
                yield replace(chunk, encoding=layout.encoding)
                if chunk.bad is not None:
                    return
    except FileFailure as failure:
        yield failed_chunk(failure, number)
        return
    if not ended:
        yield Chunk(number, place, place, b"", bad=_cut_off(b"", place))


def _step_inside(blocks: Decoded, start: int) -> int:
    """Leave out everything up to the bracket that begins the array; gives the place behind it."""
    for block in blocks:
        at = block.find(b"[") + 1
        if at:
            if block[at:]:
                blocks.put_back(block[at:])
            return start + at
        start += len(block)
    return start


def _cut(data: bytes, start: int, stop: int) -> int:
    return start + _core.cut_array(np.frombuffer(data, np.uint8)[start:stop])


def _as_lines(chunk: Chunk, *, behind: bool) -> tuple[Chunk, bool]:
    """The elements of a chunk as lines, and whether the array has ended; with `behind` it had before."""
    data: bytes = chunk.data
    lines, whole, stop, is_open = (b"", 0, 0, False) if behind else _core.array_lines(np.frombuffer(data, np.uint8))
    if is_open:
        return replace(chunk, data=lines[:whole], bad=_cut_off(data[whole:], chunk.start + whole)), False
    if not stop and not behind:
        return replace(chunk, data=lines.rstrip(_BLANK)), False
    bad = None
    if rest := data[stop:].strip(_SPACE):
        at = chunk.start + data.index(rest, stop)
        found = f"something stands behind the end of the array, at byte {at:,}"
        bad = BadRecord("not one array", 0, at, at + len(rest), found, _CONVERT, rest[:KEPT_BYTES])
    return replace(chunk, data=lines[: max(0, stop - 1)].rstrip(_BLANK), bad=bad), True


def _cut_off(raw: bytes, start: int) -> BadRecord:
    stop = start + len(raw)
    found = f"the array has no end; what can be read of it ends at byte {stop:,}"
    return BadRecord("cut off", 0, start, stop, found, "copy or download the file again", raw[:KEPT_BYTES] or None)
