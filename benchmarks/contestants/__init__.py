"""Who takes part: one module per contestant, one entry per way of running it.

Every module has `prepare(data, scratch)`, which converts the data to its own format once, and
`batches(data, scratch, seq, batch, *, workers)`, which yields int64 (input_ids, labels) for one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import torch

from workload import Workload


class Kind(Enum):
    """What a row of the table is: the bound, a bare loop without a loader, another loader, or ours."""

    LIMIT = "limit"
    HAND = "by hand"
    PEER = "peer"
    OURS = "ours"


class Contestant(Protocol):
    """The interface each module of this folder offers."""

    def prepare(self, data: Workload, scratch: Path) -> None:
        """Convert the data to the contestant's own format, unless that has been done."""

    def batches(
        self, data: Workload, scratch: Path, seq: int, batch: int, *, workers: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield one epoch of batches."""


@dataclass(frozen=True)
class Entry:
    """One row of the table. `workers` means threads or processes, whatever the contestant has."""

    name: str
    module: str
    kind: Kind
    workers: int = 0
    note: str = ""
    package: str = ""
    native_loop: bool = False
    document_tokens: int = 0  # when rows are put together from shuffled documents of this length

    def load(self) -> Contestant:
        """Import the contestant's module, and with it the peer it measures."""
        return cast("Contestant", import_module(f"contestants.{self.module}"))


STRIDED = "labels are a view of the inputs' buffer"
WEAKER = f"shuffles chunks, then inside; {STRIDED}"
GLUED = "rows of shuffled documents of 1000 tokens; also makes loss mask and positions"

ENTRIES = (
    Entry("limit", "limit", Kind.LIMIT, note="C++ only, one reused pair of buffers", native_loop=True),
    Entry("limit, handed over", "limit_handed_over", Kind.LIMIT, note="three pairs in turn", native_loop=True),
    Entry("limit, views", "limit_views", Kind.LIMIT, note=STRIDED, native_loop=True),
    Entry("limit, called from Python", "limit", Kind.LIMIT, note="one call per batch"),
    Entry("millstream", "millstream_loader", Kind.OURS, 1, "", "millstream"),
    Entry("millstream, second pass", "millstream_second", Kind.OURS, 1, "no page faults, as the limit", "millstream"),
    Entry("numpy take", "numpy_take", Kind.HAND, note="no loader: fancy indexing in the training loop"),
    Entry("numpy take, views", "numpy_views", Kind.HAND, note=STRIDED),
    Entry("torch DataLoader 0w", "torch_memmap", Kind.PEER, note="hand-written memmap Dataset"),
    Entry("torch DataLoader 2w", "torch_memmap", Kind.PEER, 2, "hand-written memmap Dataset"),
    Entry("SPDL 2 threads", "spdl_threads", Kind.PEER, 2, STRIDED, "spdl"),
    Entry("LitData 0w", "litdata_tokens", Kind.PEER, 0, WEAKER, "litdata"),
    Entry("LitData 2w", "litdata_tokens", Kind.PEER, 2, WEAKER, "litdata"),
    Entry("Grain 0 threads", "grain_memmap", Kind.PEER, 0, STRIDED, "grain"),
    Entry("Grain 16 threads", "grain_memmap", Kind.PEER, 16, f"its default; {STRIDED}", "grain"),
    Entry("Megatron 0w", "megatron_gpt", Kind.PEER, 0, GLUED, "megatron-core", document_tokens=1000),
    Entry("Megatron 2w", "megatron_gpt", Kind.PEER, 2, GLUED, "megatron-core", document_tokens=1000),
    Entry("MosaicML 0w", "mosaic_mds", Kind.PEER, 0, STRIDED, "mosaicml-streaming"),
    Entry("MosaicML 2w", "mosaic_mds", Kind.PEER, 2, STRIDED, "mosaicml-streaming"),
    Entry("HF datasets 0w", "hf_arrow", Kind.PEER, 0, STRIDED, "datasets"),
    Entry("HF datasets 2w", "hf_arrow", Kind.PEER, 2, STRIDED, "datasets"),
)
