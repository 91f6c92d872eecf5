"""
Millstream's native core: order, store, batches and the ring that fills them.
"""

from typing import Annotated

import numpy
from numpy.typing import NDArray


def xxh64(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], seed: int = 0) -> int:
    """XXH64 of an array of bytes."""

def hash_blocks(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block_bytes: int, out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Put the XXH64 of each block of `data` into `out`."""

def parse_frame(first_bytes: bytes, file_bytes: int, kind: str) -> tuple[int, int, int, int, int]:
    """
    Check a frame against the file's size: (dtype, count, bound, tag, documents).
    """

def encode_frame(kind: str, dtype: int, count: int, bound: int, tag: int, documents: int) -> bytes:
    """The 64 bytes of a frame."""
