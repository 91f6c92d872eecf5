"""The data every contestant reads: one file of uint16 tokens, cut into windows.

Window i is tokens[i * seq, i * seq + seq + 1): `seq` inputs and the same shifted by one as labels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

VOCABULARY = 50_257
EPOCH_TOKENS = 400_000_000
SEED = 0

Tokens: TypeAlias = npt.NDArray[np.uint16]
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """A token file and the sequence lengths it will be cut into."""

    path: Path
    tokens: int
    sequences: tuple[int, ...]

    def windows(self, seq: int) -> int:
        """How many windows of `seq` inputs and one more label fit into the file."""
        return (self.tokens - 1) // seq

    def memmap(self) -> Tokens:
        """Map the file read-only."""
        return np.memmap(self.path, dtype=np.uint16, mode="r", shape=(self.tokens,))

    def shuffled_starts(self, seq: int) -> Indices:
        """Give the first token of every window, in a globally shuffled order."""
        return np.random.default_rng(SEED).permutation(self.windows(seq)) * seq


class Windows:
    """The windows as a random access data source: a length and an item."""

    def __init__(self, data: Workload, seq: int) -> None:
        self.tokens = data.memmap()
        self.seq = seq
        self.count = data.windows(seq)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tokens:
        start = index * self.seq
        return self.tokens[start : start + self.seq + 1]


def make_workload(scratch: Path, tokens: int, sequences: tuple[int, ...]) -> Workload:
    """Write the token file unless it is there already, whole."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "tokens.bin"
    if not path.exists() or path.stat().st_size != 2 * tokens:
        rng = np.random.default_rng(SEED)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for start in range(0, tokens, 1 << 24):
                count = min(1 << 24, tokens - start)
                file.write(rng.integers(0, VOCABULARY, count, dtype=np.uint16).tobytes())
        part.rename(path)
    return Workload(path, tokens, sequences)


def warm(folder: Path) -> int:
    """Read every file below `folder` once, so that it is in the page cache; give the bytes read."""
    read = 0
    buffer = bytearray(1 << 22)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            while count := os.readv(descriptor, [buffer]):
                read += count
        finally:
            os.close(descriptor)
    return read
