"""A position as people look at it: the board, the moves that the search preferred, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from millstream.games.block import FrameBlock
from millstream.games.frame import FILES, POLICY_MOVES, POLICY_SIZE, InputFormat
from millstream.games.positions import Moves, Positions, castling_of, draw_board, fen_of, transforms_of, turn_entries
from millstream.games.validity import uses_half_turn
from millstream.stats import Shown, Styled

_VALUES = {"root": "search", "best": "best move", "played": "played move", "orig": "network", "result": "result"}
_MOST_MOVES = 6
_FLIPPED = str.maketrans("12345678", "87654321")


def show_position(game: FrameBlock, ply: int, title: str = "") -> Shown:
    """Show a position of a whole game, from White's side.

    >>> from millstream.games.example import example_frames
    >>> show_position(example_frames(), 1)
    Black moves  (version 7, classical)
    8  r n b q k b n r
    7  p p p p p p p p
    6  . . . . . . . .
    5  . . . . . . . .
    4  . . . . . . . .
    3  . . . . . . . N
    2  P P P P P P P P
    1  R N B Q K B . R
       a b c d e f g h
    castling KQkq, 1 ply since a capture or a pawn's move
    <BLANKLINE>
    policy  b8c6 70.0 %  b8a6 10.0 %  g8f6 10.0 %  g8h6 10.0 %
    played  b8c6, of 800 visits
    values  search -0.08  best move -0.08  played move -0.08  network -0.08  result -1.00
    <BLANKLINE>
    """
    return Shown(_parts(game, ply, title))


def _parts(game: FrameBlock, ply: int, title: str) -> Iterator[Styled]:
    positions, frame = Positions.of(game.fields), game.fields[ply]
    mover = "Black" if positions.black[ply] else "White"
    layout = InputFormat(frame["input_format"]).name.lower().replace("_", " ")
    title = f"{title}  " if title else ""
    yield Styled(f"{title}{mover} moves  (version {frame['version']}, {layout})\n", "heading")
    yield Styled(draw_board(positions, ply), "plain")
    quiet = int(positions.rule50[ply])
    plies = f"{quiet} {'ply' if quiet == 1 else 'plies'} since a capture or a pawn's move"
    passed = int(positions.en_passant[ply])
    en_passant = f", en passant on {FILES[passed]}" if passed >= 0 else ""
    yield Styled(f"castling {castling_of(positions, ply)}{en_passant}, {plies}\n\n", "plain")
    first, last = int(game.starts[ply]), int(game.ends[ply])
    chances = game.probabilities[first:last]
    names = move_names(game, positions, ply, game.moves[first:last])
    liked = np.argsort(-chances, kind="stable")[:_MOST_MOVES]
    policy = "  ".join(f"{names[each]} {chances[each]:.1%}".replace("%", " %") for each in liked.tolist())
    yield Styled(f"policy  {policy}\n", "plain")
    if frame["visits"]:
        played = move_names(game, positions, ply, np.array([frame["played_idx"]]))[0]
        yield Styled(f"played  {played}, of {frame['visits']} visits\n", "plain")
    known = {name: float(frame[f"{which}_q"]) for which, name in _VALUES.items()}
    yield Styled("values  " + "  ".join(f"{name} {q:+.2f}" for name, q in known.items() if q == q) + "\n", "plain")


def position_facts(game: FrameBlock, ply: int) -> dict[str, Any]:
    """The same as plain data, fit for JSON; values are seen by the mover, and None where unknown.

    >>> from millstream.games.example import example_frames
    >>> facts = position_facts(example_frames(), 1)
    >>> facts["fen"], facts["policy"]["b8c6"], facts["played"], facts["values"]["result"]
    ('rnbqkbnr/pppppppp/8/8/8/7N/PPPPPPPP/RNBQKB1R b KQkq - 1 1', 0.7, 'b8c6', {'q': -1.0, 'd': 0.0, 'm': 11.0})
    """
    positions, frame = Positions.of(game.fields), game.fields[ply]
    first, last = int(game.starts[ply]), int(game.ends[ply])
    names = move_names(game, positions, ply, game.moves[first:last])
    chances = [_finite(chance) for chance in game.probabilities[first:last].tolist()]
    played = move_names(game, positions, ply, np.array([frame["played_idx"]]))[0] if frame["visits"] else None
    values = {name: (f"{name}_q", f"{name}_d", f"{name}_m") for name in ("result", "best", "played", "orig", "root")}
    values["result"] = ("result_q", "result_d", "plies_left")
    values["st"] = ("q_st", "d_st", "")
    return {
        "fen": fen_of(positions, ply),
        "policy": dict(sorted(zip(names, chances, strict=True), key=lambda each: -(each[1] or 0.0))),
        "played": played,
        "visits": int(frame["visits"]),
        "values": {
            name: dict(zip("qdm", (_known(frame, field) for field in fields), strict=True))
            for name, fields in values.items()
        },
        "version": int(frame["version"]),
        "input_format": InputFormat(frame["input_format"]).name.lower(),
    }


def _known(frame: np.void, field: str) -> float | None:
    return _finite(float(frame[field])) if field else None


def _finite(value: float) -> float | None:
    """As exact as 32 bits are; None for what JSON has no word for."""
    return round(value, 7) if math.isfinite(value) else None


def move_names(game: FrameBlock, positions: Positions, ply: int, entries: np.ndarray) -> list[str]:
    """Entries of the policy of a frame as moves on the board; to castle, the king takes its own rook. An entry that
    there is not is no move: "?"."""
    how, there = np.full(len(entries), transforms_of(game.fields)[ply]), entries < POLICY_SIZE
    half_turn = uses_half_turn(game, positions, Moves.between(positions))
    upright = turn_entries(np.where(there, entries, 0), how, np.zeros_like(how), half_turn=half_turn)
    names = [POLICY_MOVES[entry] if entry >= 0 else "?" for entry in np.where(there, upright, -1).tolist()]
    return [name.translate(_FLIPPED) for name in names] if positions.black[ply] else names
