"""No loader at all: numpy's fancy indexing over a memmap, a batch at a time, in the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from workload import Tokens, Workload


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert."""


def blocks(data: Workload, seq: int, batch: int) -> Iterator[Tokens]:
    """Give `batch` shuffled windows of seq + 1 tokens at a time, as they are in the file."""
    rows = sliding_window_view(data.memmap(), seq + 1)
    starts = data.shuffled_starts(seq)
    for first in range(0, len(starts) - batch + 1, batch):
        yield rows[starts[first : first + batch]]


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Take `batch` windows at once, then widen them into two arrays."""
    for block in blocks(data, seq, batch):
        yield (
            torch.from_numpy(block[:, :-1].astype(np.int64)),
            torch.from_numpy(block[:, 1:].astype(np.int64)),
        )
