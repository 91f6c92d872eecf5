"""A column of an Arrow table, or its rows as JSON -> a ChunkRead. Shared by Parquet, Arrow files and Hugging Face
datasets. Whole rows travel as one column of structs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from millstream import _core
from millstream.sources.arrow_checks import arrow, pyarrow_errors, validated
from millstream.sources.chunk import (
    EMPTY,
    KEPT_BYTES,
    MAX_EXPANSION,
    BadRecord,
    Chunk,
    ChunkRead,
    FileFailure,
    Reading,
    empty_block,
    too_long,
)
from millstream.sources.decompress import MAGIC_BYTES, compression_of
from millstream.sources.native_columns import REPLACED, invalid
from millstream.sources.record_block import NO_BYTES, RecordBlock
from millstream.sources.source_file import FoundFile, opened, read_at


def check_column(schema: Any, reading: Reading) -> None:
    """See that a schema has the column of the text, or, for whole rows, that each column has a name of its own."""
    name = reading.text_field
    if reading.whole_rows:
        if twice := [name for name, count in Counter(schema.names).items() if count > 1]:
            found, hint = f"two columns are called {twice[0]!r}", "write the file again with other names"
            raise FileFailure("columns of one name", found, hint, has_place=False)
        return
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        has = ", ".join(repr(each) for each in schema.names[:8]) or "no columns"
        found = f"it has {has}" if not places else f"{len(places)} columns have this name"
        raise FileFailure(
            f"no text in {name!r}", found, "pass text_field= to name the column of the text", has_place=False
        )
    kind = schema.field(places[0]).type
    types = arrow().types
    value = kind.value_type if types.is_dictionary(kind) else kind
    if not any(is_one(value) for is_one in (types.is_string, types.is_large_string, types.is_binary, _is_view)):
        raise FileFailure(
            f"no text in {name!r}", f"it is a column of {kind}", "pass text_field= to name the column", has_place=False
        )


def column_of(table: Any, reading: Reading) -> Any:
    """The column of the text of a table or a batch of rows, or all its columns as one of structs. The buffers are as
    large as they must be; `validated` checks their content."""
    columns = table.columns if reading.whole_rows else [table.column(reading.text_field)]
    for column in columns:
        column.validate()
    return table.to_struct_array() if reading.whole_rows else columns[0]


def read_column(column: Any, file: str, reading: Reading) -> ChunkRead:
    """The texts of a column; row i of the column is row i of the chunk. Rows have no byte range. A column that is not
    valid is a `FileFailure`."""
    with pyarrow_errors():
        array = as_bytes(validated(column, reading.max_expansion))
    row_count = len(array)
    _, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int64, row_count + 1, 8 * array.offset) if row_count else np.zeros(1, np.int64)
    text = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)
    nowhere = np.full(row_count, NO_BYTES, np.int64)
    rows = np.arange(row_count, dtype=np.int64)
    block = RecordBlock(file, text[ends[0] : ends[-1]], ends[1:] - ends[0], rows, nowhere, nowhere)
    null = np.asarray(array.is_null())
    read = checked(block.select(~null), row_count, reading)
    reason, found = f"no text in {reading.text_field!r}", "it is null"
    hint = "pass text_field= to name the column of the text"
    if reading.whole_rows:
        reason, found, hint = "unreadable row", "a value in it has no JSON", "see whether its texts are UTF-8"
    nulls = [BadRecord(reason, row, NO_BYTES, NO_BYTES, found, hint) for row in np.flatnonzero(null).tolist()]
    return replace(read, bad=sorted([*read.bad, *nulls], key=lambda each: each.row))


def as_bytes(column: Any) -> Any:
    """Texts, or rows as JSON, in one array of bytes."""
    pa = arrow()
    if pa.types.is_struct(column.type):
        return as_json(column)
    made = []
    for array in getattr(column, "chunks", [column]):
        is_words = pa.types.is_dictionary(array.type)
        texts = (array.dictionary if is_words else array).cast(pa.large_binary())
        made.append(texts.take(array.indices) if is_words else texts)
    return pa.chunked_array(made, pa.large_binary()).combine_chunks()


def lost(failure: FileFailure, chunk: Chunk, file: FoundFile) -> ChunkRead:
    """What a chunk gives whose rows cannot be read: one bad record, which says how many there were."""
    found = f"{failure.found}; rows {chunk.start + 1:,} to {chunk.stop:,} are lost"
    bad = replace(failure.record(NO_BYTES, NO_BYTES), found=found)
    return ChunkRead(empty_block(file.name), chunk.stop - chunk.start, [bad])


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of a table as Python values; lists of numbers are views of their column."""
    columns = [_values(validated(column, MAX_EXPANSION).combine_chunks()) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    types = arrow().types
    kind = column.type
    if not (types.is_list(kind) or types.is_large_list(kind)) or column.values.null_count:
        return list(column.to_pylist())
    if not (
        types.is_integer(kind.value_type) or types.is_floating(kind.value_type) or types.is_boolean(kind.value_type)
    ):
        return list(column.to_pylist())
    numbers, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_pylist()
    spans = zip(ends[:-1], ends[1:], column.is_valid().to_pylist(), strict=True)
    return [numbers[start:end] if known else None for start, end, known in spans]


def raw_text(column: Any, row: int, max_expansion: int) -> bytes:
    """The bytes of one value of a column, or the JSON of one row."""
    with pyarrow_errors():
        text: bytes | None = as_bytes(validated(column, max_expansion).slice(row, 1))[0].as_py()
    return text or b""


def as_json(rows: Any) -> Any:
    """Structs as JSON objects; null where one cannot be read, such as one whose text is not UTF-8."""
    pa = arrow()
    try:
        texts: list[bytes | None] = [_json_of(row) for row in rows.to_pylist()]
    except Exception:  # as below
        texts = [_json_or_none(row) for row in rows]
    return pa.array(texts, pa.large_binary())


def _json_or_none(row: Any) -> bytes | None:
    try:
        return _json_of(row.as_py())
    except Exception:  # an invalid date, an unknown time zone, …: each type raises errors of its own
        return None


def _json_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, default=plain).encode()


