"""MosaicML streaming: MDS shards of fixed windows, StreamingDataset in torch's DataLoader."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from workload import SEED, Workload

# Its image datasets are imported with the package and need a torchvision that fits torch's build.
# Nothing here uses them, so they are left out; every other part is the package's own code.
sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
from streaming import MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def _folder(scratch: Path, seq: int) -> Path:
    return scratch / f"mds-{seq}"


def prepare(data: Workload, scratch: Path) -> None:
    """Write one sample of seq + 1 tokens per window."""
    tokens = data.memmap()
    for seq in data.sequences:
        folder = _folder(scratch, seq)
        if (folder / "index.json").exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        columns = {"tokens": f"ndarray:uint16:{seq + 1}"}
        with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 26) as writer:
            for start in range(0, data.windows(seq) * seq, seq):
                writer.write({"tokens": np.asarray(tokens[start : start + seq + 1])})


def _collate(samples: list[dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint16]]]]) -> torch.Tensor:
    return torch.from_numpy(np.stack([sample["tokens"] for sample in samples]).astype(np.int64))


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Read local shards in the order of its default shuffle (py1e)."""
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(_folder(scratch, seq)), shuffle=True, shuffle_seed=SEED, batch_size=batch)
    loader = DataLoader(dataset, batch, drop_last=True, num_workers=workers, collate_fn=_collate)
    for block in loader:
        yield block[:, :-1], block[:, 1:]
