"""Results without blunders: before a bad move, the game counts as what the search thought of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream import _core


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
    if len(fields):
        _core.deblunder(fields.view(np.uint8), last % len(fields), threshold, width, own_result)
