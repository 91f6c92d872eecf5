"""Part: what became of one chunk. Its tokens, the origin of each document, and everything that was left out.

A part can be written down and read again (docs/reference/formats.md): it is what the cache keeps, what a killed run
finds again and what a cluster sends back. A part that was damaged is not a part: it is made anew.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import CompressionError, MillstreamError, MissingExtra
from millstream.sources import FLEETING, BadRecord
from millstream.storage import ZSTD_LEVEL, FileCache, compress, decompress, has_zstd

log = logging.getLogger("millstream.preparation")

MAGIC = b"\x89MLSP\r\n\x1a"
VERSION = 1
MOST_BYTES = 1 << 40
_DTYPES = {each: np.dtype(each) for each in ("|u1", "<u2", "<u4", "<u8", "<i4", "<i8")}


class DamagedPart(MillstreamError):  # noqa: N818 - reads as a claim
    """Bytes that are not, or no longer, a part."""


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that a rule of the recipe left out, and as much of its text as the report shows."""

    reason: str
    row: int
    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """The documents of one chunk and what was left out. Rows count from the start of the chunk.

    `origins` holds (row, start, stop) per document, `keys` one array per deduplicating step, a row per document.
    `skipped` and `changed` count by reason what was left out, or mended, under every policy; `reasons` counts what
    rules of the recipe dropped, and `rejected` holds some or all of those records. `source_stop` says how much of
    the file lies before the end of the chunk.
    """

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    origins: NDArray[np.int64]
    rows: int
    source_bytes: int
    source_stop: int
    text_bytes: int
    bad: list[BadRecord] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    keys: list[NDArray[np.uint64]] = field(default_factory=list)

    @property
    def lasts(self) -> bool:
        """Whether the same file would give it again; not, if the file was gone, changed or locked just then."""
        return FLEETING.isdisjoint(bad.reason for bad in self.bad)


def encode_part(part: Part, level: int | None = ZSTD_LEVEL) -> bytes:
    """Write a part down: a magic number, the size of the head, the head as JSON, and the columns.

    Where there is no zstd the columns are plain: a part is internal, and its columns are read either way.

    >>> ends, origins = np.array([2]), np.array([[0, 0, 5]])
    >>> part = Part(np.array([7, 8], np.uint16), ends, origins, rows=1, source_bytes=5, source_stop=5, text_bytes=5)
    >>> decode_part(encode_part(part)).tokens.tolist()
    [7, 8]
    """
    level = level if has_zstd() else None
    columns: dict[str, NDArray[Any]] = {"tokens": part.tokens, "ends": part.ends, "origins": part.origins}
    columns |= {f"keys.{step}": keys for step, keys in enumerate(part.keys)}
    columns["notes"] = np.frombuffer(_compact(_notes(part)), np.uint8)
    packed = {name: _pack(column, level) for name, column in columns.items()}
    shapes = [[name, column.dtype.str, list(column.shape), len(packed[name])] for name, column in columns.items()]
    head = _compact({"version": VERSION, "columns": shapes, "packed": level is not None})
    return b"".join([MAGIC, len(head).to_bytes(8, "little"), head, *packed.values()])


def decode_part(data: bytes) -> Part:
    """Read what `encode_part` wrote, and believe none of it.

    >>> decode_part(b"something else")
    Traceback (most recent call last):
    millstream.preparation.part.DamagedPart: not a part
    """
    if data[:8] != MAGIC:
        raise DamagedPart("not a part")
    try:
        return _part(_columns(data))
    except (CompressionError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DamagedPart(f"a damaged part: {error}") from None


def _notes(part: Part) -> dict[str, Any]:
    bad = [
        [b.reason, b.row, b.start, b.stop, b.found, b.hint, None if b.raw is None else b.raw.decode("latin-1")]
        for b in part.bad
    ]
    return {
        "rows": part.rows,
        "source_bytes": part.source_bytes,
        "source_stop": part.source_stop,
        "text_bytes": part.text_bytes,
        "bad": bad,
        "skipped": part.skipped,
        "rejected": [[r.reason, r.row, r.start, r.stop, r.text] for r in part.rejected],
        "reasons": part.reasons,
        "changed": part.changed,
    }


def _part(columns: Mapping[str, NDArray[Any]]) -> Part:
    notes = json.loads(columns["notes"].tobytes())
    tokens, ends, origins = columns["tokens"], columns["ends"], columns["origins"].reshape(-1, 3)
    if len(ends) != len(origins) or (len(ends) and ends[-1] != len(tokens)) or (np.diff(ends, prepend=0) < 0).any():
        raise ValueError("its documents do not fit its tokens")
    keys = [column for name, column in columns.items() if name.startswith("keys.")]
    if any(len(each) != len(ends) for each in keys):
        raise ValueError("its keys do not fit its documents")
    return Part(
        tokens=tokens,
        ends=ends,
        origins=origins,
        rows=int(notes["rows"]),
        source_bytes=int(notes["source_bytes"]),
        source_stop=int(notes["source_stop"]),
        text_bytes=int(notes["text_bytes"]),
        bad=[_bad(*each) for each in notes["bad"]],
        skipped=dict(notes["skipped"]),
        rejected=[RejectedRecord(*each) for each in notes["rejected"]],
        reasons=dict(notes["reasons"]),
        changed=dict(notes["changed"]),
        keys=keys,
    )


def _bad(reason: str, row: int, start: int, stop: int, found: str, hint: str | None, raw: str | None) -> BadRecord:
    return BadRecord(reason, row, start, stop, found, hint, None if raw is None else raw.encode("latin-1"))


def _pack(column: NDArray[Any], level: int | None) -> bytes:
    raw = np.ascontiguousarray(column)
    return raw.tobytes() if level is None else compress(raw, level)


def _columns(data: bytes) -> dict[str, NDArray[Any]]:
    size = int.from_bytes(data[8:16], "little")
    head = json.loads(data[16 : 16 + size])
    if head["version"] != VERSION:
        raise ValueError(f"version {head['version']}")
    place, columns = 16 + size, {}
    for name, dtype, shape, length in head["columns"]:
        raw = data[place : place + length]
        place += length
        if head["packed"]:
            raw = decompress(raw, limit=MOST_BYTES)
        columns[name] = np.frombuffer(raw, _DTYPES[dtype]).reshape(shape)
    if place != len(data):
        raise ValueError("bytes are missing or left over")
    return columns


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class PartCache(FileCache):
    """Parts by name, packed; a file that does not read as a part is removed and counts as absent."""

    def __init__(self, folder: Path, *, level: int | None = ZSTD_LEVEL) -> None:
        super().__init__(folder)
        self.level = level

    def get(self, key: str) -> Part | None:
        """Find a part, or None."""
        path = self.path_of(key, ".part")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            part = decode_part(data)
        except DamagedPart as error:
            log.warning("%s: %s; it is made again", path, error.message)
            path.unlink(missing_ok=True)
            return None
        except MissingExtra:  # packed where there was a zstd
            return None
        os.utime(path)  # what was used last is pruned last
        return part

    def has(self, key: str | None) -> bool:
        """Whether a part is here (it may still turn out to be damaged)."""
        return key is not None and self.path_of(key, ".part").exists()

    def put(self, key: str, part: Part) -> None:
        """Keep a part."""
        self.bytes_written += self.write(self.path_of(key, ".part"), encode_part(part, self.level))
