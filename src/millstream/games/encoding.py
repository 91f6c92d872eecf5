"""Positions of a game -> the position part of its frames, in any input format. `Positions.of` is the way back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.frame import as_bytes
from millstream.games.input_formats import InputFormat
from millstream.games.positions import Positions


def encode_positions(fields: npt.NDArray[np.void], positions: Positions, layout: InputFormat) -> npt.NDArray[np.void]:
    """Frames that show the same positions in an input format; everything else of them stays.

    The history begins with the first position, since a frame does not tell what led there.
    """
    encoded = as_bytes(fields).copy()
    _core.encode_positions(encoded, positions.raw, layout)
    return encoded.view(fields.dtype)
