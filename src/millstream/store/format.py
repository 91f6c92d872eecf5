"""Frames, dtypes and checksums: the Python front of the native parser (docs/reference/formats.md).

(path) -> frame. A file is believed only after its frame agrees with its size.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN, disk
from millstream.storage import xxh64 as xxh64_of_bytes
from millstream.store.weights import ID_BITS, WEIGHTED

FRAME_BYTES = 64
BLOCK_BYTES = 1 << 20
MAGIC = b"\x89MLS"
DTYPES = {"uint16": 1, "uint32": 2, "int32": 3, "weighted": 4}

Tokens = NDArray[Any]
Words = NDArray[np.uint64]


def token_dtype(name: str) -> np.dtype[Any]:
    """Turn a dtype's name into numpy's dtype (the core builds on little-endian machines only).

    >>> token_dtype("uint16"), token_dtype("weighted")
    (dtype('uint16'), dtype('uint32'))
    """
    if name not in DTYPES:
        raise StoreError(f"dtype {name!r} cannot be stored", hint=f"use one of {', '.join(DTYPES)}")
    return np.dtype(np.uint32 if name == WEIGHTED else name)


def id_limit(dtype: str) -> int:
    """Say 1 + the largest id that a dtype can hold.

    >>> id_limit("uint16"), id_limit("int32"), id_limit("weighted")
    (65536, 2147483648, 16777216)
    """
    return 1 << ID_BITS if dtype == WEIGHTED else int(np.iinfo(token_dtype(dtype)).max) + 1


def index_kind(dtype: str) -> str:
    """Say which kind of document index belongs to tokens of a dtype: weighted ones have weighed documents."""
    return "E" if dtype == WEIGHTED else "D"


def words_of_an_end(dtype: str) -> int:
    """How many words the index has for a document: its end and, if tokens have weights, their sum.

    >>> words_of_an_end("uint16"), words_of_an_end("weighted")
    (1, 2)
    """
    return 2 if dtype == WEIGHTED else 1


def shard_name(number: int) -> str:
    """Name the shard's files, without their ending.

    >>> shard_name(7), shard_name(1234567)
    ('00007', '1234567')
    """
    return f"{number:05d}"


def xxh64(data: bytes | NDArray[Any]) -> int:
    """Hash bytes, or the bytes of an array.

    >>> hex(xxh64(b"abc"))
    '0x44bc2cf5ad770999'
    """
    if isinstance(data, bytes):
        return xxh64_of_bytes(np.frombuffer(data, np.uint8))
    return xxh64_of_bytes(np.ascontiguousarray(data).reshape(-1).view(np.uint8))


def hash_blocks(data: NDArray[np.uint8], block_bytes: int) -> Words:
    """Hash each block of `data`; the last may be short.

    >>> hash_blocks(np.zeros(10, np.uint8), 4).size
    3
    """
    out = np.empty(-(-data.size // block_bytes), np.uint64)
    _core.hash_blocks(data, block_bytes, out)
    return out


@dataclass(frozen=True)
class Frame:
    """The 64 bytes at the start of a file: what its body is and how many entries it has."""

    kind: str
    count: int
    bound: int
    tag: int
    documents: int = 0
    dtype: str = ""
    block: int = 0

    def encode(self) -> bytes:
        """Give the 64 bytes.

        >>> Frame("D", count=2, bound=9, tag=1).encode()[:8]
        b'\\x89MLSD\\r\\n\\x1a'
        """
        code = DTYPES[self.dtype] if self.dtype else 0
        return _core.encode_frame(self.kind, code, self.count, self.bound, self.tag, self.documents, self.block)

    @property
    def entry(self) -> np.dtype[Any]:
        """The dtype of one entry of the body."""
        return token_dtype(self.dtype) if self.kind in "TZ" else np.dtype("<u8")

    @property
    def words(self) -> int:
        """The number of elements of the mapped body: a row of a table has eight, an origin three, a weighed end two."""
        return self.count * {"S": 8, "O": 3, "E": 2}.get(self.kind, 1)


def parse_frame(path: Path, first_bytes: bytes, file_bytes: int, kind: str) -> Frame:
    """Check a file's first bytes against its size, and give its frame; tokens ("T") may turn out to be packed ("Z")."""
    try:
        found, code, count, bound, tag, documents, block = _core.parse_frame(first_bytes, file_bytes, kind)
    except RuntimeError as error:
        hint = (
            COPY_AGAIN
            if first_bytes.startswith(MAGIC)
            else "is this the right file? A store is made with `millstream prepare`"
        )
        raise StoreError(f"{path}: {error}", hint=hint) from None
    dtype = next((name for name, each in DTYPES.items() if each == code), "")
    return Frame(found, count, bound, tag, documents, dtype, block)


def read_frame(path: Path, kind: str) -> Frame:
    """Read and check the frame of a file."""
    fd = disk.open_regular(path)
    try:
        return parse_frame(path, os.pread(fd, FRAME_BYTES, 0), os.fstat(fd).st_size, kind)
    finally:
        os.close(fd)
