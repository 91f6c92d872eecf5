"""Jax: arrays over the batch's own memory, without a copy.

On the CPU `from_dlpack` shares memory that lies on a 64-byte boundary, and every column of a batch does. Jax drops to
32-bit integers by default, so ids are delivered as int32.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from millstream.tensors.backends import numbers_of, unknown_device
from millstream.tensors.numpy import dtype_of as numpy_dtype_of

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


def to_device(tensor: jax.Array, device: Any, dtype: Any = None, *, non_blocking: bool = True) -> Any:
    """Move an array to the first device of a platform ("gpu") or to a numbered one ("gpu:1"); or to a device or
    sharding of jax. An array of one dimension belongs to all rows: every device of a mesh gets it whole."""
    del non_blocking  # jax never waits
    if numbers_of(dtype) == numbers_of(tensor.dtype):
        tensor = tensor.astype(dtype)
    if device is None:
        return tensor
    try:
        return jax.device_put(tensor, _placed(device, tensor.ndim))
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        told = str(error).partition("\n")[0]
        raise unknown_device("jax", device, f"jax says: {told}") from error


def _placed(device: Any, dimensions: int) -> Any:
    if isinstance(device, str):
        platform, _, number = device.partition(":")
        return jax.devices(platform)[int(number or 0)]
    if isinstance(device, jax.sharding.Sharding) and not device.is_fully_addressable:
        raise ValueError(
            "this sharding has devices of other processes: use jax.make_array_from_process_local_data for each tensor"
        )
    if isinstance(device, jax.sharding.NamedSharding) and dimensions == 1:
        whole: Any = jax.sharding.PartitionSpec
        return jax.sharding.NamedSharding(device.mesh, whole())
    return device


def place(array: Any, like: jax.Array) -> Any:
    """Put an array onto the devices of another one."""
    return jax.device_put(
        from_numpy(array) if isinstance(array, np.ndarray) else array, _placed(like.sharding, array.ndim)
    )


def copied(tensor: jax.Array) -> Any:
    """Copy into memory of its own."""
    return jax.numpy.array(tensor, copy=True)


def dtype_of(thing: object) -> np.dtype[Any] | None:
    """A type of numbers of jax, which are those of numpy; None for anything else."""
    return numpy_dtype_of(thing)


def floats(mask: jax.Array) -> Any:
    """1.0 where it is true."""
    return mask.astype(np.float32)


def buffers(tensor: jax.Array) -> list[tuple[int, int]]:
    """The memory of an array, on each of its devices."""
    return [(shard.data.unsafe_buffer_pointer(), shard.data.nbytes) for shard in tensor.addressable_shards]
