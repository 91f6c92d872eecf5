"""Whether a game can be what it says: values in their ranges, policies that name what was played, frames that follow.

A fault is one broken rule and the first frame that breaks it; its reason is short, so that it can be counted.
`board.py` adds what needs the rules of chess: whether the moves are legal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.games.bitboards import TRANSPOSE, count, is_single, union
from millstream.games.block import FrameBlock
from millstream.games.frame import POLICY_SIZE
from millstream.games.input_formats import InputFormat
from millstream.games.moves import Entries, Moves
from millstream.games.positions import CASTLING, KING, Positions, transforms_of

Flags = npt.NDArray[np.bool_]

PLACEHOLDER = 0x40
"""Bit of `invariance_info`: a frame that only tells the history; its policy may call the move illegal."""
_LIMITS = {
    **{f"{which}_q": (-1, 1) for which in ("root", "best", "played", "result", "orig")},
    **{f"{which}_d": (0, 1) for which in ("root", "best", "played", "orig")},
    **{f"{which}_m": (0, np.inf) for which in ("root", "best", "played", "orig")},
    "result_d": (0, np.inf),
    "plies_left": (0, np.inf),
    "rule50_count": (0, 100),
    "played_idx": (0, POLICY_SIZE - 1),
    "best_idx": (0, POLICY_SIZE - 1),
}


class Fault(NamedTuple):
    """A broken rule: where in the game, a reason that can be counted, and what was found."""

    ply: int
    reason: str
    found: str


def value_faults(block: FrameBlock) -> list[Fault]:
    """Rules that each frame must keep by itself.

    >>> value_faults(FrameBlock.empty())
    [Fault(ply=0, reason='no frames', found='a game without frames')]
    """
    if not len(block):
        return [Fault(0, "no frames", "a game without frames")]
    return [*_field_faults(block.fields), *_board_faults(block.fields), *_policy_faults(block)]


def move_faults(block: FrameBlock, positions: Positions, moves: Moves) -> list[Fault]:
    """Rules between each frame and the next: a move leads there, and it is the one that the frame calls played."""
    fields = block.fields[:-1]
    entries = played_entries(block, moves)
    marked, equal = _agree(block, entries)
    follows = moves.origins >= 0
    tells = (fields["invariance_info"] & PLACEHOLDER) == 0
    rules: list[tuple[str, Flags, npt.NDArray[np.generic]]] = [
        ("no move to the next frame", ~follows, positions.men),
        ("move without an entry", follows & (entries < 0), moves.targets),
        ("move marked illegal", (entries >= 0) & tells & ~marked, entries),
        ("move is not played_idx", (entries >= 0) & ~equal, fields["played_idx"]),
    ]
    return [fault for reason, broken, found in rules for fault in _first(reason, broken, found)]


def played_entries(block: FrameBlock, moves: Moves) -> Entries:
    """The entry of each move of the game, by the rule by which the game was written (`uses_half_turn`)."""
    return moves.entries(transforms_of(block.fields)[:-1], half_turn=uses_half_turn(block, moves))


def uses_half_turn(block: FrameBlock, moves: Moves) -> bool:
    """Whether the policies of transposed frames are turned by 180 degrees instead, as later engines do by mistake.

    Only the moves can tell; where both rules fit them, it is the one that fits the planes.
    """
    transforms = transforms_of(block.fields)[:-1]
    transposed = (transforms & TRANSPOSE) != 0
    if not transposed.any():
        return False

    def fits(*, half_turn: bool) -> bool:
        marked, equal = _agree(block, moves.entries(transforms, half_turn=half_turn))
        return bool((marked & equal)[transposed].all())

    return not fits(half_turn=False) and fits(half_turn=True)


def _agree(block: FrameBlock, entries: Entries) -> tuple[Flags, Flags]:
    """Whether moves are among the legal ones of their frame, and the ones that it calls played, if it knows."""
    fields = block.fields[:-1]
    return _is_marked(block, entries), (fields["visits"] == 0) | (fields["played_idx"] == entries)


def _is_marked(block: FrameBlock, entries: npt.NDArray[np.integer]) -> Flags:
    """Whether the policy of each of the first frames has an entry for a move; NaN is how old files say illegal."""
    asked = np.full(len(block), -1)
    asked[: len(entries)] = entries
    rows = _rows(block)
    there = (block.moves == asked[rows]) & ~np.isnan(block.probabilities)
    marked: Flags = np.bincount(rows[there], minlength=len(block))[: len(entries)] > 0
    return marked


def _rows(block: FrameBlock) -> npt.NDArray[np.intp]:
    """The frame of each entry."""
    return np.repeat(np.arange(len(block)), np.diff(block.ends, prepend=np.uint32(0)))


def _field_faults(fields: npt.NDArray[np.void]) -> Iterator[Fault]:
    layouts = fields["input_format"]
    yield from _first("unknown input_format", ~np.isin(layouts, list(InputFormat)), layouts)
    for name, (low, high) in _LIMITS.items():
        values = fields[name]
        fine = (values >= low) & (values <= high)
        if name.startswith("orig"):
            fine |= np.isnan(values)
        yield from _first(f"{name} out of range", ~fine, values)
    for name in CASTLING:
        most = np.where(layouts == InputFormat.CLASSICAL, 1, 255)
        yield from _first("bad castling", (fields[name] > most) | _has_many(fields[name]), fields[name])
    side = fields["side_to_move_or_enpassant"]
    most = np.where(layouts < InputFormat.CANONICAL, 1, 255)
    yield from _first("bad side_to_move_or_enpassant", (side > most) | _has_many(side), side)


def _has_many(masks: npt.NDArray[np.uint8]) -> Flags:
    many: Flags = (masks & (masks - np.uint8(1))) != 0
    return many


def _board_faults(fields: npt.NDArray[np.void]) -> Iterator[Fault]:
    pieces = fields["planes"][:, :12]
    kings = pieces[:, [KING, 6 + KING]]
    single = is_single(kings)
    yield from _first("not one king each", ~(single[:, 0] & single[:, 1]), count(union(kings)))
    men, squares = count(pieces).sum(axis=1), count(union(pieces))
    yield from _first("two pieces on a square", men != squares, men)


def _policy_faults(block: FrameBlock) -> Iterator[Fault]:
    fields, chances = block.fields, block.probabilities
    rows = _rows(block)
    outside = ~(np.isnan(chances) | ((chances >= 0) & (chances <= 1)))
    first = np.unique(rows[outside], return_index=True)
    found = np.full(len(block), np.nan, np.float32)
    found[first[0]] = chances[outside][first[1]]
    yield from _first("probability out of range", ~np.isnan(found), found)
    sums = np.bincount(rows, np.nan_to_num(chances, nan=0, posinf=2, neginf=-2), minlength=len(block))
    yield from _first("policy does not sum to 1", ~((sums >= 0.99) & (sums <= 1.01)), sums)
    searched = fields["visits"] > 0
    shown = (fields["invariance_info"] & PLACEHOLDER) == 0
    for name, known in (("played_idx", searched & shown), ("best_idx", searched)):
        broken = known & ~_is_marked(block, fields[name])
        yield from _first(f"{name} marked illegal", broken, fields[name])


def _first(reason: str, broken: Flags, found: npt.NDArray[np.generic]) -> Iterator[Fault]:
    """The first frame that breaks a rule, if one does."""
    if broken.any():
        ply = int(broken.argmax())
        yield Fault(ply, reason, str(found[ply]))
