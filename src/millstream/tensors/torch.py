"""Torch: tensors over the batch's own memory, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset

from millstream.tensors.backends import numbers_of, unknown_device

NAME = "torch"
ID_BYTES = 8


def from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at the array as a tensor."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def share(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at a batch's own memory as a tensor."""
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Look at a tensor as an array; one on a device is copied, and numbers that numpy does not know become float32."""
    tensor = tensor.detach().cpu()
    return np.asarray((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())


def to_device(
    tensor: torch.Tensor, device: Any, dtype: torch.dtype | None = None, *, non_blocking: bool | None = None
) -> torch.Tensor:
    """Move a tensor, without waiting where that is safe; one of numbers like those of `dtype` becomes of that type."""
    try:
        place = tensor.device if device is None else torch.device(device)
        wanted = dtype if numbers_of(dtype) == numbers_of(tensor.dtype) else None
        return tensor.to(place, wanted, non_blocking=place.type != "cpu" if non_blocking is None else non_blocking)
    except torch.OutOfMemoryError:
        raise  # trainers catch it by its name
    except (RuntimeError, TypeError, AssertionError) as error:  # a build without CUDA asserts
        told = str(error).partition("\n")[0]
        raise unknown_device("torch", device, f"torch says: {told}") from error


def place(array: Any, like: torch.Tensor) -> torch.Tensor:
    """Put an array or a tensor onto the device of another one."""
    tensor = from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor.to(like.device, non_blocking=like.device.type != "cpu")


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Copy into memory of its own, on its device."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    """Copy into pinned memory."""
    return tensor.pin_memory() if device is None else tensor.pin_memory(device)


def dtype_of(thing: object) -> torch.dtype | None:
    """A type of numbers of torch, None for anything else."""
    return thing if isinstance(thing, torch.dtype) else None


def floats(mask: torch.Tensor) -> torch.Tensor:
    """1.0 where it is true."""
    return mask.to(torch.float32)


def layout(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Where the first row begins, the bytes from there to the next one, and the bytes of a row."""
    row = tensor.nbytes // max(1, tensor.shape[0])
    return tensor.data_ptr(), tensor.stride(0) * tensor.element_size(), row


def buffers(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """The storage that a tensor looks at: all of it stays as long as the tensor does."""
    storage = tensor.untyped_storage()
    return [(storage.data_ptr(), storage.nbytes())]


def accept_as_dataset(loader_class: type) -> None:
    """Let torch's DataLoader take our loaders as the iterable data sets they are."""
    IterableDataset.register(loader_class)


def logits(model: torch.nn.Module, batch: Any) -> tuple[npt.NDArray[np.float32], float]:
    """What a model says to a batch, as `model(**batch)` would call it, and the precision that it computes in."""
    training = model.training
    device = next((each.device for each in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    model.eval()
    try:
        with torch.no_grad():
            said = model(**{name: tensor.to(device) for name, tensor in batch.items()})
    finally:
        model.train(training)
    found = getattr(said, "logits", said)
    if not isinstance(found, torch.Tensor):
        values = found.values() if isinstance(found, Mapping) else found
        found = next(value for value in values if isinstance(value, torch.Tensor) and value.ndim == 3)
    return found.float().cpu().numpy(), torch.finfo(found.dtype).eps
