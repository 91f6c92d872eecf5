"""One position of a self-play game as Leela Chess Zero writes it, without its policy: that is sparse, and lies beside.

The fields of version 7 in its own order, with the older versions brought up to it; `version` says which one was read.
Four bytes at the end keep the planes of every frame on addresses that 64-bit words like.
"""

from __future__ import annotations

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


def as_bytes(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Records as native functions take them; those of a whole array are shared, not copied."""
    return np.ascontiguousarray(records).view(np.uint8)
