"""An endless shuffle of frames, natively: each one that comes in drives out a random one."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import LoaderError
from millstream.games.block import Columns, FrameBlock
from millstream.games.frame import ORIGIN
from millstream.settings import at_least

MOST_SLOTS = (1 << 32) - 1
SLOT_BYTES = 1372
"""Of a frame in a reservoir; its policy has up to 64 entries there, and others lie beside it."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """Frames that left a reservoir; enough to know where every other one is without seeing it."""

    frames: FrameBlock
    slots: npt.NDArray[np.uint32]
    """Where each was. What is there now came in for it; when nothing did, it is what was in the last slot."""


class Reservoir:
    """So many slots, filled in order; then each frame takes the place of a random one.

    What leaves depends on the seed and on what came in, however it was cut into blocks. A slot takes
    `SLOT_BYTES`, and policies of more than 64 entries take more.

    >>> reservoir = Reservoir(8, seed=1)
    >>> len(reservoir.exchange(FrameBlock.empty()).frames), len(reservoir), reservoir.counter
    (0, 0, 0)
    """

    def __init__(self, capacity: int, seed: int) -> None:
        possible = f"1 to {MOST_SLOTS} are possible"
        self.capacity = at_least("frames", capacity, hint=possible)
        if self.capacity > MOST_SLOTS:
            raise LoaderError(f"a reservoir of {capacity} frames", hint=possible)
        try:
            key = operator.index(seed) & (1 << 64) - 1
        except TypeError:
            raise LoaderError(f"seed={seed!r} is no integer", hint="pass an integer, such as seed=0") from None
        self._slots = _core.Reservoir(self.capacity, key)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def counter(self) -> int:
        """Frames that came in and frames that were drained, in all: with the slots, its whole state."""
        return self._slots.counter

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, or will when it is full."""
        return self._slots.nbytes

    def exchange(self, block: FrameBlock) -> Emitted:
        """Take frames in, and give those that they drive out: none before all slots are taken, then one for each."""
        return _emitted(*self._slots.exchange(block.columns, _bytes_of(block.origins)))

    def drain(self, most: int) -> Emitted:
        """Give at most so many of the frames that are left, in random order; the last one moves into each free slot."""
        return _emitted(*self._slots.drain(most))

    def origins(self) -> npt.NDArray[np.void]:
        """Where the frame in each slot is from (`ORIGIN`)."""
        return self._slots.origins().view(ORIGIN)

    def restore(self, block: FrameBlock, counter: int) -> None:
        """Put frames into the slots in order, and go on as if the counter had come to `counter`."""
        if len(block) > self.capacity:
            raise LoaderError(
                f"{len(block)} frames for a reservoir of {self.capacity}",
                hint="restore it with the capacity it was saved with",
            )
        self._slots.restore(block.columns, _bytes_of(block.origins), counter)


def _bytes_of(origins: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(origins).view(np.uint8)


def _emitted(columns: Columns, origins: npt.NDArray[np.uint8], slots: npt.NDArray[np.uint32]) -> Emitted:
    return Emitted(FrameBlock.of_columns(columns, origins.view(ORIGIN)), slots)
