"""The limit when labels may be a view of the inputs' buffer: half the stores, not contiguous."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from contestants import limit
from contestants.limit import batches, prepare
from workload import Workload

__all__ = ["Gather", "batches", "prepare"]


class Gather(limit.Gather):
    """The same kernel into one buffer of rows of seq + 1."""

    def __init__(self, data: Workload, scratch: Path, seq: int, batch: int) -> None:
        super().__init__(data, scratch, seq, batch)
        self.block = torch.zeros(batch, seq + 1, dtype=torch.int64)
        self.inputs, self.labels = self.block[:, :-1], self.block[:, 1:]

    def many(self, batches: int) -> None:
        """Fill `batches` batches without coming back to Python."""
        self.native.gather_many_views(
            ctypes.c_void_p(self.tokens.ctypes.data),
            ctypes.c_void_p(self.starts.ctypes.data),
            ctypes.c_size_t(batches),
            ctypes.c_size_t(self.batch),
            ctypes.c_size_t(self.seq),
            ctypes.c_void_p(self.block.data_ptr()),
        )