def plain(value: object) -> object:
    """What JSON has for a value that it cannot hold: bytes are {"base64": …}, dates and the like their text.

    >>> plain(b"ab")
    {'base64': 'YWI='}
    """
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else str(value)


@contextmanager
def opened_by_arrow(file: FoundFile) -> Iterator[Any]:
    """A file that pyarrow can read; what it refuses is a failure of the file."""
    pa = arrow()
    with opened(file) as handle, pyarrow_errors(), open(handle, "rb", closefd=False) as stream:
        _refuse_packed(read_at(handle, file, 0, MAGIC_BYTES))
        yield pa.PythonFile(stream)


def checked(block: RecordBlock, row_count: int, reading: Reading) -> ChunkRead:
    """Apply the limits to texts that a library has cut: empty, too long, not UTF-8."""
    limit = reading.max_document_bytes
    repaired: Counter[str] = Counter()
    lengths = np.diff(block.ends, prepend=0)
    keep = (lengths > 0) & (lengths <= limit)
    long = replace(too_long("document", 0, limit), start=NO_BYTES, stop=NO_BYTES)
    bad = [replace(long, row=row) for row in block.rows[lengths > limit].tolist()]
    wrong = [index for index in _core.invalid_texts(block.text, block.ends) if keep[index]]
    if wrong and reading.on_invalid == "replace":
        texts = [block.bytes_of(index) for index in range(len(block))]
        for index in wrong:
            texts[index] = texts[index].decode(errors="replace").encode()
        block, repaired[REPLACED] = block.with_texts(texts), len(wrong)
    elif wrong:
        keep[wrong] = False
        bad += [replace(_invalid(block.bytes_of(index)), row=int(block.rows[index])) for index in wrong]
    empty = int((lengths == 0).sum())
    bad.sort(key=lambda each: each.row)
    return ChunkRead(block.select(keep), row_count, bad, {EMPTY: empty} if empty else {}, dict(repaired))


def _refuse_packed(head: bytes) -> None:
    kind = compression_of(head)
    if kind is not None:
        hint = "unpack it first: such files compress their columns themselves"
        raise FileFailure(
            "damaged", f"it is packed with {kind}, and can only be read as a whole", hint, has_place=False
        )


def _invalid(raw: bytes) -> BadRecord:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        bad = invalid(raw, 0, error)
        found = bad.found.replace("of the file", "of the text")
        return replace(bad, start=NO_BYTES, stop=NO_BYTES, found=found, raw=raw[:KEPT_BYTES])
    raise AssertionError("these bytes are valid")


def _is_view(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_large_binary(kind) or types.is_string_view(kind) or types.is_binary_view(kind))
