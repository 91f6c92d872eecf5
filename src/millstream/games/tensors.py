"""Frames -> what a network sees and learns.

`planes` (n, 112, 8, 8): 8 positions of 13 planes each, the current one first; castling (104 to 107), who moves or en
passant (108), moves without progress (109), whether Black moves in Armageddon (110), ones (111). Ranks go up from the
side to move, files from a to h. Frames of different input formats may stand in one batch.
`policy` (n, 1858): the share of visits of each move, -1 for an illegal one.
`values` (n, 6, 3): result, best, played, original, root and short-term value; each as q, d and moves left, of which the
last has none (NaN). Original values may be NaN too.

All three are float32 or float16. Boards are the planes in a 32nd of the space: `boards` (n, 112) of 64 bits, whose
bytes are ranks and whose bits are files, the highest first; plane 109 is full there, to be multiplied by `rule50` (n).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import BatchError
from millstream.games.block import FrameBlock
from millstream.games.frame import POLICY_SIZE

INPUT_PLANES = 112
RULE50_PLANE = 109
_LINE = 64

Reals = npt.NDArray[np.float32] | npt.NDArray[np.float16]


def empty_aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """An array that begins where a line of the cache does: filling it is a half faster, as it passes the caches by."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(dtype).reshape(shape)


@dataclass(frozen=True, slots=True)
class FrameTensors:
    """Planes, policies and values of some frames."""

    planes: Reals
    policy: Reals
    values: Reals

    @staticmethod
    def empty(rows: int, dtype: npt.DTypeLike = np.float32) -> FrameTensors:
        """Room for so many frames."""
        shapes = (rows, INPUT_PLANES, 8, 8), (rows, POLICY_SIZE), (rows, 6, 3)
        return FrameTensors(*(empty_aligned(shape, dtype) for shape in shapes))  # type: ignore[arg-type]

    @staticmethod
    def of(block: FrameBlock, dtype: npt.DTypeLike = np.float32) -> FrameTensors:
        """Those of a block.

        >>> FrameTensors.of(FrameBlock.empty()).planes.shape
        (0, 112, 8, 8)
        """
        made = FrameTensors.empty(len(block), dtype)
        fill_tensors(block, made.planes, made.policy, made.values)
        return made


def fill_tensors(block: FrameBlock, planes: Reals, policy: Reals, values: Reals) -> None:
    """Write the tensors of a block into arrays of one type, float32 or float16, with as many rows."""
    outputs = planes, policy, values
    kinds = {out.dtype for out in outputs}
    if kinds not in ({np.dtype(np.float32)}, {np.dtype(np.float16)}):
        raise BatchError(f"planes, policy and values are {', '.join(str(out.dtype) for out in outputs)}", hint=_HINT)
    fill = _core.fill_tensors if np.dtype(np.float32) in kinds else _core.fill_half_tensors
    try:
        fill(block.columns, *(_bytes_of(out) for out in outputs))
    except ValueError as error:
        raise BatchError(str(error), hint=_HINT) from None


def fill_boards(block: FrameBlock, boards: npt.NDArray[np.uint64], rule50: npt.NDArray[np.float32]) -> None:
    """Write the planes of a block as boards (n, 112), and what their plane 109 stands for (n)."""
    try:
        _core.fill_boards(block.columns[0], boards.reshape(-1), rule50)
    except ValueError as error:
        raise BatchError(str(error), hint="boards are (n, 112), rule50 is (n)") from None


def expand(boards: npt.NDArray[np.uint64], rule50: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The planes of boards: what is to be done on the accelerator, said in numpy.

    >>> planes = expand(np.full((1, 112), 0x80, np.uint64), np.array([0.5], np.float32))
    >>> planes[0, 0, 0].tolist(), float(planes[0, 109].max())
    ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.5)
    """
    bits = np.unpackbits(boards.astype("<u8").view(np.uint8), bitorder="big")
    planes = bits.reshape(len(boards), INPUT_PLANES, 8, 8).astype(np.float32)
    planes[:, RULE50_PLANE] *= rule50[:, None, None]
    return planes


_HINT = "pass contiguous arrays of float32, or of float16, as FrameTensors.empty(n) makes them"


def _bytes_of(out: Reals) -> npt.NDArray[np.uint8]:
    if not out.flags.c_contiguous:
        raise BatchError("an output is not contiguous", hint=_HINT)
    return out.reshape(-1).view(np.uint8)
