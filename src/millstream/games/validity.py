"""Whether a game can be what it says: values in their ranges, policies that name what was played, frames that follow
each other by legal moves. `chess/rules.h` and `chess/legal.h` look.

A fault is one broken rule and the first frame that breaks it; its reason is short, so that it can be counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millstream import _core
from millstream.games.block import FrameBlock
from millstream.games.fen import fen_of
from millstream.games.moves import Moves
from millstream.games.positions import POSITION, Positions

_WRONG = (
    "",
    "illegal move",
    "nobody else moves next",
    "right to castle from nowhere",
    "en passant without a push",
    "rule50_count does not follow",
)
_NO_MOVES = Moves(*np.zeros((3, 0), np.int8))


class Fault(NamedTuple):
    """A broken rule: where in the game, a reason that can be counted, and what was found."""

    ply: int
    reason: str
    found: str


class Looked(NamedTuple):
    """A game that was looked at: what is wrong with it and, if its frames are well by themselves, what happens."""

    faults: list[Fault]
    positions: Positions
    moves: Moves


def look_at(block: FrameBlock, *, follow: bool = True) -> Looked:
    """Look at each frame by itself and, if nothing is wrong with any, at what leads from each to the next (`follow`): a
    move, which is the one that the frame calls played.

    >>> look_at(FrameBlock.empty()).faults
    [Fault(ply=0, reason='no frames', found='a game without frames')]
    """
    if not len(block):
        return Looked([Fault(0, "no frames", "a game without frames")], Positions.of(block.fields), _NO_MOVES)
    faults, raw, moves = _core.look_at_game(block.columns, follow)
    positions = Positions(raw.view(POSITION))
    return Looked([_told(fault, positions) for fault in faults], positions, Moves(*moves))


def _told(fault: tuple[int, str, float, bool], positions: Positions) -> Fault:
    ply, reason, found, whole = fault
    if reason == "no move to the next frame":
        return Fault(ply, reason, f"from {fen_of(positions, ply)}")
    return Fault(
        ply, reason, str(int(found)) if whole else str(float(f"{found:.7g}"))
    )  # as many digits as 32 bits have


def legality_faults(positions: Positions, moves: Moves) -> list[Fault]:
    """The first move of a game that is not legal on its board, or does not lead to what the next frame says, if any."""
    wrong = _core.wrong_moves(positions.raw, moves.columns)
    if not wrong.any():
        return []
    ply = int(np.flatnonzero(wrong)[0])
    name = moves.name(ply, black=bool(positions.black[ply]))
    return [Fault(ply, _WRONG[wrong[ply]], f"{name} in {fen_of(positions, ply)}")]


def uses_half_turn(block: FrameBlock, positions: Positions, moves: Moves) -> bool:
    """Whether the policies of transposed frames are turned by 180 degrees instead, as later engines do by mistake.

    Moves and policies tell; where both rules fit them, it is the one that fits the planes.
    """
    return _core.uses_half_turn(block.columns, positions.raw, moves.columns)
