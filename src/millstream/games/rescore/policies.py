"""Policies sharpened or flattened, with more for the moves that tables call best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millstream.games.block import FrameBlock
from millstream.games.positions import transforms_of
from millstream.games.rescore.settings import RescoreSettings
from millstream.games.rescore.tables import TableProbe


def adjust_policies(
    block: FrameBlock, settings: RescoreSettings, probe: TableProbe | None = None, *, half_turn: bool = False
) -> FrameBlock:
    """The block with other probabilities; what is not a number stays.

    Args:
        block: A game.
        settings: `dist_temp`, `dist_offset`, `dtz_boost`.
        probe: Tables, for the boost.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`).
    """
    if settings.dist_temp == 1 and settings.dist_offset == 0 and settings.dtz_boost == 0:
        return block
    rows = np.repeat(np.arange(len(block)), np.diff(block.ends, prepend=np.uint32(0)))
    chances = block.probabilities.astype(np.float64) + settings.dist_offset
    if probe is not None and settings.dtz_boost:
        chances += settings.dtz_boost * _shares_of_best(block, probe, half_turn=half_turn)
    chances = np.maximum(chances, 0) ** (1 / settings.dist_temp)
    sums = np.bincount(rows, np.nan_to_num(chances, nan=0), minlength=len(block))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(sums[rows] > 0, chances / sums[rows], chances)
    return replace(block, probabilities=shares.astype(np.float32))


def _shares_of_best(block: FrameBlock, probe: TableProbe, *, half_turn: bool) -> npt.NDArray[np.float64]:
    """For each entry of the policies, its share of the boost."""
    shares, transforms = np.zeros(len(block.moves)), transforms_of(block.fields)
    for ply in np.flatnonzero(probe.in_reach).tolist():
        best = probe.best_moves(ply)
        entries = best.entries(np.repeat(transforms[ply], len(best)), half_turn=half_turn)
        first, last = int(block.starts[ply]), int(block.ends[ply])
        shares[first:last] = np.isin(block.moves[first:last], entries) / max(1, len(best))
    return shares
