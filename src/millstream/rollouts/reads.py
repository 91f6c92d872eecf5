"""Files of rollouts, or records in memory -> records as they are written there, some at a time, with their rows.

A msgpack file is maps end to end, each of them a record. A field with one number per token may be `bin`: little-endian
numbers in the type of the column (`token_ids` and `policy_version` uint32, `loss_mask` and `done` one byte of 0 or 1,
all others float32). The package msgpack is imported in this file only, and only when such a file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from glob import has_magic
from typing import Any

import numpy as np

from millstream.errors import MissingExtra, RecordError, SourceError
from millstream.rollouts import codec
from millstream.rollouts.block import TOKEN_COLUMNS, RolloutBlock
from millstream.rollouts.record import ALIASES, SIDES, holds_rollouts
from millstream.sources import (
    TOO_LONG,
    BadRecord,
    FileFailure,
    FoundFile,
    ParquetFormat,
    Patterns,
    Reading,
    binary_layout,
    check_gives_rows,
    decoded,
    discover,
    format_named,
    format_of,
    object_in,
    opened,
    read_at,
    read_file,
)

MOST_RECORDS = 2048
MOST_VALUES = 1 << 22
"""The most records that are held at a time, and the most values of theirs: Python needs 32 bytes for some."""
OWN_SUFFIXES = {codec.ROLLOUTS_SUFFIX: "rollouts", ".msgpack": "msgpack", ".mpk": "msgpack"}
"""Files that only hold rollouts, and what their format is called."""
_LIKE = '{"rollout_id": …, "group_id": …, "token_ids": […], "loss_mask": […], "reward": …, "finish": …}'
_AGAIN = "the file was not written or copied to its end: get it again"
_WHOLE = f"what stands before it is whole; {_AGAIN}"
_NOT_TEXT = 'convert it, e.g. `iconv -f latin1 -t utf-8`; or on_bad="skip" leaves such records out'
_KNOWN = f"known kinds: .jsonl .json .parquet {' '.join(OWN_SUFFIXES)}"
_BINARY = {"kept_ids": np.dtype("<u4")} | {
    name: np.dtype("|u1" if column.dtype is np.bool_ else column.dtype).newbyteorder("<")
    for name, column in TOKEN_COLUMNS.items()
    if column.dtype is not None
}
_MOST_ITEMS = 1 << 22
"""The longest list: its size is said before its items, and room for them is made at once."""


@dataclass(frozen=True, slots=True)
class Read:
    """Records as they were read, the row of each, and the rows that could not be."""

    records: RolloutBlock | list[Any]
    rows: list[int]
    bad: list[tuple[int, RecordError]] = field(default_factory=list)


def records_in_memory(source: Any) -> Iterable[Any] | None:
    """The records that a source is, if it is no name of files.

    >>> records_in_memory("a.jsonl"), records_in_memory(["a.jsonl", "b.jsonl"]), records_in_memory([{"reward": 1}])
    (None, None, [{'reward': 1}])
    """
    if (
        isinstance(source, RolloutBlock)
        or is_dataclass(source)
        or (isinstance(source, Mapping) and holds_rollouts(source))
    ):
        return [source]
    if isinstance(source, Iterator):
        return source
    if not isinstance(source, list | tuple):
        return None
    is_record = bool(source) and (isinstance(source[0], RolloutBlock | Mapping) or is_dataclass(source[0]))
    return source if is_record or not source else None


def reads_in_memory(records: Iterable[Any]) -> Iterator[Read]:
    """Records, some at a time; blocks among them by themselves."""
    row = 0
    for some in _gathered(records):
        yield Read(some, list(range(row, row + len(some))))
        row += len(some)


def _gathered(records: Iterable[Any]) -> Iterator[RolloutBlock | list[Any]]:
    held, values = list[Any](), 0
    for record in records:
        is_block = isinstance(record, RolloutBlock)
        if held and (is_block or len(held) >= MOST_RECORDS or values >= MOST_VALUES):
            yield held
            held, values = [], 0
        if is_block:
            yield record
        else:
            held.append(record)
            values += _values_in(record)
    if held:
        yield held


def _values_in(record: Any) -> int:
    """How much a record holds, about."""
    if not isinstance(record, Mapping):
        return 1
    return sum(len(value) for value in record.values() if isinstance(value, list | tuple))


def find_rollouts(
    source: Any, *, format: str | None = None, include: Patterns = (), exclude: Patterns = ()
) -> list[FoundFile]:
    """The files of a path, a pattern or a list of them. In folders, files without rows and `.json` are passed over."""
    own = format in OWN_SUFFIXES.values()
    found = discover(source, format="jsonl" if format is None or own else format, include=include, exclude=exclude)
    files = []
    for file in found.files:
        kind = format or OWN_SUFFIXES.get(file.path.suffix.lower()) or format_of(file.path)
        is_named = file.source == file.name or has_magic(file.source) or bool(include)
        if file.data is not None:
            files.append(file)
        elif kind is not None and (is_named or (kind != "json" and _gives_rows(kind))):
            files.append(replace(file, format=kind))
    if not files:
        raise SourceError(f"{found.root}: there is no file of rollouts", hint=_KNOWN)
    check_gives_rows(file for file in files if file.format not in OWN_SUFFIXES.values())
    return files


def _gives_rows(kind: str) -> bool:
    return kind in OWN_SUFFIXES.values() or bool(getattr(format_named(kind), "gives_rows", False))


def reads_of(file: FoundFile) -> Iterator[Read]:
    """The records of a file. One that fails in the middle ends with a bad row."""
    readers: dict[str, Callable[[FoundFile], Iterator[Read]]] = {
        "rollouts": _blocks,
        "msgpack": _msgpack_rows,
        ParquetFormat.name: _parquet_rows,
    }
    row = 0
    try:
        for read in readers.get(file.format, _json_rows)(file):
            yield read
            row = max([row, *(each + 1 for each in read.rows), *(each + 1 for each, _ in read.bad)])
    except FileFailure as failure:
        yield Read([], [], [(row, RecordError(failure.reason, failure.found, failure.hint))])
    except RecordError as error:
        yield Read([], [], [(row, error)])


def _json_rows(file: FoundFile) -> Iterator[Read]:
    """Rows as JSON objects."""
    for read in read_file(file, Reading(whole_rows=True)):
        records, rows, bad = [], [], [(each.row, _error(each)) for each in read.bad]
        for place, row in enumerate(read.block.rows.tolist()):
            try:
                records.append(object_in(read.block.text_of(place), like=_LIKE))
                rows.append(row)
            except RecordError as error:
                bad.append((row, error))
        yield from _pieces(records, rows, bad)


def _msgpack_rows(file: FoundFile) -> Iterator[Read]:
    """Maps; those before the one that cannot be read are given before its error."""
    failures: list[FileFailure] = []

    def readable() -> Iterator[Any]:
        try:
            yield from _read_msgpack(file, Reading())
        except FileFailure as failure:
            failures.append(failure)

    yield from reads_in_memory(readable())
    if failures:
        raise failures[0]


def _parquet_rows(file: FoundFile) -> Iterator[Read]:
    """Rows whose lists of numbers are views of whole columns."""
    format = ParquetFormat()
    for chunk in format.chunks(file, Reading(whole_rows=True)):
        if chunk.bad is not None:
            raise FileFailure(chunk.bad.reason, chunk.bad.found, chunk.bad.hint)
        yield from _pieces(list(format.rows(chunk, file)), list(range(chunk.start, chunk.stop)), [])


def _pieces(records: list[Any], rows: list[int], bad: list[tuple[int, RecordError]]) -> Iterator[Read]:
    for start in range(0, max(1, len(records)), MOST_RECORDS):
        some = slice(start, start + MOST_RECORDS)
        yield Read(records[some], rows[some], [] if start else bad)


def _blocks(file: FoundFile) -> Iterator[Read]:
    """The blocks of a `.rollouts` file: read, not mapped, since cutting a mapped file ends the process."""
    row = place = 0
    with opened(file) as handle:
        while place < file.bytes:
            size = codec.encoded_size(read_at(handle, file, place, codec.FRAME_BYTES))
            if size is None or size > file.bytes - place:
                raise RecordError("cut off", f"the block at byte {place:,} has no end", _WHOLE if row else _AGAIN)
            block = codec.decode(read_at(handle, file, place, size))
            yield Read(block, list(range(row, row + len(block))))
            row, place = row + len(block), place + size


def _error(bad: BadRecord) -> RecordError:
    hint = _NOT_TEXT if bad.reason.startswith("not UTF") else bad.hint
    return RecordError(bad.reason, bad.found, hint)


def _read_msgpack(file: FoundFile, reading: Reading) -> Iterator[Any]:
    """The objects of a file; one that cannot be read is a `FileFailure`, and the end."""
    packing = _msgpack()
    unpacker = packing.Unpacker(
        max_buffer_size=reading.max_document_bytes, max_array_len=_MOST_ITEMS, max_map_len=1 << 16, max_ext_len=1 << 16
    )
    fed = whole = 0
    with decoded(file, reading, binary_layout(file)) as (blocks, _):
        for block in blocks:
            try:
                unpacker.feed(block)
                fed += len(block)
                for record in unpacker:
                    whole = unpacker.tell()
                    yield _with_arrays(record)
            except packing.exceptions.BufferFull:
                found = f"a record has more than {reading.max_document_bytes:,} bytes"
                raise FileFailure(TOO_LONG, found, "raise max_document_bytes", has_place=False) from None
            except (packing.exceptions.UnpackException, ValueError, TypeError, MemoryError) as error:
                found = f"not msgpack after byte {whole:,}: {error or type(error).__name__}"
                raise FileFailure("damaged", found, has_place=False) from None
    if whole < fed:
        raise FileFailure("cut off", f"the last record, at byte {whole:,}, has no end", has_place=False)


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise MissingExtra.of("msgpack", "msgpack") from None
    return msgpack


def _with_arrays(record: Any) -> Any:
    """The record with arrays for fields that are bytes."""
    if not isinstance(record, Mapping):
        return record
    return {name: _array(value, name) if type(value) is bytes else value for name, value in record.items()}


def _array(value: bytes, name: Any) -> Any:
    dtype = _BINARY.get(ALIASES.get(name, SIDES.get(name, name)))
    return value if dtype is None or len(value) % dtype.itemsize else np.frombuffer(value, dtype)
