"""The same game in another input format: planes, bytes, and policies as they are seen from there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.errors import RecordError
from millstream.games.block import FrameBlock
from millstream.games.encoding import encode_positions
from millstream.games.input_formats import InputFormat
from millstream.games.moves import turn_entries
from millstream.games.positions import Positions, transforms_of


def convert(block: FrameBlock, positions: Positions, layout: InputFormat, *, half_turn: bool = False) -> FrameBlock:
    """The game in an input format. Its history begins with its first frame.

    Args:
        block: The game.
        positions: Its positions.
        layout: The input format.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`); the new ones are
            written by the one that fits the planes.
    """
    old, fields = transforms_of(block.fields), encode_positions(block.fields, positions, layout)
    new, every = transforms_of(fields), np.arange(len(block))
    rows = np.repeat(every, np.diff(block.ends, prepend=np.uint32(0)))
    turned = turn_entries(block.moves, old[rows], new[rows], half_turn=half_turn)
    nameless = (turned < 0).any()
    for name in ("played_idx", "best_idx"):
        entries = turn_entries(fields[name], old, new, half_turn=half_turn)
        known = fields["visits"] > 0
        nameless |= (entries[known] < 0).any()
        fields[name] = np.where(known, entries, fields[name])
    if nameless:
        found = "the policy has a move that has no name in the new input format"
        raise RecordError("move without an entry", found, hint="leave the game out: it is damaged")
    order = np.lexsort((turned, rows))
    moves, probabilities = turned[order].astype(np.uint16), block.probabilities[order]
    return replace(block, fields=fields, moves=moves, probabilities=probabilities)
