"""One position of a self-play game as Leela Chess Zero writes it, its input formats, and the moves of its policy.

`FRAME` has the fields of version 7 in its own order, without the policy, which is sparse and stored separately. Older
versions are brought up to it; `version` says which one was read. Four bytes at the end align the planes of every frame.
Every move of a policy is seen by the player, who moves up the board, from a square to a square. A knight promotes under
the plain name, a queen, rook or bishop under a name of its own; to castle, the king takes its own rook.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import numpy.typing as npt

POLICY_SIZE = 1858
"""Moves that a policy names; an entry of -1 is an illegal move, and is not kept."""
PLANES = 104
"""Bitboards of a frame: 8 positions of the past, each of 6 own and 6 other pieces and whether it was there before."""
UNKNOWN_MOVE = 65535
"""A move behind the end of the game, or one that an older version does not name."""

FRAME = np.dtype(
    [
        ("version", "<u4"),
        ("input_format", "<u4"),
        ("planes", "<u8", (PLANES,)),
        ("castling_us_ooo", "u1"),
        ("castling_us_oo", "u1"),
        ("castling_them_ooo", "u1"),
        ("castling_them_oo", "u1"),
        ("side_to_move_or_enpassant", "u1"),
        ("rule50_count", "u1"),
        ("invariance_info", "u1"),
        ("dummy", "u1"),
        ("root_q", "<f4"),
        ("best_q", "<f4"),
        ("root_d", "<f4"),
        ("best_d", "<f4"),
        ("root_m", "<f4"),
        ("best_m", "<f4"),
        ("plies_left", "<f4"),
        ("result_q", "<f4"),
        ("result_d", "<f4"),
        ("played_q", "<f4"),
        ("played_d", "<f4"),
        ("played_m", "<f4"),
        ("orig_q", "<f4"),
        ("orig_d", "<f4"),
        ("orig_m", "<f4"),
        ("visits", "<u4"),
        ("played_idx", "<u2"),
        ("best_idx", "<u2"),
        ("policy_kld", "<f4"),
        ("q_st", "<f4"),
        ("d_st", "<f4"),
        ("opp_played_idx", "<u2"),
        ("next_played_idx", "<u2"),
        ("reserved", "<f4", (8,)),
        ("_padding", "<u4"),
    ]
)

ORIGIN = np.dtype([("chunk", "<u8"), ("ply", "<u4"), ("use", "<u4")])
"""Where a frame is from: the game's number in this run, its place in the game, how often the game was used before."""
FILES = "abcdefgh"


def as_bytes(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Records as native functions take them; those of a whole array are shared, not copied."""
    return np.ascontiguousarray(records).view(np.uint8)


class InputFormat(IntEnum):
    """What stands in planes 104 to 110, and how the history was chosen.

    >>> InputFormat(132).name
    'CANONICAL_HECTOPLIES_ARMAGEDDON'
    """

    CLASSICAL = 1
    """Castling as four planes of ones; who moves as a plane of ones."""
    CASTLING_PLANE = 2
    """Castling as the squares of the rooks, as Chess960 needs it."""
    CANONICAL = 3
    """En passant as a square; the board turned so that equal positions look equal."""
    CANONICAL_HECTOPLIES = 4
    """The count of moves without progress in hundredths."""
    CANONICAL_V2 = 5
    """Of the history, only what is repeated."""
    CANONICAL_HECTOPLIES_ARMAGEDDON = 132
    """A plane of ones where Black moves, since a draw is a win for Black."""
    CANONICAL_V2_ARMAGEDDON = 133


def _plain() -> Iterator[str]:
    """From every square to every other that a queen or a knight reaches on an empty board."""
    squares = [(rank, file) for rank in range(8) for file in range(8)]
    for rank, file in squares:
        for to_rank, to_file in squares:
            up, aside = abs(to_rank - rank), abs(to_file - file)
            if (up or aside) and (up == 0 or aside == 0 or up == aside or up + aside == 3):
                yield f"{FILES[file]}{rank + 1}{FILES[to_file]}{to_rank + 1}"


def _promotions() -> Iterator[str]:
    for file in range(8):
        for to_file in range(max(file - 1, 0), min(file + 2, 8)):
            for piece in "qrb":
                yield f"{FILES[file]}7{FILES[to_file]}8{piece}"


POLICY_MOVES = (*_plain(), *_promotions())
"""The name of each entry of a policy, as in `e2e4` or `a7b8q`."""
POLICY_INDEX = {name: index for index, name in enumerate(POLICY_MOVES)}
"""The entry of each name."""

assert len(POLICY_MOVES) == POLICY_SIZE
