"""A column of an Arrow table -> a ChunkRead. Shared by Parquet, Arrow files and Hugging Face datasets.

pyarrow is imported in this file only, and only when such a file is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from millstream import _core
from millstream.errors import MissingExtra
from millstream.sources.chunk import KEPT_BYTES, BadRecord, ChunkRead, Reading
from millstream.sources.decompress import MAGIC_BYTES, compression_of
from millstream.sources.failure import EMPTY, FileFailure, too_long
from millstream.sources.found import FoundFile, opened, read_at
from millstream.sources.parsed import REPLACED, invalid
from millstream.sources.record import NO_BYTES, RecordBlock


def arrow() -> Any:
    """The package pyarrow."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra.of("pyarrow", "parquet") from None
    return pyarrow


def check_column(schema: Any, name: str) -> None:
    """See that a schema has one column of texts with this name."""
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


def read_column(column: Any, file: str, reading: Reading) -> ChunkRead:
    """The texts of a column; row i of the column is row i of the chunk. Rows have no byte range."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    array = column.cast(pa.large_binary()) if not pa.types.is_large_binary(column.type) else column
    row_count = len(array)
    _, offsets, values = array.buffers()
    ends = np.frombuffer(offsets, np.int64, row_count + 1, 8 * array.offset) if row_count else np.zeros(1, np.int64)
    text = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)
    nowhere = np.full(row_count, NO_BYTES, np.int64)
    rows = np.arange(row_count, dtype=np.int64)
    block = RecordBlock(file, text[ends[0] : ends[-1]], ends[1:] - ends[0], rows, nowhere, nowhere)
    null = np.asarray(array.is_null())
    read = checked(block.select(~null), row_count, reading)
    reason, hint = f"no text in {reading.text_field!r}", "pass text_field= to name the column of the text"
    nulls = [BadRecord(reason, row, NO_BYTES, NO_BYTES, "it is null", hint) for row in np.flatnonzero(null).tolist()]
    return replace(read, bad=sorted([*read.bad, *nulls], key=lambda each: each.row))


def raw_text(value: Any) -> bytes:
    """The bytes of one value of a column."""
    text = value.as_py()
    return text if isinstance(text, bytes) else str(text or "").encode()


@contextmanager
def opened_by_arrow(file: FoundFile) -> Iterator[Any]:
    """A file that pyarrow can read; what it refuses is a failure of the file."""
    pa = arrow()
    with opened(file) as handle:
        try:
            with open(handle, "rb", closefd=False) as stream:
                _refuse_packed(read_at(handle, file, 0, MAGIC_BYTES))
                yield pa.PythonFile(stream)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise FileFailure("damaged", str(error).splitlines()[0], has_place=False) from error


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
