"""Boards as 64-bit words, a1 in the lowest bit: the little of `chess/bitboards.h` that is wanted in Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Boards = npt.NDArray[np.uint64]


def flip_ranks(boards: Boards) -> Boards:
    """Each board as the other player sees it.

    >>> flip_ranks(np.array([1], np.uint64)) == 1 << 56
    array([ True])
    """
    return boards.byteswap()


def union(boards: Boards) -> Boards:
    """Rows of boards -> all pieces of each row."""
    pieces: Boards = np.bitwise_or.reduce(boards, axis=-1)
    return pieces


def count(boards: Boards) -> npt.NDArray[np.uint8]:
    """Pieces of each board.

    >>> count(np.array([0, 7], np.uint64))
    array([0, 3], dtype=uint8)
    """
    bits = np.unpackbits(np.ascontiguousarray(boards, "<u8").view(np.uint8)).reshape(*boards.shape, 64)
    counts: npt.NDArray[np.uint8] = bits.sum(axis=-1, dtype=np.uint8)
    return counts
