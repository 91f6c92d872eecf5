"""The move between a position and the next, and its entry in a policy.

No move is generated: two positions show what was played. Whether it was legal is for `board.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.games.bitboards import (
    FLIP,
    MIRROR,
    TRANSPOSE,
    Boards,
    Squares,
    board_of,
    flip_ranks,
    is_single,
    square_of,
    union,
)
from millstream.games.policy import FILES, POLICY_INDEX, POLICY_MOVES
from millstream.games.positions import KING, PAWN, ROOK, Positions

Entries = npt.NDArray[np.int16]

_PROMOTIONS = {"b": 2, "r": 3, "q": 4}
_FIRST_RANK = np.uint64(0xFF)


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves in columns, as their own players see them.

    Args:
        origins: From which square; -1 where there is no move that leads from one position to the next.
        targets: To which square; to castle, the king takes its own rook.
        promotions: The piece that a pawn becomes (1 to 4: knight, bishop, rook, queen), or 0.
    """

    origins: Squares
    targets: Squares
    promotions: Squares

    @staticmethod
    def between(positions: Positions) -> Moves:
        """The moves of a game: one less than positions."""
        own, then = positions.pieces[:-1, :6], flip_ranks(positions.pieces[1:, 6:])
        gone, came = own & ~then, then & ~own
        changed = (gone | came) != 0
        alone = changed.sum(axis=1) == 1
        origins, targets = square_of(union(gone)), square_of(union(came))
        single = is_single(gone) & is_single(came)
        moved = alone & single.any(axis=1)

        became = (came[:, 1:5] != 0).argmax(axis=1) + 1
        promotes = is_single(gone[:, PAWN]) & (came[:, PAWN] == 0) & (changed.sum(axis=1) == 2)
        promotes &= is_single(union(came[:, 1:5])) & (union(gone[:, 1:]) == 0)

        rooks = _castled_rooks(own, gone, came, single, alone)
        castles = rooks >= 0
        origins = np.where(castles, square_of(own[:, KING]), origins)
        targets = np.where(castles, rooks, targets)
        known = (moved | promotes | castles) & _explains_the_rest(positions, own, changed, origins, targets, castles)
        promotions = np.where(promotes & ~castles & known, became, 0).astype(np.int8)
        return Moves(np.where(known, origins, np.int8(-1)), np.where(known, targets, np.int8(-1)), promotions)

    def __len__(self) -> int:
        return len(self.origins)

    def entries(self, transforms: npt.NDArray[np.uint8], *, half_turn: bool = False) -> Entries:
        """The entry of each move in the policy of its frame, or -1 if there is none."""
        squares = _SQUARES[int(half_turn)][transforms]
        rows = np.arange(len(self))
        origins, targets = squares[rows, self.origins], squares[rows, self.targets]
        return np.where(self.origins < 0, np.int16(-1), _ENTRIES[origins, targets, self.promotions])


def turn_entries(
    entries: npt.NDArray[np.integer], old: npt.NDArray[np.uint8], new: npt.NDArray[np.uint8], *, half_turn: bool = False
) -> Entries:
    """Entries of policies under one transform each -> the same moves under another, or -1 if that names no move.

    `half_turn` says that the old ones are by the later rule (`uses_half_turn`).
    """
    squares = _INVERSE[int(half_turn)][old]
    rows = np.arange(len(entries))
    origins, targets = squares[rows, _ORIGINS[entries]], squares[rows, _TARGETS[entries]]
    return Moves(origins, targets, _BECOME[entries]).entries(new)


def _castled_rooks(
    own: Boards, gone: Boards, came: Boards, single: npt.NDArray[np.bool_], alone: npt.NDArray[np.bool_]
) -> Squares:
    """Where the rook stood with which the king castled, or -1.

    In Chess960 the king or the rook may stand where it will stand: then the other one jumps over it.
    """
    changed = (gone | came) != 0
    king, rook = single[:, KING], single[:, ROOK]
    both = king & rook & (changed.sum(axis=1) == 2)
    kings, rooks = square_of(own[:, KING]), square_of(gone[:, ROOK])
    landed, rook_landed = square_of(came[:, KING]), square_of(came[:, ROOK])

    at_home = (own[:, KING] & _FIRST_RANK) != 0
    king_jumps = alone & king & at_home & (landed < 8) & (abs(landed - kings) > 1)
    beside = np.where(landed > kings, np.int8(5), np.int8(3))
    king_jumps &= (own[:, ROOK] & board_of(beside)) != 0

    rook_jumps = alone & rook & at_home & (rooks < 8) & (rook_landed < 8) & ((rooks < kings) != (rook_landed < kings))
    return np.where(both | rook_jumps, rooks, np.where(king_jumps, beside, np.int8(-1)))


def _explains_the_rest(
    positions: Positions,
    own: Boards,
    changed: npt.NDArray[np.bool_],
    origins: Squares,
    targets: Squares,
    castles: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Whether the other player has lost the piece on the target, or the pawn taken en passant, and nothing else."""
    theirs, then = positions.pieces[:-1, 6:], flip_ranks(positions.pieces[1:, :6])
    taken = np.where(castles, np.uint64(0), union(theirs) & board_of(targets))
    aside = changed[:, PAWN] & ((origins & 7) != (targets & 7)) & (taken == 0)
    taken = np.where(aside, board_of(targets) >> np.uint64(8), taken)
    lost, gained = theirs & ~then, then & ~theirs
    passes = ~aside | (lost[:, PAWN] == taken)
    explained: npt.NDArray[np.bool_] = (union(lost) == taken) & (union(gained) == 0) & passes
    return explained


def _square_tables() -> npt.NDArray[np.int8]:
    """[rule, transform, square]: where a square goes, by the rule of the planes and by the later one for policies."""
    square = np.arange(64)
    tables = np.zeros((2, 8, 64), np.int8)
    for how in range(8):
        file, rank = square & 7, square >> 3
        file = 7 - file if how & FLIP else file
        rank = 7 - rank if how & MIRROR else rank
        tables[:, how] = rank * 8 + file
        if how & TRANSPOSE:
            tables[0, how] = (7 - file) * 8 + 7 - rank
            tables[1, how] = (7 - rank) * 8 + 7 - file
    return tables


def _entry_table() -> npt.NDArray[np.int16]:
    """[origin, target, promotion]: the entry of a move, or -1. A pawn becomes a knight under the plain name."""
    table = np.full((64, 64, 5), -1, np.int16)
    for name, entry in POLICY_INDEX.items():
        origin, target = _square(name[:2]), _square(name[2:4])
        if len(name) == 5:
            table[origin, target, _PROMOTIONS[name[4]]] = entry
        else:
            table[origin, target, :2] = entry
    return table


def _square(name: str) -> int:
    return FILES.index(name[0]) + 8 * (int(name[1]) - 1)


_SQUARES = _square_tables()
_INVERSE = np.argsort(_SQUARES, axis=-1).astype(np.int8)
_ENTRIES = _entry_table()
_ORIGINS = np.array([_square(name[:2]) for name in POLICY_MOVES], np.int8)
_TARGETS = np.array([_square(name[2:4]) for name in POLICY_MOVES], np.int8)
_BECOME = np.array([_PROMOTIONS.get(name[4:], 0) for name in POLICY_MOVES], np.int8)
