"""Games for examples: both sides only hop with their knights. Whole and legal, made without a chess library."""

from __future__ import annotations

import gzip
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from millstream.games.block import FrameBlock, Game
from millstream.games.codec import write_frames
from millstream.games.frame import FILES, FRAME, ORIGIN, POLICY_INDEX, UNKNOWN_MOVE, InputFormat
from millstream.games.positions import KNIGHT, Positions, encode_positions, flip_ranks

_HOPS = {"b1": ("c3", "a3"), "g1": ("f3", "h3"), "a3": ("b1",), "c3": ("b1",), "f3": ("g1",), "h3": ("g1",)}
"""Where knights go, the best first; no piece is ever in their way, and none is ever taken."""
_OWN = (0xFF00, 0, 0x24, 0x81, 0x08, 0x10)
"""Pawns, nothing for the knights, bishops, rooks, queen and king of the player who moves."""
_BEST, _SEARCHED = 0.7, 800
MOST_PLIES = 100
"""Then fifty moves without a capture are over."""


def example_frames(number: int = 0, plies: int = 12) -> FrameBlock:
    """One game; another number gives another one. White wins, neither, or Black, in turn.

    >>> frames = example_frames(plies=3)
    >>> len(frames), frames.fields["result_q"].tolist()
    (3, [1.0, -1.0, 1.0])
    """
    dice, plies = random.Random(number), min(plies, MOST_PLIES)
    fields = np.zeros(plies, FRAME)
    pieces = np.zeros((plies, 12), np.uint64)
    knights = [["b1", "g1"], ["b1", "g1"]]
    moves, chances = list[np.ndarray](), list[np.ndarray]()
    for ply in range(plies):
        own, other = knights[ply % 2], knights[1 - ply % 2]
        pieces[ply] = [*_boards(own), *flip_ranks(_boards(other))]
        hops = [(place, target) for place, knight in enumerate(own) for target in _HOPS[knight]]
        best = min(range(len(hops)), key=lambda each: hops[each][1] not in ("c3", "f3"))
        played = best if dice.random() < _BEST else dice.randrange(len(hops))
        entries = [POLICY_INDEX[own[place] + target] for place, target in hops]
        fields["best_idx"][ply], fields["played_idx"][ply] = entries[best], entries[played]
        moves.append(np.array(sorted(entries), np.uint16))
        chances.append(np.where(moves[-1] == entries[best], _BEST, (1 - _BEST) / max(1, len(hops) - 1)))
        own[hops[played][0]] = hops[played][1]
    _tell(fields, winner=1 - number % 3)
    turns = np.arange(plies)
    positions = Positions.of_columns(pieces, castling=(0, 7, 0, 7), rule50=turns, black=turns % 2 == 1)
    origins = np.zeros(plies, ORIGIN)
    origins["ply"] = turns
    return FrameBlock(
        encode_positions(fields, positions, InputFormat.CLASSICAL),
        np.cumsum([len(each) for each in moves], dtype=np.uint32),
        np.concatenate(moves),
        np.concatenate(chances).astype(np.float32),
        origins,
    )


def _boards(knights: Iterable[str]) -> np.ndarray:
    boards = np.array(_OWN, np.uint64)
    boards[KNIGHT] = sum(1 << FILES.index(square[0]) + 8 * (int(square[1]) - 1) for square in knights)
    return boards


def _tell(fields: np.ndarray, winner: int) -> None:
    """What a search and the end of the game say, for the player who moves."""
    plies = len(fields)
    turns = np.arange(plies)
    outcome = np.where(turns % 2, -winner, winner)
    fields["version"], fields["visits"], fields["rule50_count"] = 7, _SEARCHED, turns
    fields["result_q"], fields["result_d"] = outcome, winner == 0
    fields["plies_left"] = fields["root_m"] = fields["best_m"] = fields["played_m"] = plies - turns
    for name in ("root_q", "best_q", "played_q", "orig_q", "q_st"):
        fields[name] = outcome * turns / plies
    fields["opp_played_idx"] = np.append(fields["played_idx"][1:], UNKNOWN_MOVE)
    fields["next_played_idx"] = np.append(fields["played_idx"][2:], [UNKNOWN_MOVE] * 2)[:plies]


def example_games(count: int = 3, plies: int = 12) -> list[Game]:
    """Games as they travel between stages.

    >>> [(game.source, game.length) for game in example_games(2)]
    [('training.0.gz', 12), ('training.1.gz', 12)]
    """
    frames = [example_frames(number, plies).of_game(number, 0) for number in range(count)]
    return [Game(number, 0, f"training.{number}.gz", 0, len(each), each) for number, each in enumerate(frames)]


def example_folder(count: int = 3, plies: int = 12, folder: Path | None = None) -> Path:
    """A folder of games, each a file, as an engine leaves them; a new one, unless it is named.

    >>> sorted(path.name for path in example_folder(2).iterdir())
    ['training.0.gz', 'training.1.gz']
    """
    folder = Path(mkdtemp()) if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    an_hour_ago = time.time() - 3600
    for number in range(count):
        packed = gzip.compress(write_frames(example_frames(number, plies)), 1, mtime=0)
        path = folder / f"training.{number}.gz"
        path.write_bytes(packed)
        os.utime(path, (an_hour_ago, an_hour_ago))  # else discovery waits to see whether it still grows
    return folder
