"""SPDL: a pipeline of threads over a memmap, a whole batch per task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from spdl.pipeline import PipelineBuilder

from workload import Indices, Workload


def prepare(data: Workload, scratch: Path) -> None:
    """Nothing to convert."""


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 2
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Send the starts of each batch through `workers` threads."""
    rows = sliding_window_view(data.memmap(), seq + 1)
    starts = data.shuffled_starts(seq)

    def source() -> Iterator[Indices]:
        for first in range(0, len(starts) - batch + 1, batch):
            yield starts[first : first + batch]

    def load(chosen: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        block = torch.from_numpy(rows[chosen].astype(np.int64))
        return block[:, :-1], block[:, 1:]

    builder = PipelineBuilder().add_source(source()).pipe(load, concurrency=workers).add_sink(8)
    with (pipeline := builder.build(num_threads=workers)).auto_stop():
        yield from pipeline
