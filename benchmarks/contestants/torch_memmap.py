"""What most people write: a map-style Dataset over np.memmap, in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from workload import SEED, Windows, Workload


class Pairs(Windows):
    """Window i as two int64 tensors. Written out: one more call per item would be charged to torch."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        start = index * self.seq
        window = torch.from_numpy(self.tokens[start : start + self.seq + 1].astype(np.int64))
        return window[:-1], window[1:]


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert."""


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Let the DataLoader shuffle, collate and, with workers, move the batches between processes."""
    order = torch.Generator().manual_seed(SEED)
    pairs = cast("Dataset[tuple[torch.Tensor, torch.Tensor]]", Pairs(data, seq))
    yield from DataLoader(pairs, batch, shuffle=True, drop_last=True, num_workers=workers, generator=order)
