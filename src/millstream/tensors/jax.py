"""Jax: arrays over the batch's own memory, without a copy.

On the CPU `from_dlpack` shares memory that lies on a 64-byte boundary, and every column of a batch does. Jax drops to
32-bit integers by default, so ids are delivered as int32.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

NAME = "jax"
ID_BYTES = 4


def from_numpy(array: npt.NDArray[Any]) -> Any:
    """Look at the array as a jax array, or copy it where it is not aligned or not writable."""
    if array.size == 0 or not array.flags.writeable or not array.flags.c_contiguous:
        return jax.numpy.asarray(array)
    return jax.dlpack.from_dlpack(array)


def share(array: npt.NDArray[Any]) -> Any:
    """Look at a batch's own memory, where it is aligned for jax."""
    return from_numpy(array)


def to_numpy(tensor: jax.Array) -> npt.NDArray[Any]:
    """Look at a jax array as a numpy array."""
    return np.asarray(tensor)


def to_device(tensor: jax.Array, device: str) -> Any:
    """Move an array to the first device of a platform ("gpu") or to a numbered one ("gpu:1")."""
    platform, _, number = device.partition(":")
    return jax.device_put(tensor, jax.devices(platform)[int(number or 0)])


def buffers(tensor: jax.Array) -> list[tuple[int, int]]:
    """The memory of an array, on each of its devices."""
    return [(shard.data.unsafe_buffer_pointer(), shard.data.nbytes) for shard in tensor.addressable_shards]
