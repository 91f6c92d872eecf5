"""What the law tests share: random stores, random recipes, and ways to watch a run.

Every token of a test store is its own place in the store, so a row says by itself where it came from.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

from millstream import PretrainDataLoader, TokenStore, TokenStoreWriter, TrainingBatch
from millstream.loaders.stores import StoreDataLoader

Rows = npt.NDArray[Any]


def examples(count: int) -> settings:
    """How many cases a law is tried on; `make fuzz` tries many more."""
    return settings(max_examples=count * (50 if "MILLSTREAM_FUZZ" in os.environ else 1), deadline=None)


def make_store(lengths: list[int], shard_tokens: int = 10**9, *, start: int = 0) -> TokenStore:
    """Write documents of these lengths; token i of the store is start + i."""
    path = Path(tempfile.mkdtemp(prefix="millstream-laws-"), "store")
    token = start
    with TokenStoreWriter(path, dtype="uint32", shard_tokens=shard_tokens) as writer:
        for length in lengths:
            writer.append(np.arange(token, token + length, dtype=np.uint32))
            token += length
    return TokenStore(path)


@st.composite
def stores(draw: st.DrawFn, least_tokens: int = 12) -> TokenStore:
    """Stores of a few hundred tokens: any document lengths, empty ones too, in any number of shards."""
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=12))
    lengths.append(max(0, least_tokens - sum(lengths)))
    return make_store(lengths, draw(st.sampled_from([1, 7, 50, 10**9])))


@dataclass(frozen=True)
class Work:
    """How a run is executed: none of this may change what comes out."""

    threads: int
    prefetch: int
    world_size: int


works = st.builds(Work, threads=st.integers(1, 4), prefetch=st.integers(1, 9), world_size=st.integers(1, 4))
shuffles = st.sampled_from(["global", "local", False])


class Ranks:
    """The loaders of all ranks of one run, stepped together."""

    def __init__(self, loaders: list[StoreDataLoader]) -> None:
        self.loaders = loaders

    @classmethod
    def pretrain(cls, store: TokenStore, work: Work, global_rows: int, **settings: Any) -> Ranks:
        """Make a pretraining run of `global_rows` rows a step; a number that the ranks divide."""
        shared = {"threads": work.threads, "prefetch": work.prefetch, "world_size": work.world_size, **settings}
        rows = global_rows // work.world_size
        return cls(
            [
                PretrainDataLoader(store, batch_size=rows, rank=rank, framework="numpy", **shared)
                for rank in range(work.world_size)
            ]
        )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for loader in self.loaders:
                stack.callback(loader.close)

    def step(self) -> Rows:
        """Take one step on all ranks: the rows of the global batch, inputs and labels side by side."""
        return np.concatenate([rows_of(loader.next()) for loader in self.loaders])

    def steps(self, count: int) -> list[Rows]:
        """Take several steps."""
        return [self.step() for _ in range(count)]

    def epoch(self) -> list[Rows]:
        """Take the rest of the present epoch."""
        present = self.loaders[0].epoch
        taken = []
        while self.loaders[0].epoch == present:
            taken.append(self.step())
        return taken


def rows_of(batch: TrainingBatch) -> Rows:
    """Copy inputs and labels of a batch, side by side, so that its buffer may be used again."""
    return np.concatenate([batch.input_ids, batch.labels], axis=1)


def joined(steps: list[Rows]) -> Rows:
    """All rows of some steps, one below the other."""
    return np.concatenate(steps)


def windows(store: TokenStore, length: int) -> Iterator[int]:
    """The first token of each window of a store."""
    return iter(range(0, (len(store) - 1) // length * length, length))
