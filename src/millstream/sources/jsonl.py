"""JSON lines, one object per line, and `.json` files: one array of objects, or JSON lines under another name.

Nearly all lines are read natively. What is rare or wrong is read again here, by Python's own parser, which also
words what is wrong. Blank lines and empty texts are left out and counted. In an array the comma between two elements
ends a line: a native scan from the front cuts chunks there. Each chunk is then read as lines, at their places.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from millstream import _core
from millstream.errors import RecordError
from millstream.sources.chunk import BLANK, EMPTY, KEPT_BYTES, UTF_8, BadRecord, Chunk, ChunkRead, FileFailure, Reading
from millstream.sources.decoding import DecodedBytes, StreamLayout, decoded, layout_of, raw_bytes
from millstream.sources.native_columns import LeftOut, finish
from millstream.sources.separated import chunk_bytes, chunks_of, failed_chunk, stream_chunks
from millstream.sources.source_file import FoundFile

_SPACE = b" \t\r\n"
_BLANK = b" \t\r"
"""What may follow the last element without being a line of its own."""
_CONVERT = "convert it to JSON lines, one object per line, or to one array of objects"


class JsonlFormat:
    """One JSON object per line; `text_field` names the text."""

    name = "jsonl"
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")
    gives_rows = True

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Cut a file by byte ranges."""
        return chunks_of(file, reading, b"\n", "line")

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read the lines of a chunk."""
        found = chunk_bytes(chunk, file, reading, b"\n")
        return read_lines(found.data, found.start, file.name, reading, chunk.encoding).ending_badly(found.bad)

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """One line again."""
        return raw_bytes(file, reading, start, stop)


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


def read_lines(data: bytes | memoryview, start: int, file: str, reading: Reading, encoding: str = UTF_8) -> ChunkRead:
    """Read whole lines that begin at place `start` of a file and were converted from `encoding`.

    >>> read = read_lines(b'{"text": "one"}\\n\\n{"text": "two", "id": 2}\\n', 0, "a.jsonl", Reading())
    >>> for record in read.block:
    ...     print(record)
    Record(text='one', file='a.jsonl', row=0, start=0, stop=15)
    Record(text='two', file='a.jsonl', row=2, start=17, stop=41)
    >>> read.rows, read.skipped
    (3, {'blank line': 1})
    """
    if reading.whole_rows:
        return _whole_lines(data, start, file, reading, encoding)
    native = _core.parse_jsonl(np.frombuffer(data, np.uint8), reading.text_field)

    def look(raw: bytes, at: int) -> str | LeftOut | BadRecord:
        return text_of(raw, at, reading.text_field)

    return finish(native, data, start, file, reading, look, encoding=encoding)


def text_of(raw: bytes, start: int, name: str) -> str | LeftOut | BadRecord:
    """The text in field `name` of one JSON object, or what is wrong with it.

    >>> text_of(b'{"a": "x"}', 0, "a"), text_of(b'{"a": 7}', 0, "a").found
    ('x', 'it is a JSON number')
    """

    def bad(reason: str, found: str, hint: str | None = None) -> BadRecord:
        return BadRecord(reason, 0, start, start + len(raw), found, hint, raw[:KEPT_BYTES])

    if not raw.strip():
        return LeftOut(BLANK)
    try:
        value = object_in(raw.decode(), like=f'{{"{name}": "…"}}')
    except RecordError as error:
        return bad(error.reason, error.found, error.hint)
    text = value.get(name)
    if not isinstance(text, str):
        has = ", ".join(repr(key) for key in list(value)[:8]) or "no fields"
        found = f"it has {has}" if name not in value else f"it is a JSON {kind_of(text)}"
        return bad(f"no text in {name!r}", found, "pass text_field= to name it")
    if not text:
        return LeftOut(EMPTY)
    if not is_unicode(text):
        return bad("not Unicode", "half of a surrogate pair (\\ud800 to \\udfff alone) is not a character")
    return text


def object_in(line: str, *, like: str) -> dict[str, Any]:
    """The object that a line holds, which should be one `like` this.

    >>> object_in("[7]", like='{"text": "…"}')
    Traceback (most recent call last):
    millstream.errors.RecordError: not an object: a JSON array: '[7]'
      hint: each row looks like {"text": "…"}
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        found = f"{wording(error)}; it begins {short(line)}"
        raise RecordError("not JSON", found, hint="each line, or element of an array, is one object") from None
    if not isinstance(value, dict):
        raise RecordError(
            "not an object", f"a JSON {kind_of(value)}: {short(line)}", hint=f"each row looks like {like}"
        )
    return value


