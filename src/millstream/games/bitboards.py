"""Boards as 64-bit words, a1 in the lowest bit: many at a time, turned as canonical frames turn them.

A frame keeps the files of each rank in reverse; `reverse_files` is the way there and back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Boards = npt.NDArray[np.uint64]
Squares = npt.NDArray[np.int8]

FLIP, MIRROR, TRANSPOSE = 1, 2, 4
"""Bits of a transform: files reversed, then ranks reversed, then a1 swapped with h8."""
FULL = np.uint64(0xFFFFFFFFFFFFFFFF)

_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)[:, ::-1])
_ONE = np.uint64(1)


def reverse_files(boards: Boards) -> Boards:
    """Each board with the a-file and the h-file swapped, and so on."""
    whole = np.ascontiguousarray(boards, "<u8")
    return _REVERSED[whole.view(np.uint8)].view("<u8")


def reverse_file_mask(masks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Masks of files, reversed in the same way."""
    return _REVERSED[masks]


def flip_ranks(boards: Boards) -> Boards:
    """Each board as the other player sees it.

    >>> flip_ranks(np.array([1], np.uint64)) == 1 << 56
    array([ True])
    """
    return boards.byteswap()


def transpose(boards: Boards) -> Boards:
    """Each board mirrored at the diagonal from a8 to h1, so that a1 and h8 change places."""
    bits = np.unpackbits(np.ascontiguousarray(boards, "<u8").view(np.uint8), bitorder="little")
    turned = bits.reshape(-1, 8, 8)[:, ::-1, ::-1].swapaxes(1, 2)
    return np.packbits(turned, bitorder="little").view("<u8").reshape(boards.shape)


def transform(boards: Boards, how: npt.NDArray[np.uint8]) -> Boards:
    """Rows of boards, each row under its own transform."""
    return _in_turn(boards, how, (FLIP, MIRROR, TRANSPOSE))


def undo_transform(boards: Boards, how: npt.NDArray[np.uint8]) -> Boards:
    """What `transform` was given."""
    return _in_turn(boards, how, (TRANSPOSE, MIRROR, FLIP))


def _in_turn(boards: Boards, how: npt.NDArray[np.uint8], order: tuple[int, ...]) -> Boards:
    turned = boards.copy()
    for bit in order:
        rows = np.flatnonzero(how & bit)
        if len(rows):
            turned[rows] = _TURNS[bit](turned[rows])
    return turned


_TURNS = {FLIP: reverse_files, MIRROR: flip_ranks, TRANSPOSE: transpose}


def is_single(boards: Boards) -> npt.NDArray[np.bool_]:
    """Which boards have one piece.

    >>> is_single(np.array([0, 8, 9], np.uint64))
    array([False,  True, False])
    """
    single: npt.NDArray[np.bool_] = (boards != 0) & (boards & (boards - _ONE) == 0)
    return single


def square_of(boards: Boards) -> Squares:
    """The square of the one piece of each board; -1 of an empty one.

    >>> square_of(np.array([0, 1, 1 << 63], np.uint64))
    array([-1,  0, 63], dtype=int8)
    """
    return (np.frexp(boards.astype(np.float64))[1] - 1).astype(np.int8)


def board_of(squares: Squares) -> Boards:
    """Boards with one piece each; -1 gives an empty one."""
    return np.where(squares < 0, np.uint64(0), _ONE << squares.astype(np.uint64))


def union(boards: Boards) -> Boards:
    """Rows of boards -> all pieces of each row."""
    pieces: Boards = np.bitwise_or.reduce(boards, axis=-1)
    return pieces


def count(boards: Boards) -> npt.NDArray[np.uint8]:
    """Pieces of each board."""
    bits = np.unpackbits(np.ascontiguousarray(boards, "<u8").view(np.uint8)).reshape(*boards.shape, 64)
    counts: npt.NDArray[np.uint8] = bits.sum(axis=-1, dtype=np.uint8)
    return counts
