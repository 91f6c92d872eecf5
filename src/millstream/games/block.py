"""Frames in columns: what flows from a chunk of games to the tensors, an eighth of the bytes in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from millstream._core import FrameError
from millstream.games.frame import FRAME, ORIGIN, POLICY_SIZE, as_bytes

Columns = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.float32]]
__all__ = ["FrameError"]


def join_records(arrays: Sequence[npt.NDArray[np.void]]) -> npt.NDArray[np.void]:
    """Records one behind the other, as bytes: numpy would copy them field by field."""
    joined = np.concatenate([as_bytes(array) for array in arrays])
    return joined.view(arrays[0].dtype)


_VALUES = ("best", "played", "orig", "root")


def _records(array: npt.NDArray[np.void], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.void]:
    """Some records, for the same reason as opaque bytes."""
    return array.view(np.dtype((np.void, array.dtype.itemsize)))[rows].view(array.dtype)


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """Frames, the entries of their policies one behind the other, and where each is from.

    Args:
        fields: Everything but the policy (`FRAME`).
        ends: Where the entries of each frame end in `moves` and `probabilities`.
        moves: The index of every entry of a policy that is not exactly -1, which an illegal move has.
        probabilities: Those entries.
        origins: Where each frame is from (`ORIGIN`).

    >>> block = FrameBlock.empty()
    >>> len(block), block.policy().shape
    (0, (0, 1858))
    """

    fields: npt.NDArray[np.void]
    ends: npt.NDArray[np.uint32]
    moves: npt.NDArray[np.uint16]
    probabilities: npt.NDArray[np.float32]
    origins: npt.NDArray[np.void]

    @staticmethod
    def empty() -> FrameBlock:
        """A block without frames."""
        nothing = np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.float32)
        return FrameBlock(np.zeros(0, FRAME), *nothing, np.zeros(0, ORIGIN))

    @staticmethod
    def concat(blocks: Sequence[FrameBlock]) -> FrameBlock:
        """The frames of several blocks, one behind the other."""
        if not blocks:
            return FrameBlock.empty()
        sizes = np.array([len(block.moves) for block in blocks], np.uint32)
        before = np.cumsum(sizes, dtype=np.uint32) - sizes
        return FrameBlock(
            join_records([block.fields for block in blocks]),
            np.concatenate([block.ends + first for block, first in zip(blocks, before, strict=True)]),
            np.concatenate([block.moves for block in blocks]),
            np.concatenate([block.probabilities for block in blocks]),
            join_records([block.origins for block in blocks]),
        )

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        columns = self.fields, self.ends, self.moves, self.probabilities, self.origins
        return sum(column.nbytes for column in columns)

    @staticmethod
    def of_columns(columns: Columns, origins: npt.NDArray[np.void]) -> FrameBlock:
        """A block of what native functions give."""
        fields, ends, moves, probabilities = columns
        return FrameBlock(fields.view(FRAME), ends, moves, probabilities, origins)

    @property
    def columns(self) -> Columns:
        """What native functions take."""
        ends, moves, probabilities = map(np.ascontiguousarray, (self.ends, self.moves, self.probabilities))
        return as_bytes(self.fields), ends, moves, probabilities

    @property
    def starts(self) -> npt.NDArray[np.uint32]:
        """Where the entries of each frame begin."""
        return np.concatenate([np.zeros(1, np.uint32), self.ends])[:-1]

    def select(self, rows: npt.ArrayLike) -> FrameBlock:
        """Some frames, in the order in which they are asked for."""
        chosen = np.asarray(rows, np.intp)
        starts = self.starts[chosen].astype(np.intp)
        sizes = self.ends[chosen].astype(np.intp) - starts
        ends = np.cumsum(sizes)
        entries = np.repeat(starts - (ends - sizes), sizes) + np.arange(sizes.sum())
        return FrameBlock(
            _records(self.fields, chosen),
            ends.astype(np.uint32),
            self.moves[entries],
            self.probabilities[entries],
            _records(self.origins, chosen),
        )

    def part(self, start: int, stop: int) -> FrameBlock:
        """The frames from `start` to `stop` - 1, in the memory of this block."""
        first, last = (int(self.ends[row - 1]) if row else 0 for row in (start, stop))
        return FrameBlock(
            self.fields[start:stop],
            self.ends[start:stop] - np.uint32(first),
            self.moves[first:last],
            self.probabilities[first:last],
            self.origins[start:stop],
        )

    def policy(self) -> npt.NDArray[np.float32]:
        """The policies as they lie in a file: an entry for every move, -1 for an illegal one."""
        dense = np.full((len(self), POLICY_SIZE), -1, np.float32)
        frames = np.repeat(np.arange(len(self)), np.diff(self.ends, prepend=np.uint32(0)))
        dense[frames, self.moves] = self.probabilities
        return dense

    def values(self) -> npt.NDArray[np.float32]:
        """Result, best, played, original, root and short-term value of each frame, as q, d and plies left."""
        names = ("result_q", "result_d", "plies_left"), *((f"{name}_q", f"{name}_d", f"{name}_m") for name in _VALUES)
        found = [[self.fields[name] for name in each] for each in names]
        found.append([self.fields["q_st"], self.fields["d_st"], np.full(len(self), np.nan, np.float32)])
        return np.array(found, np.float32).transpose(2, 0, 1)

    def of_game(self, chunk: int, use: int) -> FrameBlock:
        """The same frames as those of a game of the run, at its so many-th use; their plies stay."""
        origins = self.origins.copy()
        origins["chunk"], origins["use"] = chunk, use
        return replace(self, origins=origins)


@dataclass(frozen=True, slots=True)
class Game:
    """The frames of one game, or those of them that were chosen, and which use of which game this is."""

    chunk: int
    """Its number in this run."""
    use: int
    """How often it was used before."""
    source: str
    """The sort key of its file."""
    index: int
    """Its place in that file."""
    length: int
    """How many frames the whole game has."""
    frames: FrameBlock
    unpacked: bool = False
    """Its positions are chosen, and whatever changes or refuses games has seen them."""
    draw: int = 0
    """The number of the draw that asked for it."""
    skip: int = 0
    """Chosen positions at its front that were given out before a run resumed."""
    limit: int | None = None
    """Those behind so many were lost when the run was made first; None: none were."""
