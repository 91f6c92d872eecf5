"""Stand-in until rollouts.parse has content_hash."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from millstream.rollouts import RolloutBlock


def content_hash(block: RolloutBlock) -> npt.NDArray[np.uint64]:
    """Hash each rollout."""
    out = np.empty(len(block), np.uint64)
    for row in range(len(block)):
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(block.rows):
            digest.update(repr((name, block.rows[name][row])).encode())
        for name in sorted(block.tokens):
            digest.update(name.encode() + block.of(row, name).tobytes())
        out[row] = int.from_bytes(digest.digest(), "little")
    return out
