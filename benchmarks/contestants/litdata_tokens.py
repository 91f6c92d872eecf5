"""LitData: its token chunks, TokensLoader and StreamingDataLoader."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
from litdata.streaming.cache import Cache

from workload import SEED, Workload

CHUNK_TOKENS = 1 << 24


def _folder(scratch: Path, seq: int) -> Path:
    return scratch / f"chunks-{seq}"


def prepare(data: Workload, scratch: Path) -> None:
    """Write the tokens as chunks that hold whole blocks."""
    tokens = data.memmap()
    for seq in data.sequences:
        folder = _folder(scratch, seq)
        if (folder / "index.json").exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        chunk = CHUNK_TOKENS // (seq + 1) * (seq + 1)
        cache = Cache(str(folder), chunk_bytes=2 * chunk + 4096, item_loader=TokensLoader(seq + 1))
        for number, start in enumerate(range(0, data.tokens, chunk)):
            cache[number] = torch.from_numpy(tokens[start : start + chunk].astype(np.uint16))
        cache.done()
        cache.merge()


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Read blocks of seq + 1 tokens in LitData's own shuffled order."""
    blocks = StreamingDataset(
        str(_folder(scratch, seq)), item_loader=TokensLoader(seq + 1), shuffle=True, drop_last=True, seed=SEED
    )
    for block in StreamingDataLoader(blocks, batch_size=batch, num_workers=workers, drop_last=True):
        wide = block.to(torch.int64)
        yield wide[:, :-1], wide[:, 1:]
