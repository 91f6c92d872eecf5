"""Frames in columns -> the bytes of a chunk of version 7. `read_frames` is the way back."""

from __future__ import annotations

import numpy as np

from millstream.games.block import FrameBlock
from millstream.games.frame import FRAME, POLICY_SIZE

_HEAD, _PADDING = 8, 4
"""Bytes of a frame before its policy, and those at its end that no file has."""
_VERSION = 7


def write_frames(block: FrameBlock) -> bytes:
    """A chunk that has these frames, not packed; whatever version they were, they have all that version 7 knows.

    >>> len(write_frames(FrameBlock.empty()))
    0
    """
    fields = block.fields.copy()
    fields["version"] = _VERSION
    rows = np.ascontiguousarray(fields).view(np.uint8).reshape(len(block), FRAME.itemsize)
    policy = block.policy().view(np.uint8).reshape(len(block), POLICY_SIZE * 4)
    return np.concatenate([rows[:, :_HEAD], policy, rows[:, _HEAD:-_PADDING]], axis=1).tobytes()
