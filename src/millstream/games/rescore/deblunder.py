"""Results without blunders: before a bad move, the game counts as what the search thought of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PROVEN = 0x08
"""Bit of `invariance_info`: the value of the best move is proven."""


def deblunder(
    fields: npt.NDArray[np.void], threshold: float, width: float, *, last: int = -1, own_result: bool = False
) -> None:
    """Walk back from a frame; from the first blunder on, write what would have come of the best moves.

    Args:
        fields: The frames of a game.
        threshold: How much worse than the best move a blunder is.
        width: Around the threshold, how far old and new result are mixed.
        last: Where the walk begins.
        own_result: Begin with the result of that frame, and not with that of the last one.
    """
    if not len(fields) or fields["visits"][-1] == 0:
        return
    last %= len(fields)
    blunders, shares = _blunders(fields, threshold, width)
    best = _columns(fields, "best_q", "best_d", "best_m")
    active = _columns(fields, "result_q", "result_d", "plies_left")[last if own_result else -1]
    met = False
    for ply in range(last, -1, -1):
        if blunders[ply]:
            met = True
            active = (1 - shares[ply]) * active + shares[ply] * best[ply]
        if met:
            fields["result_q"][ply], fields["result_d"][ply], fields["plies_left"][ply] = active
        active = active * (-1, 1, 1) + (0, 0, 1)


def _blunders(
    fields: npt.NDArray[np.void], threshold: float, width: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Which moves are blunders, and how much of the result each makes forgotten."""
    best, played = fields["best_q"].astype(np.float64), fields["played_q"].astype(np.float64)
    loss = best - played
    proven = (fields["invariance_info"] & PROVEN) != 0
    terminal = (best > -1) & (played < 1) & (((best == 1) & proven) | (played == -1))
    shares = np.ones(len(fields))
    if width > 0:
        shares = np.where(terminal, 1, np.minimum(1, (loss - threshold) / width + 0.5))
    return terminal | (loss > threshold - width / 2), shares


def _columns(fields: npt.NDArray[np.void], *names: str) -> npt.NDArray[np.float64]:
    return np.stack([fields[name].astype(np.float64) for name in names], axis=1)
