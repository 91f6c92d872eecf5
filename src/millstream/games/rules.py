"""How strictly a game is looked at before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from millstream.errors import RecipeError, RecordError
from millstream.games.block import FrameBlock
from millstream.games.moves import Moves
from millstream.games.positions import Positions
from millstream.games.validity import Fault, legality_faults, move_faults, value_faults

Rules = Literal["values", "moves", "legal"]
"""`values`: each frame by itself. `moves`: the frames follow each other by the moves that they name. `legal`: those are
legal."""


def check_rules(rules: Rules) -> None:
    """Say now, and not at the first game, if there are no such rules."""
    if rules not in get_args(Rules):
        raise RecipeError(f"there are no rules {rules!r}", hint=f"there are {', '.join(map(repr, get_args(Rules)))}")


def checked(block: FrameBlock, rules: Rules = "moves") -> tuple[Positions, Moves]:
    """The positions and moves of a game that keeps the rules; a RecordError names the first one that it breaks."""
    _refuse(value_faults(block))
    positions = Positions.of(block.fields)
    moves = Moves.between(positions)
    if rules != "values":
        _refuse(move_faults(block, positions, moves))
    if rules == "legal":
        _refuse(legality_faults(positions, moves))
    return positions, moves


def _refuse(faults: Sequence[Fault]) -> None:
    if faults:
        ply, reason, found = faults[0]
        raise RecordError(reason, f"ply {ply}: {found}", hint="leave the game out: it is damaged, or no game of chess")
