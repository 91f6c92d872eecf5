"""Numpy: the arrays as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError

NAME = "numpy"
ID_BYTES = 8
SHARES_MEMORY = True


def from_numpy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return array


def share(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return array


def to_numpy(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Hand the array on."""
    return np.asarray(tensor)


def to_device(tensor: npt.NDArray[Any], device: str) -> npt.NDArray[Any]:
    """Numpy knows one device."""
    if device != "cpu":
        raise LoaderError(
            f"numpy arrays cannot be moved to {device!r}",
            hint="ask the loader for framework='torch' or 'jax'",
        )
    return tensor
