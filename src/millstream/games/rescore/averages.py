"""What version 7 adds: values averaged over the plies to come, and the next two moves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games import UNKNOWN_MOVE

VERSION = 7


def add_averages(fields: npt.NDArray[np.void], theta: float) -> None:
    """Write `q_st` and `d_st` of a game of an older version, and call it version 7.

    Each average is `theta` of that of the next ply, seen from here, and the rest of this ply's own value.
    """
    if (fields["version"] >= VERSION).all():
        return
    _core.add_averages(fields.view(np.uint8), theta)
    name_next_moves(fields)
    fields["version"] = VERSION


def name_next_moves(fields: npt.NDArray[np.void]) -> None:
    """Write the moves of the next two plies into `opp_played_idx` and `next_played_idx`."""
    played = np.where(fields["visits"] > 0, fields["played_idx"], UNKNOWN_MOVE)
    later = np.append(played, [UNKNOWN_MOVE, UNKNOWN_MOVE])
    fields["opp_played_idx"], fields["next_played_idx"] = later[1:-1], later[2:]
