"""Hugging Face datasets: one memory-mapped Arrow file of fixed windows, shuffled, in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, disable_progress_bars
from numpy.lib.stride_tricks import sliding_window_view
from torch.utils.data import DataLoader

from workload import SEED, Workload

ROWS_BYTES = 1 << 24


def _file(scratch: Path, seq: int) -> Path:
    return scratch / f"windows-{seq}.arrow"


def prepare(data: Workload, scratch: Path) -> None:
    """Write the windows as fixed-size lists in one Arrow stream, as `Dataset.save_to_disk` would."""
    for seq in data.sequences:
        if _file(scratch, seq).exists():
            continue
        rows = sliding_window_view(data.memmap(), seq + 1)[::seq]
        field = pa.field("tokens", pa.list_(pa.uint16(), seq + 1))
        schema = pa.schema([field])
        part = _file(scratch, seq).with_suffix(".part")
        step = max(1, ROWS_BYTES // (2 * (seq + 1)))
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for first in range(0, data.windows(seq), step):
                flat = pa.array(np.ascontiguousarray(rows[first : first + step]).reshape(-1))
                lists = pa.FixedSizeListArray.from_arrays(flat, seq + 1)
                writer.write_batch(pa.record_batch([lists], schema=schema))
        part.rename(_file(scratch, seq))


def _collate(block: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint16]]]) -> torch.Tensor:
    return torch.from_numpy(block["tokens"].astype(np.int64))


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Shuffle the index table, then read whole batches as numpy: its fastest road for numbers."""
    disable_progress_bars()
    dataset = Dataset.from_file(str(_file(scratch, seq))).shuffle(seed=SEED, keep_in_memory=True)
    dataset = dataset.with_format("numpy")
    if workers == 0:
        for block in dataset.iter(batch, drop_last_batch=True):
            wide = _collate(block)
            yield wide[:, :-1], wide[:, 1:]
        return
    loader = DataLoader(dataset, batch, drop_last=True, num_workers=workers)
    for block in loader:
        wide = block["tokens"].to(torch.int64)
        yield wide[:, :-1], wide[:, 1:]
