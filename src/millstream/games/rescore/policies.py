"""Policies sharpened or flattened, with more for the moves that tables call best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import RecordError
from millstream.games import FrameBlock, FrameError, transforms_of
from millstream.games.rescore.settings import RescoreSettings
from millstream.games.rescore.tables import TableProbe


def adjust_policies(
    block: FrameBlock, settings: RescoreSettings, probe: TableProbe | None = None, *, half_turn: bool = False
) -> FrameBlock:
    """The block with other probabilities; what is not a number stays. A game with a position of which no move is left
    is a RecordError.

    Args:
        block: A game.
        settings: `dist_temp`, `dist_offset`, `dtz_boost`.
        probe: Tables, for the boost.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`).
    """
    if settings.dist_temp == 1 and settings.dist_offset == 0 and settings.dtz_boost == 0:
        return block
    more = np.zeros(0)
    if probe is not None and settings.dtz_boost:
        more = settings.dtz_boost * _shares_of_best(block, probe, half_turn=half_turn)
    try:
        chances = _core.adjust_policies(block.columns, more, settings.dist_offset, 1 / settings.dist_temp)
    except FrameError as error:
        reason, _, found = str(error).partition(": ")
        raise RecordError(reason, found, hint="pass a dist_offset that is less below 0") from None
    return replace(block, probabilities=chances)


def _shares_of_best(block: FrameBlock, probe: TableProbe, *, half_turn: bool) -> npt.NDArray[np.float64]:
    """For each entry of the policies, its share of the boost."""
    shares, transforms = np.zeros(len(block.moves)), transforms_of(block.fields)
    for ply in np.flatnonzero(probe.in_reach).tolist():
        best = probe.best_moves(ply)
        entries = best.entries(np.repeat(transforms[ply], len(best)), half_turn=half_turn)
        first, last = int(block.starts[ply]), int(block.ends[ply])
        shares[first:last] = np.isin(block.moves[first:last], entries) / max(1, len(best))
    return shares
