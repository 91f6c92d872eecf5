"""The limit for whoever hands batches over: three pairs of buffers in turn, since one is read while the next is filled.

A loader that gives its buffer away cannot refill it at once. One pair of 2 MB stays in the second-level cache, three do
not: the difference to `limit` is what the memory below costs, not what a loader does.
"""

from __future__ import annotations

import ctypes
from itertools import cycle
from pathlib import Path

import torch

from contestants import limit
from contestants.limit import batches, prepare
from workload import Workload

__all__ = ["Gather", "batches", "prepare"]

BUFFERS = 3


class Gather(limit.Gather):
    """The same kernel, batch by batch into one of three pairs of buffers; one call into C++ per batch."""

    def __init__(self, data: Workload, scratch: Path, seq: int, batch: int) -> None:
        super().__init__(data, scratch, seq, batch)
        self.pairs = [[torch.zeros(batch, seq, dtype=torch.int64) for _ in range(2)] for _ in range(BUFFERS)]

    def many(self, batches: int) -> None:
        """Fill `batches` batches, each into the next pair of buffers."""
        gather = self.native.gather
        gather.restype = None
        gather.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2 + [ctypes.c_void_p] * 2
        tokens, first = self.tokens.ctypes.data, self.starts.ctypes.data
        stride = self.batch * self.starts.itemsize
        places = cycle([tuple(tensor.data_ptr() for tensor in pair) for pair in self.pairs])
        for number, (inputs, labels) in zip(range(batches), places, strict=False):
            gather(tokens, first + number * stride, self.batch, self.seq, inputs, labels)
        self.inputs, self.labels = self.pairs[(batches - 1) % BUFFERS]
