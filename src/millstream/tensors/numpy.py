"""Numpy: the arrays as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.tensors.backends import numbers_of, unknown_device

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


def to_device(
    tensor: npt.NDArray[Any], device: Any, dtype: Any = None, *, non_blocking: bool = True
) -> npt.NDArray[Any]:
    """Numpy knows one device."""
    del non_blocking
    if device is not None and (not isinstance(device, str) or device != "cpu"):
        raise unknown_device("numpy", device, "ask the loader for framework='torch' or 'jax'")
    return tensor.astype(dtype) if numbers_of(dtype) == numbers_of(tensor.dtype) else tensor


def place(array: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on: all of them are in one memory."""
    del like
    return array


def copied(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy into memory of its own."""
    return tensor.copy()


def dtype_of(thing: object) -> np.dtype[Any] | None:
    """A type of numbers of numpy, or its name; None for anything else.

    >>> dtype_of(np.float16), dtype_of("int32"), dtype_of(list)
    (dtype('float16'), dtype('int32'), None)
    """
    try:
        found = np.dtype(thing) if isinstance(thing, np.dtype | type | str) else None
    except TypeError:
        return None
    return None if found is None or found.kind == "O" else found


def floats(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """1.0 where it is true."""
    return mask.astype(np.float32)


def layout(tensor: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Where the first row begins, the bytes from there to the next one, and the bytes of a row."""
    return tensor.ctypes.data, tensor.strides[0], tensor.nbytes // max(1, tensor.shape[0])


def buffers(tensor: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """The memory of the array that this one is a view of: all of it stays as long as the view does."""
    while isinstance(tensor.base, np.ndarray):
        tensor = tensor.base
    return [(tensor.ctypes.data, tensor.nbytes)]
