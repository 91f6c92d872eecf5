"""The limit: a bare C++ gather of the same windows into one reused pair of buffers.

`Gather.many` stays in C++ for all batches. `batches` asks C++ once per batch, so the difference between the
two is what Python alone costs per batch.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from workload import Workload

SOURCE = Path(__file__).resolve().parent.parent / "native" / "gather.cpp"
COMPILE = ["g++", "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-Wall", "-Wextra"]


def _library(scratch: Path) -> Path:
    digest = hashlib.blake2b(SOURCE.read_bytes() + " ".join(COMPILE).encode(), digest_size=8).hexdigest()
    return scratch / f"gather-{digest}.so"


def prepare(data: Workload, scratch: Path) -> None:
    """Compile the kernel for this machine."""
    library = _library(scratch)
    if not library.exists():
        subprocess.run([*COMPILE, str(SOURCE), "-o", str(library)], check=True)


class Gather:
    """The kernel with everything it needs already in place: mapping, order, and one pair of buffers or several."""

    PAIRS = 1

    def __init__(self, data: Workload, scratch: Path, seq: int, batch: int) -> None:
        self.native = ctypes.CDLL(str(_library(scratch)))  # CDLL calls release the GIL
        self.seq, self.batch = seq, batch
        # Populated: the page faults of a first pass are not part of the limit.
        with data.path.open("rb") as file:
            flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
            self.mapping = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
        self.tokens = np.frombuffer(self.mapping, dtype=np.uint16)
        self.starts = data.shuffled_starts(seq)
        self._inputs, self._labels = torch.zeros(2, self.PAIRS, batch, seq, dtype=torch.int64)
        self.inputs, self.labels = self._inputs[0], self._labels[0]

    def many(self, batches: int) -> None:
        """Fill `batches` batches without coming back to Python."""
        self.native.gather_many(
            ctypes.c_void_p(self.tokens.ctypes.data),
            ctypes.c_void_p(self.starts.ctypes.data),
            ctypes.c_size_t(batches),
            ctypes.c_size_t(self.batch),
            ctypes.c_size_t(self.seq),
            ctypes.c_size_t(self.PAIRS),
            ctypes.c_void_p(self._inputs.data_ptr()),
            ctypes.c_void_p(self._labels.data_ptr()),
        )
        last = (batches - 1) % self.PAIRS
        self.inputs, self.labels = self._inputs[last], self._labels[last]

    def each(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Fill batch after batch, one call into C++ each."""
        gather = self.native.gather
        gather.restype = None
        gather.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2 + [ctypes.c_void_p] * 2
        tokens, starts = self.tokens.ctypes.data, self.starts.ctypes.data
        inputs, labels = self.inputs.data_ptr(), self.labels.data_ptr()
        stride = self.batch * self.starts.itemsize
        for first in range(starts, starts + len(self.starts) // self.batch * stride, stride):
            gather(tokens, first, self.batch, self.seq, inputs, labels)
            yield self.inputs, self.labels


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Gather batch by batch, one call into C++ each; every batch is the same two tensors, refilled."""
    yield from Gather(data, scratch, seq, batch).each()
