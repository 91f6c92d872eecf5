"""Numpy: the arrays as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.tensors import unknown_device

NAME = "numpy"
ID_BYTES = 8


def from_numpy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return array


def share(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return array


def to_numpy(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return np.asarray(tensor)


def to_device(tensor: npt.NDArray[Any], device: Any) -> npt.NDArray[Any]:
    """Numpy knows one device."""
    if device != "cpu":
        raise unknown_device("numpy", device, "ask the loader for framework='torch' or 'jax'")
    return tensor


def buffers(tensor: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """The memory of the array that this one is a view of: all of it stays as long as the view does."""
    while isinstance(tensor.base, np.ndarray):
        tensor = tensor.base
    return [(tensor.ctypes.data, tensor.nbytes)]
