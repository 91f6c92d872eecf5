"""Torch: tensors over the batch's own memory, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset

from millstream.tensors import unknown_device

NAME = "torch"
ID_BYTES = 8


def from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at the array as a tensor."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def share(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at a batch's own memory as a tensor."""
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Look at a tensor as an array; one on a device is copied."""
    return np.asarray(tensor.detach().cpu().numpy())


def to_device(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    """Move a tensor, without waiting where the device allows it."""
    try:
        return tensor.to(torch.device(device), non_blocking=True)
    except torch.OutOfMemoryError:
        raise  # trainers catch it by its name
    except (RuntimeError, TypeError, AssertionError) as error:  # a build without CUDA asserts
        told = str(error).partition("\n")[0]
        raise unknown_device("torch", device, f"torch says: {told}") from error


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
            said = model(**{name: batch[name].to(device) for name in batch.keys()})  # noqa: SIM118 - it is no dict
    finally:
        model.train(training)
    found = getattr(said, "logits", said)
    if not isinstance(found, torch.Tensor):
        values = found.values() if isinstance(found, Mapping) else found
        found = next(value for value in values if isinstance(value, torch.Tensor) and value.ndim == 3)
    return found.float().cpu().numpy(), torch.finfo(found.dtype).eps
