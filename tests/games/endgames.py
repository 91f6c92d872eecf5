"""Endgames and what is known of them: invented for a test, or by real tables, straight from their boards."""

from __future__ import annotations

import random
from dataclasses import dataclass

import chess
import numpy as np
from hypothesis import strategies as st

from games import endgame_tables
from games.blocks import block_of
from games.chunks import play
from games.slow_rescore import Known
from millstream.games import FrameBlock, InputFormat
from millstream.games.positions import Moves, Positions

ENDGAMES = (
    "8/8/4k3/8/2KR4/8/8/8 w - - 0 1",
    "8/8/3k4/8/2KQ4/8/8/8 b - - 3 1",
    "8/4P3/3k4/8/8/2K5/8/8 w - - 0 1",
    "8/8/3k4/3r4/2KR4/8/8/8 w - - 0 1",
    "8/8/3k4/3p4/2K5/8/1Q6/8 w - - 0 1",
    "8/2p5/3k4/8/2KP4/8/8/8 w - - 0 1",
    "8/8/3k4/2b1n3/8/2K5/8/8 b - - 0 1",
)


@dataclass
class Invented:
    """Tables that say what a test wants."""

    known: list[Known]

    @property
    def in_reach(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([now.wdl is not None for now in self.known])

    def wdl(self, ply: int) -> int | None:
        return self.known[ply].wdl

    def dtz(self, ply: int) -> int | None:
        return self.known[ply].dtz

    def best_moves(self, ply: int) -> Moves:
        return Moves(*np.zeros((3, 0), np.int8))


@dataclass
class InventedMates:
    """Tables of mates that say what a test wants."""

    known: list[Known]

    @property
    def in_reach(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([now.mate is not None for now in self.known])

    def plies_to_mate(self, ply: int) -> int | None:
        return self.known[ply].mate


def bare_positions(known: list[Known]) -> Positions:
    count = len(known)
    positions = Positions.of_columns(
        np.zeros((count, 12), np.uint64), rule50=[now.rule50 for now in known], black=np.arange(count) % 2 == 1
    )
    vars(positions)["repeats"] = np.array([now.repeated for now in known])
    return positions


signs = st.sampled_from([-1, 0, 1])
knowledge = st.builds(
    Known,
    rule50=st.sampled_from([0, 0, 1, 2, 3, 60, 97]),
    repeated=st.sampled_from([False, False, False, True]),
    wdl=st.none() | signs,
    dtz=st.none() | st.sampled_from([-60, -40, -39, -2, -1, 0, 1, 2, 3, 4, 5, 38, 39, 41, 42]),
    mate=st.none() | st.sampled_from([0, 1, 2, 3, 4, 38, 39, 40, 99, 100]),
)


def endgame(
    seed: int, fen: str, layout: InputFormat = InputFormat.CLASSICAL
) -> tuple[FrameBlock, list[Known], list[bool]]:
    """A random endgame with a random result, and what real tables know of it, straight from its boards."""
    rng = random.Random(seed)
    frames, fens = play(rng, 6, layout, 30, fen)
    block = block_of(frames)
    result, sides = rng.choice([-1, 0, 1]), (-1) ** np.arange(len(frames))
    block.fields["result_q"] = result * sides
    block.fields["result_d"] = result == 0
    block.fields["plies_left"] *= rng.choice([0, 1])
    known, bare, seen = [], [], list[str]()
    base, mates = endgame_tables.tablebase(), endgame_tables.matebase()
    for text in fens:
        board = chess.Board(text)
        key, men = board.epd(en_passant="legal"), chess.popcount(board.occupied)
        wdl = base.probe_wdl(board) if men <= 4 else None
        fair = None if wdl is None else {-2: -1, 2: 1}.get(wdl, 0)
        dtz, mate = base.probe_dtz(board) if men <= 4 else None, abs(mates.probe_dtm(board)) if men == 3 else None
        known.append(Known(board.halfmove_clock, key in seen, fair, dtz, mate))
        bare.append(men <= 3 and not board.pawns)
        seen.append(key)
    return block, known, bare
