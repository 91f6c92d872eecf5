"""No loader at all: numpy's fancy indexing over a memmap, a batch at a time, in the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from workload import Workload


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert."""


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Take `batch` windows at once and widen them once."""
    rows = sliding_window_view(data.memmap(), seq + 1)
    starts = data.shuffled_starts(seq)
    for first in range(0, len(starts) - batch + 1, batch):
        block = torch.from_numpy(rows[starts[first : first + batch]].astype(np.int64))
        yield block[:, :-1], block[:, 1:]
