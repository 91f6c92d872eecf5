"""Mlx: always a copy, at the speed of memcpy: mlx owns its memory and takes no one else's."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from millstream.tensors.backends import numbers_of, unknown_device

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


def to_device(tensor: mx.array, device: Any, dtype: Any = None, *, non_blocking: bool = True) -> mx.array:
    """Mlx shares one memory between its devices."""
    del non_blocking
    if device is not None and not isinstance(device, mx.Device) and str(device) not in ("cpu", "gpu"):
        raise unknown_device("mlx", device, "mlx knows 'cpu' and 'gpu', and shares memory")
    return tensor.astype(dtype) if numbers_of(dtype) == numbers_of(tensor.dtype) else tensor


def place(array: Any, like: mx.array) -> mx.array:
    """Hand an array on: all of them are in one memory."""
    del like
    return mx.array(array)


def copied(tensor: mx.array) -> mx.array:
    """Copy into memory of its own."""
    return mx.array(to_numpy(tensor))


def dtype_of(thing: object) -> mx.Dtype | None:
    """A type of numbers of mlx, None for anything else."""
    return thing if isinstance(thing, mx.Dtype) else None


def floats(mask: mx.array) -> mx.array:
    """1.0 where it is true."""
    return mask.astype(mx.float32)


def buffers(tensor: mx.array) -> list[tuple[int, int]]:
    """The memory of an array."""
    array = to_numpy(tensor)
    return [(array.ctypes.data, array.nbytes)]
