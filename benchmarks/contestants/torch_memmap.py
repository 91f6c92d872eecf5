"""What most people write: a map-style Dataset over np.memmap, in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from workload import SEED, Workload


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Window i of the token file as two int64 tensors."""

    def __init__(self, data: Workload, seq: int) -> None:
        self.tokens = data.memmap()
        self.seq = seq
        self.count = data.windows(seq)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
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
    loader = DataLoader(Windows(data, seq), batch, shuffle=True, drop_last=True, num_workers=workers, generator=order)
    yield from loader
