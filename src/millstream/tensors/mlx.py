"""Mlx: always a copy, at the speed of memcpy: mlx owns its memory and takes no one else's."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from millstream.tensors import unknown_device

NAME = "mlx"
ID_BYTES = 4


def from_numpy(array: npt.NDArray[Any]) -> mx.array:
    """Copy the array into mlx's memory."""
    return mx.array(array)


def share(array: npt.NDArray[Any]) -> mx.array:
    """Copy: mlx cannot look at anyone's memory."""
    return mx.array(array)


def to_numpy(tensor: mx.array) -> npt.NDArray[Any]:
    """Look at an mlx array as a numpy array."""
    return np.asarray(tensor)


def to_device(tensor: mx.array, device: Any) -> mx.array:
    """Mlx shares one memory between its devices."""
    if device not in ("cpu", "gpu") and not isinstance(device, mx.Device):
        raise unknown_device("mlx", device, "mlx knows 'cpu' and 'gpu', and shares memory")
    return tensor


def buffers(tensor: mx.array) -> list[tuple[int, int]]:
    """The memory of an array."""
    array = to_numpy(tensor)
    return [(array.ctypes.data, array.nbytes)]
