"""The same game in another input format: planes, bytes, and policies as they are seen from there."""

from __future__ import annotations

from dataclasses import replace

from millstream import _core
from millstream.errors import RecordError
from millstream.games import FrameBlock, FrameError, InputFormat, Positions


def convert(block: FrameBlock, positions: Positions, layout: InputFormat, *, half_turn: bool = False) -> FrameBlock:
    """The game in an input format. Its history begins with its first frame.

    Args:
        block: The game.
        positions: Its positions.
        layout: The input format.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`); the new ones are
            written by the one that fits the planes.
    """
    try:
        fields, moves, probabilities = _core.convert_game(block.columns, positions.raw, layout, half_turn)
    except FrameError as error:
        reason, _, found = str(error).partition(": ")
        raise RecordError(reason, found, hint="leave the game out: it is damaged") from None
    return replace(block, fields=fields.view(block.fields.dtype), moves=moves, probabilities=probabilities)
