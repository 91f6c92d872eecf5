"""Megatron: GPTDataset over .bin/.idx with documents of 1000 tokens, in torch's DataLoader."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from workload import SEED, VOCABULARY, Workload

with warnings.catch_warnings():  # it says at length that no GPU libraries are here
    warnings.simplefilter("ignore")
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
    from megatron.core.datasets.utils import Split

DOCUMENT_TOKENS = 1000
logging.disable(logging.WARNING)


class Vocabulary:
    """The two things GPTDataset asks of a tokenizer; its end and pad ids never occur in the data."""

    vocab_size = VOCABULARY + 2
    eod = VOCABULARY
    pad = VOCABULARY + 1
    unique_identifiers = {"class": "none"}  # noqa: RUF012  (Megatron reads it as a plain attribute)


def _dataset(data: Workload, scratch: Path, seq: int) -> GPTDataset:
    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=seq,
        blend=([str(scratch / "tokens")], None),
        split="1,0,0",
        path_to_cache=str(scratch / "cache"),
        tokenizer=Vocabulary(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    indexed = IndexedDataset(str(scratch / "tokens"), multimodal=False, mmap=True)
    documents = np.arange(len(indexed), dtype=np.int32)
    return GPTDataset(indexed, str(scratch / "tokens"), documents, data.windows(seq), Split.train, config)


def prepare(data: Workload, scratch: Path) -> None:
    """Write .bin and .idx, then let Megatron build and cache its three index arrays."""
    prefix = scratch / "tokens"
    if not prefix.with_suffix(".idx").exists():
        builder = IndexedDatasetBuilder(str(prefix.with_suffix(".bin")), dtype=np.uint16)
        tokens = data.memmap()
        for start in range(0, data.tokens, DOCUMENT_TOKENS):
            builder.add_item(torch.from_numpy(tokens[start : start + DOCUMENT_TOKENS].astype(np.uint16)))
            builder.end_document()
        builder.finalize(str(prefix.with_suffix(".idx")))
    for seq in data.sequences:
        _dataset(data, scratch, seq)


def batches(
    data: Workload, scratch: Path, seq: int, batch: int, *, workers: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Read in order: GPTDataset has shuffled already."""
    dataset = _dataset(data, scratch, seq)
    for block in DataLoader(dataset, batch, drop_last=True, num_workers=workers):
        yield block["tokens"], block["labels"]
