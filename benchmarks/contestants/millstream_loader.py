"""Millstream: PretrainDataLoader over the same token file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from millstream import PretrainDataLoader
from workload import SEED, Workload


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert: raw tokens are mapped as they are."""


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 1, passes_before: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One native thread fills the ring; every batch is two torch tensors over the ring's memory."""
    loader = PretrainDataLoader(
        data.path,
        chunk_size=seq,
        batch_size=batch,
        seed=SEED,
        shuffle="global",
        threads=workers,
        framework="torch",
        dtype="uint16",
    )
    for _ in range(passes_before):
        for _unseen in loader:
            pass
    for _ in range(data.windows(seq) // batch):
        block = loader.next()
        yield block.input_ids, block.labels
