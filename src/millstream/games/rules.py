"""How strictly a game is looked at before it is used."""

from __future__ import annotations

from typing import Literal, get_args

from millstream.errors import RecipeError, RecordError
from millstream.games.block import FrameBlock
from millstream.games.moves import Moves
from millstream.games.positions import Positions
from millstream.games.validity import legality_faults, look_at

Rules = Literal["values", "moves", "legal"]
"""`values`: each frame by itself. `moves`: the frames follow each other by the moves that they name. `legal`: those are
legal."""


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
