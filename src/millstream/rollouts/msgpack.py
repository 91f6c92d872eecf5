"""Files of msgpack maps, one after the other, each of them a record.

A field with one number per token may be `bin`: the numbers as they lie in memory, little-endian, in the type of the
column (`token_ids` and `policy_version` uint32, `loss_mask` and `done` one byte of 0 or 1, all others float32).
The package msgpack is imported in this file only, and only when such a file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from millstream.errors import MissingExtra
from millstream.rollouts.columns import TOKEN_COLUMNS
from millstream.rollouts.fields import ALIASES, SIDES
from millstream.sources import TOO_LONG, FileFailure, FoundFile, Reading, binary_layout, decoded

_BINARY = {"kept_ids": np.dtype("<u4")} | {
    name: np.dtype("|u1" if column.dtype is np.bool_ else column.dtype).newbyteorder("<")
    for name, column in TOKEN_COLUMNS.items()
    if column.dtype is not None
}
MOST_ITEMS = 1 << 22
"""The longest list: its size is said before its items, and room for them is made at once."""


def read_msgpack(file: FoundFile, reading: Reading) -> Iterator[Any]:
    """The objects of a file; one that cannot be read is a `FileFailure`, and the end."""
    packing = _msgpack()
    unpacker = packing.Unpacker(
        max_buffer_size=reading.max_document_bytes, max_array_len=MOST_ITEMS, max_map_len=1 << 16, max_ext_len=1 << 16
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
                found = f"not msgpack behind byte {whole:,}: {error or type(error).__name__}"
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
