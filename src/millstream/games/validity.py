"""Whether a game can be what it says: values in their ranges, policies that name what was played, frames that follow
each other by legal moves. `rules.h` and `legal.h` look.

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
    faults, positions, moves = _core.look_at_game(block.columns, follow)
    told = [
        Fault(ply, reason, str(int(found)) if whole else str(np.float32(found))) for ply, reason, found, whole in faults
    ]
    if not len(block):
        told = [Fault(0, "no frames", "a game without frames")]
    return Looked(told, Positions(positions.view(POSITION)), Moves(*moves))


def legality_faults(positions: Positions, moves: Moves) -> list[Fault]:
    """The first move of a game that is not legal on its board, if there is one."""
    illegal = np.flatnonzero((moves.origins >= 0) & (_core.are_legal(positions.raw, moves.columns) == 0))
    for ply in illegal[:1].tolist():
        name = moves.name(ply, black=bool(positions.black[ply]))
        return [Fault(ply, "illegal move", f"{name} in {fen_of(positions, ply)}")]
    return []


def uses_half_turn(block: FrameBlock, moves: Moves) -> bool:
    """Whether the policies of transposed frames are turned by 180 degrees instead, as later engines do by mistake.

    Only the moves can tell; where both rules fit them, it is the one that fits the planes.
    """
    return _core.uses_half_turn(block.columns, moves.columns)
