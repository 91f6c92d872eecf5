"""The columns of a native parser -> a ChunkRead: its odd rows are read again, and limits are applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from millstream.sources.chunk import BLANK, EMPTY, KEPT_BYTES, UTF_8, BadRecord, ChunkRead, Reading, too_long
from millstream.sources.record_block import RecordBlock, joined

Ints = NDArray[np.int64]
Native = tuple[NDArray[np.uint8], Ints, Ints, Ints, Ints, Ints, int, int, int]
"""What the parsers of `_core` give: text, ends, rows, starts, stops, odd rows (row, start, stop, ...), counts of rows,
blank lines and empty texts."""

REPLACED = "invalid bytes replaced"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is left out under every policy."""

    reason: str


Look = Callable[[bytes, int], "str | LeftOut | BadRecord"]
"""(raw bytes of a row, valid UTF-8; the place of the first) -> its text, or what is wrong."""


def finish(
    native: Native,
    data: bytes | memoryview,
    base: int,
    file: str,
    reading: Reading,
    look: Look,
    *,
    what: str = "line",
    encoding: str = UTF_8,
) -> ChunkRead:
    """Read the odd rows of `data` again, which begins at place `base`, and apply the limits."""
    text, ends, rows, starts, stops, odd, row_count, blank, empty = native
    block = RecordBlock(file, text, ends, rows, starts + base, stops + base)
    skipped = Counter({BLANK: blank, EMPTY: empty})
    repaired: Counter[str] = Counter()
    bad: list[BadRecord] = []
    limit = reading.max_document_bytes
    long = block.stops - block.starts > limit
    if long.any():
        for place in np.flatnonzero(long).tolist():
            row, start, _ = block.origin(place)
            bad.append(replace(too_long(what, start, limit, data[start - base :]), row=row))
        block = block.select(~long)
    added = []
    for row, start, stop in odd.reshape(-1, 3).tolist():
        raw = bytes(data[start:stop])
        seen: str | LeftOut | BadRecord
        if stop - start > limit:
            seen = too_long(what, base + start, limit, raw)
        else:
            seen = decoded_look(raw, base + start, reading, look, repaired, encoding)
        if isinstance(seen, LeftOut):
            skipped[seen.reason] += 1
        elif isinstance(seen, BadRecord):
            bad.append(replace(seen, row=row))
        else:
            added.append((row, base + start, base + stop, seen.encode()))
    if added:
        block = _with(block, added)
    bad.sort(key=lambda each: each.row)
    return ChunkRead(block, row_count, bad, dict(+skipped), dict(+repaired))


def decoded_look(
    raw: bytes, start: int, reading: Reading, look: Look, repaired: Counter[str], encoding: str = UTF_8
) -> str | LeftOut | BadRecord:
    """Apply the policy for invalid bytes, then look. `encoding` is what `raw` was converted from."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        if reading.on_invalid == "reject":
            return invalid(raw, start, error, encoding)
        seen = look(raw.decode(errors="replace").encode(), start)
        repaired[REPLACED] += isinstance(seen, str)  # what is left out all the same is counted as that
        return seen
    return look(raw, start)


def invalid(raw: bytes, start: int, error: UnicodeDecodeError, encoding: str = UTF_8) -> BadRecord:
    """Say which byte is not valid. In a text that was converted it is a mark for what was invalid before.

    >>> try: b"ab\\xff".decode()
    ... except UnicodeDecodeError as caught: error = caught
    >>> invalid(b"ab\\xff", 100, error).found
    'byte 102 of the file is 0xff (invalid start byte)'
    >>> invalid(b"ab\\xff", 100, error, "utf-16-le").found
    'what stands at byte 102 of the text, counted as UTF-8, is no character of this encoding'
    """
    if encoding == UTF_8:
        found = f"byte {start + error.start} of the file is 0x{raw[error.start]:02x} ({error.reason})"
        hint = 'convert it, e.g. `iconv -f latin1 -t utf-8`; or pass encoding= or on_invalid="replace"'
    else:
        found = (
            f"what stands at byte {start + error.start} of the text, counted as UTF-8, is no character of this encoding"
        )
        hint = 'make the file again from what it was converted from; or pass encoding= or on_invalid="replace"'
    return BadRecord(f"not {encoding.upper()}", 0, start, start + len(raw), found, hint, raw[:KEPT_BYTES])


def _with(block: RecordBlock, added: list[tuple[int, int, int, bytes]]) -> RecordBlock:
    """The records of a block and some more, in the order of their rows."""
    texts = (block.bytes_of(index) for index in range(len(block)))
    kept = zip(block.rows.tolist(), block.starts.tolist(), block.stops.tolist(), texts, strict=True)
    rows, starts, stops, all_texts = zip(*sorted([*kept, *added]), strict=True)
    origin = (np.array(column, np.int64) for column in (rows, starts, stops))
    return RecordBlock(block.file, *joined(all_texts), *origin)
