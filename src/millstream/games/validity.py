"""Whether a game can be what it says: values in range, policies that name what was played, legal moves.

`chess/rules.h` and `chess/legal.h` look. A fault is one broken rule and the first frame that breaks it; its reason is
short, so that it can be counted.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from millstream import _core
from millstream.errors import RecipeError, RecordError
from millstream.games.block import FrameBlock
from millstream.games.positions import POSITION, Moves, Positions, fen_of

Rules = Literal["values", "moves", "legal"]
"""`values`: each frame by itself. `moves`: the frames follow each other by the moves that they name. `legal`: those are
legal."""
_WRONG = (
    "",
    "illegal move",
    "the same side moves next",
    "right to castle from nowhere",
    "en passant without a push",
    "rule50_count does not follow",
)
_NO_MOVES = Moves(*np.zeros((3, 0), np.int8))


def check_rules(rules: Rules) -> None:
    """Say now, and not at the first game, if there are no such rules."""
    if rules not in get_args(Rules):
        raise RecipeError(f"there are no rules {rules!r}", hint=f"there are {', '.join(map(repr, get_args(Rules)))}")


def checked(block: FrameBlock, rules: Rules = "moves") -> tuple[Positions, Moves]:
    """The positions and moves of a game that keeps the rules; a RecordError names the first one that it breaks."""
    faults, positions, moves = look_at(block, follow=rules != "values")
    if not faults and rules == "legal":
        faults = legality_faults(positions, moves)
    if faults:
        ply, reason, found = faults[0]
        raise RecordError(reason, f"ply {ply}: {found}", hint="leave the game out: it is damaged, or no game of chess")
    return positions, moves


class FrameFault(NamedTuple):
    """A broken rule: where in the game, a reason that can be counted, and what was found."""

    ply: int
    reason: str
    found: str


class Looked(NamedTuple):
    """A game that was looked at: what is wrong with it and, if its frames are well by themselves, what happens."""

    faults: list[FrameFault]
    positions: Positions
    moves: Moves


def look_at(block: FrameBlock, *, follow: bool = True) -> Looked:
    """Look at each frame by itself and, if nothing is wrong with any, at what leads from each to the next (`follow`): a
    move, which is the one that the frame calls played.

    >>> look_at(FrameBlock.empty()).faults
    [FrameFault(ply=0, reason='no frames', found='a game without frames')]
    """
    if not len(block):
        return Looked([FrameFault(0, "no frames", "a game without frames")], Positions.of(block.fields), _NO_MOVES)
    faults, raw, moves = _core.look_at_game(block.columns, follow)
    positions = Positions(raw.view(POSITION))
    return Looked([_told(fault, positions) for fault in faults], positions, Moves(*moves))


def _told(fault: tuple[int, str, float, bool], positions: Positions) -> FrameFault:
    ply, reason, found, whole = fault
    if reason == "no move to the next frame":
        return FrameFault(ply, reason, f"from {fen_of(positions, ply)}")
    return FrameFault(
        ply, reason, str(int(found)) if whole else str(float(f"{found:.7g}"))
    )  # as many digits as 32 bits have


def legality_faults(positions: Positions, moves: Moves) -> list[FrameFault]:
    """The first move of a game that is not legal on its board, or does not lead to what the next frame says, if any."""
    wrong = _core.wrong_moves(positions.raw, moves.columns)
    if not wrong.any():
        return []
    ply = int(np.flatnonzero(wrong)[0])
    name = moves.name(ply, black=bool(positions.black[ply]))
    return [FrameFault(ply, _WRONG[wrong[ply]], f"{name} in {fen_of(positions, ply)}")]


def uses_half_turn(block: FrameBlock, positions: Positions, moves: Moves) -> bool:
    """Whether the policies of transposed frames are turned by 180 degrees instead, as later engines do by mistake.

    Moves and policies tell; where both rules fit them, it is the one that fits the planes.
    """
    return _core.uses_half_turn(block.columns, positions.raw, moves.columns)
