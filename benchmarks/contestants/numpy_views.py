"""numpy_take with labels as a view of the inputs' buffer: half the stores, not contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from contestants.numpy_take import blocks, prepare
from workload import Workload

__all__ = ["batches", "prepare"]


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Take `batch` windows at once and widen them once."""
    for block in blocks(data, seq, batch):
        wide = torch.from_numpy(block.astype(np.int64))
        yield wide[:, :-1], wide[:, 1:]
