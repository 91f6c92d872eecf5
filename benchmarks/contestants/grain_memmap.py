"""Grain: a MapDataset over a memmap, globally shuffled, batched by Grain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grain
import numpy as np
import torch

from workload import SEED, Windows, Workload


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert."""


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Read with `workers` threads in this process; widen the stacked batch once."""
    windows = grain.MapDataset.source(Windows(data, seq)).shuffle(seed=SEED).batch(batch, drop_remainder=True)
    options = grain.ReadOptions(num_threads=workers) if workers != 16 else grain.ReadOptions()
    for block in windows.to_iter_dataset(options):
        wide = torch.from_numpy(block.astype(np.int64))
        yield wide[:, :-1], wide[:, 1:]