def wording(error: ValueError | RecursionError) -> str:
    """What is wrong with JSON, where Python's parser speaks of itself.

    >>> wording(RecursionError("maximum recursion depth exceeded"))
    'it is nested too deep'
    """
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error) if isinstance(error, json.JSONDecodeError | UnicodeError) else "a number has too many digits"


def _whole_lines(data: bytes | memoryview, start: int, file: str, reading: Reading, encoding: str) -> ChunkRead:
    """Lines as they stand; those of white space only are blank, as they are where one field is read."""

    def look(raw: bytes, at: int) -> str | LeftOut | BadRecord:
        return raw.decode() if raw.strip() else LeftOut(BLANK)

    native = _core.parse_lines(np.frombuffer(data, np.uint8), "\n", True)
    read = finish(native, data, start, file, reading, look, encoding=encoding)
    keep = np.ones(len(read.block), np.bool_)
    for index in np.flatnonzero(read.block.text[read.block.begins] <= ord(" ")).tolist():
        keep[index] = bool(read.block.bytes_of(index).strip())
    blank = sum(read.skipped.values()) + int((~keep).sum())  # a line without bytes is counted as empty there
    return replace(read, block=read.block.select(keep), skipped={BLANK: blank} if blank else {})


def is_unicode(text: str) -> bool:
    """JSON can spell half a surrogate pair; no tokenizer can encode it without changing it.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind_of(value: object) -> str:
    """What JSON calls a value.

    >>> kind_of([]), kind_of(None)
    ('array', 'null')
    """
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def short(line: str, width: int = 60) -> str:
    """The beginning of a text, in quotes.

    >>> short("abcdef", width=3)
    "'abc…'"
    """
    return repr(line if len(line) <= width else line[:width] + "…")


def _first_line(blocks: DecodedBytes, limit: int) -> bytes:
    """The first line that is not blank, without the space around it; only the beginning of an array."""
    held = bytearray()
    try:
        for block in blocks:
            more = block if held else block.lstrip(_SPACE)
            held += more
            if held and (held[0] != ord("{") or b"\n" in more or len(held) > limit):
                break
    except FileFailure:
        pass  # reading the stream raises it again
    return bytes(held.partition(b"\n")[0].rstrip(_SPACE))


def _array_chunks(file: FoundFile, reading: Reading, layout: StreamLayout) -> Iterator[Chunk]:
    """Whole elements, as lines, then a bad record unless the array ends where the file ends."""
    number = place = 0
    ended = False
    try:
        with decoded(file, reading, layout) as (blocks, start):
            start = _step_inside(blocks, start)
            for chunk in stream_chunks(blocks, start, reading, _cut, None, "element"):
                number, place = chunk.number + 1, chunk.stop
                if chunk.bad is None:
                    chunk, ended = _as_lines(chunk, ended=ended)
                yield replace(chunk, encoding=layout.encoding)
                if chunk.bad is not None:
                    return
    except FileFailure as failure:
        yield failed_chunk(failure, number)
        return
    if not ended:
        yield Chunk(number, place, place, b"", bad=_cut_off(b"", place))


def _step_inside(blocks: DecodedBytes, start: int) -> int:
    """Skip everything up to the bracket that begins the array; the place after it."""
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


def _as_lines(chunk: Chunk, *, ended: bool) -> tuple[Chunk, bool]:
    """The elements of a chunk as lines, and whether the array has ended; with `ended` it had before."""
    data: bytes = chunk.data
    lines, whole, stop, is_open = (b"", 0, 0, False) if ended else _core.array_lines(np.frombuffer(data, np.uint8))
    if is_open:
        return replace(chunk, data=lines[:whole], bad=_cut_off(data[whole:], chunk.start + whole)), False
    if not stop and not ended:
        return replace(chunk, data=lines.rstrip(_BLANK)), False
    bad = None
    if rest := data[stop:].strip(_SPACE):
        at = chunk.start + data.index(rest, stop)
        found = f"something follows the end of the array, at byte {at:,}"
        bad = BadRecord("not one array", 0, at, at + len(rest), found, _CONVERT, rest[:KEPT_BYTES])
    return replace(chunk, data=lines[: max(0, stop - 1)].rstrip(_BLANK), bad=bad), True


def _cut_off(raw: bytes, start: int) -> BadRecord:
    stop = start + len(raw)
    found = f"the array has no end; what can be read of it ends at byte {stop:,}"
    return BadRecord("cut off", 0, start, stop, found, "copy or download the file again", raw[:KEPT_BYTES] or None)
