"""Millstream when every page of the store has been touched once, as with the limit, whose mapping is populated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from contestants import millstream_loader
from contestants.millstream_loader import prepare
from workload import Workload

__all__ = ["batches", "prepare"]


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 1
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pass through the data once, unseen, then hand out the second epoch."""
    return millstream_loader.batches(data, scratch, seq, batch, workers=workers, passes_before=1)
