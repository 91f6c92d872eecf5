"""Frames as they lie in a file -> a block, without the reader: an upgrade of its own, straight from the text."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from games.chunks import play
from games.positions import transform_square
from millstream.games import FRAME, ORIGIN, FrameBlock, InputFormat
from millstream.games.frame import POLICY_INDEX, POLICY_MOVES
from millstream.games.positions import transforms_of


def block_of(frames: npt.NDArray[np.void]) -> FrameBlock:
    """Frames of version 6 or 7."""
    fields = np.zeros(len(frames), FRAME)
    for name in frames.dtype.names or ():
        if name not in ("probabilities", "result"):
            fields[name] = frames[name]
    if "d_st" not in (frames.dtype.names or ()):
        fields["opp_played_idx"] = fields["next_played_idx"] = 65535
    legal = frames["probabilities"] != -1
    origins = np.zeros(len(frames), ORIGIN)
    origins["ply"] = np.arange(len(frames))
    return FrameBlock(
        fields,
        np.cumsum(legal.sum(axis=1)).astype(np.uint32),
        np.nonzero(legal)[1].astype(np.uint16),
        frames["probabilities"][legal].astype(np.float32),
        origins,
    )


def game(
    seed: int = 0, layout: InputFormat = InputFormat.CLASSICAL, plies: int = 80, fen: str = "", version: int = 6
) -> FrameBlock:
    """A random game, for the caller to do with as they like."""
    return block_of(_played(seed, layout, plies, fen, version))


@cache
def _played(seed: int, layout: InputFormat, plies: int, fen: str, version: int) -> npt.NDArray[np.void]:
    return play(random.Random(seed), version, layout, plies, fen)[0]


def as_later_engines(block: FrameBlock) -> FrameBlock:
    """A canonical game with the policies of transposed frames turned by 180 degrees, as later engines do."""
    transforms = transforms_of(block.fields)

    def turned(entries: npt.NDArray[np.uint16], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.uint16]:
        names = [POLICY_MOVES[entry] for entry in entries]
        return np.array([_half_turned(name, int(how)) for name, how in zip(names, transforms[rows], strict=True)])

    every = np.arange(len(block))
    for name in ("played_idx", "best_idx"):
        block.fields[name] = turned(block.fields[name], every)
    rows = np.repeat(every, np.diff(block.ends, prepend=np.uint32(0)))
    return replace(block, moves=turned(block.moves, rows).astype(np.uint16))


def _half_turned(name: str, how: int) -> int:
    if not how & 4:
        return POLICY_INDEX[name]
    squares = [ord(name[at]) - ord("a") + 8 * (int(name[at + 1]) - 1) for at in (0, 2)]
    # Undoing the transposition of the planes (its own inverse), then the half turn.
    turned = [63 - transform_square(square, 4) for square in squares]
    return POLICY_INDEX["".join("abcdefgh"[square & 7] + str((square >> 3) + 1) for square in turned)]
