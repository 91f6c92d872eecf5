"""An uncompressed tar -> where its games lie. The archive is never unpacked, and no name in it is used as a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.inflate import MOST_PACKED_BYTES

PLACE = np.dtype([("offset", "<u8"), ("size", "<u4"), ("frames", "<u4"), ("number", "<u4"), ("gzip", "<u4")])
"""A chunk in its file: bytes [offset, offset + size), how many frames they are, its number among the chunks of the
file, and whether it is packed."""


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The games of an archive.

    Args:
        places: Where they lie (`PLACE`); the frames are not counted yet.
        skipped: How many other members there are, by reason.
        problem: "truncated" or "damaged" where the archive could not be read to its end; its `places` are whole.
        problem_at: The byte from which on it could not be read.
        has_end: Whether it has the empty blocks that end an archive. A writer may leave them out, or still be writing.
    """

    places: npt.NDArray[np.void]
    skipped: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    problem_at: int = 0
    has_end: bool = True


def index_tar(descriptor: int) -> tuple[TarIndex, npt.NDArray[np.uint32]]:
    """Read the headers of an archive (v7, ustar, pax, GNU): its games, and the bytes that each says it has unpacked.

    Others may read from the descriptor at the same time.
    """
    offsets, sizes, inflated, gzip, skipped, problem, problem_at, has_end = _core.tar_index(
        descriptor, MOST_PACKED_BYTES
    )
    places = np.zeros(len(offsets), PLACE)
    places["offset"], places["size"], places["gzip"] = offsets, sizes, gzip
    places["number"] = np.arange(len(offsets))
    return TarIndex(places, skipped, problem, problem_at, has_end), inflated
