"""Torch: tensors over the batch's own memory, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

NAME = "torch"
ID_BYTES = 8
SHARES_MEMORY = True


def from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at the array as a tensor."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def share(array: npt.NDArray[Any]) -> torch.Tensor:
    """Look at a batch's own memory as a tensor."""
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Look at a tensor as an array; one on a device is copied."""
    return np.asarray(tensor.detach().cpu().numpy())


def to_device(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Move a tensor, without waiting where the device allows it."""
    return tensor.to(device, non_blocking=True)


def accept_as_dataset(loader_class: type) -> None:
    """Let torch's DataLoader take our loaders as the iterable data sets they are."""
    IterableDataset.register(loader_class)


def inside_worker() -> bool:
    """Whether this runs in a worker process of torch's DataLoader."""
    return get_worker_info() is not None
