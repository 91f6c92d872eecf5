"""What the law tests share: random data, random ways to run over it, and what a run delivers.

Every token of a test store is its own place in all the data, so a row says by itself where it came from.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from millstream import DataLoader, MixedDataLoader, PretrainDataLoader, TokenStore, TokenStoreWriter, TrainingBatch
from millstream.storage import disk
from millstream.store import compressed_blocks

LENGTH = 5
APART = 100_000
"""Between the first tokens of two stores."""


def examples(count: int) -> settings:
    """How many cases a law is tried on; `make fuzz` tries many more. Some laws hold for few of the cases drawn."""
    many = count * (50 if "MILLSTREAM_FUZZ" in os.environ else 1)
    return settings(max_examples=many, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


def make_store(
    lengths: Iterable[int], shard_tokens: int = 10**9, *, start: int = 0, compress: bool = False
) -> TokenStore:
    """Give a store of documents of these lengths, written once; token i of it is start + i."""
    return TokenStore(_written(tuple(lengths), shard_tokens, start, compress))


@cache
def _written(lengths: tuple[int, ...], shard_tokens: int, token: int, compress: bool) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-laws-"), "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", lambda fd: None)  # ten times faster, and no power will fail
        patch.setattr(compressed_blocks, "BLOCK_TOKENS", 16)
        with TokenStoreWriter(path, dtype="uint32", shard_tokens=shard_tokens, compress=compress) as writer:
            for length in lengths:
                writer.append(np.arange(token, token + length, dtype=np.uint32))
                token += length
    return path


@dataclass(frozen=True)
class Data:
    """What a run is over: one store, or several with their places in a mix block."""

    stores: dict[str, TokenStore]
    places: dict[str, int] | None = None

    def loader(self, *, epoch_size: int | None = None, **given: Any) -> DataLoader[TrainingBatch]:
        """Open the loader for it."""
        given = {"framework": "numpy", "chunk_size": LENGTH, **given}
        if self.places is None:
            ((name, store),) = self.stores.items()
            return PretrainDataLoader(store, name=name, **given)
        of_sources = ("chunk_size", "documents", "tail", "shuffle")
        own = {key: given.pop(key) for key in of_sources if key in given}
        entries = {
            name: (PretrainDataLoader(self.stores[name], framework="numpy", **own), float(places))
            for name, places in self.places.items()
        }
        return MixedDataLoader(entries, mix_block=sum(self.places.values()), epoch_size=epoch_size, **given)


@st.composite
def stores(draw: st.DrawFn, least_tokens: int = 12, start: int = 0) -> TokenStore:
    """Stores of a few hundred tokens: any document lengths, empty ones too, in any number of shards, packed or not."""
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=12))
    lengths.append(max(0, least_tokens - sum(lengths)))
    return make_store(lengths, draw(st.sampled_from([1, 7, 50, 10**9])), start=start, compress=draw(st.booleans()))


@st.composite
def mixtures(draw: st.DrawFn) -> Data:
    """Two or three sources, in any proportion."""
    names = draw(st.sampled_from(["ab", "abc"]))
    found = {name: draw(stores(start=number * APART)) for number, name in enumerate(names)}
    return Data(found, {name: draw(st.integers(1, 4)) for name in names})


ONE = stores().map(lambda store: Data({"data": store}))
SEVERAL = mixtures()


@dataclass(frozen=True)
class Work:
    """How a run is executed: none of this may change what comes out."""

    threads: int
    prefetch: int
    world_size: int


row_kinds = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(["global", "local", False]),
        "documents": st.sampled_from(["attend", "isolate", "row"]),
        "tail": st.sampled_from(["drop", "pad"]),
    }
)


@dataclass(frozen=True)
class Row:
    """A row as it was delivered."""

    source: str
    epoch: int
    inputs: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...] | None
    length: int
    weights: tuple[float, ...] = ()
    """Of the labels."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The inputs that are no padding."""
        return self.inputs[: self.length]


def rows_of(batch: TrainingBatch, source: str = "data") -> list[Row]:
    """Copy the rows of a batch, so that its buffer may be used again; `source` is theirs where the batch names none."""
    rows, length = batch.metadata["rows"], batch.metadata["sequence_length"]
    names = batch.metadata.get("source", [source] * rows)
    lengths = [length] * rows if batch.lengths is None else batch.lengths.tolist()
    positions = [None] * rows if batch.position_ids is None else map(tuple, batch.position_ids.tolist())
    weights = batch.loss_mask if batch.loss_weights is None else batch.loss_weights
    columns = map(tuple, batch.input_ids.tolist()), map(tuple, batch.labels.tolist()), positions, lengths
    return [
        Row(name, batch.metadata["epoch"], inputs, labels, places, real, weighed)
        for name, inputs, labels, places, real, weighed in zip(
            names, *columns, map(tuple, weights.tolist()), strict=True
        )
    ]


def samples_of(store: TokenStore, documents: str, tail: str, length: int = LENGTH) -> list[tuple[int, ...]]:
    """The input tokens of every sample of a store; that the last token has no target counts only where rows are cut."""
    if documents == "row":
        return [tuple(store.document(number)[:length].tolist()) for number in range(store.documents)]
    inputs, tokens = len(store) - 1, store[:].tolist()
    whole = inputs if tail == "pad" else inputs // length * length
    return [tuple(tokens[at : at + length]) for at in range(0, whole, length)]


Opened = TypeVar("Opened", bound=DataLoader[TrainingBatch], covariant=True)


class Opens(Protocol[Opened]):
    """Data that a loader can be opened over."""

    def loader(self, **given: Any) -> Opened:
        """Open one."""


class Ranks(Generic[Opened]):
    """The loaders of all ranks of one run, stepped together."""

    def __init__(self, data: Opens[Opened], work: Work, global_rows: int, **given: Any) -> None:
        shared = {"threads": work.threads, "prefetch": work.prefetch, "world_size": work.world_size, **given}
        rows = global_rows // work.world_size
        self.loaders = [data.loader(batch_size=rows, rank=rank, **shared) for rank in range(work.world_size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for loader in self.loaders:
                stack.callback(loader.close)

    def load(self, state: dict[str, Any]) -> None:
        """Let every rank go on from a state."""
        for loader in self.loaders:
            loader.load_state_dict(state)

    def state(self) -> dict[str, Any]:
        """The state, which is that of every rank."""
        first, *others = [loader.state_dict() for loader in self.loaders]
        assert all(other == first for other in others)
        return first

    def step(self) -> list[Row]:
        """Take one step on all ranks: the rows of the global batch."""
        return [row for loader in self.loaders for row in rows_of(loader.next())]

    def steps(self, count: int) -> list[Row]:
        """Take several steps."""
        return [row for _ in range(count) for row in self.step()]

    def epoch(self) -> list[Row]:
        """Take the rest of the present epoch."""
        present, taken = self.loaders[0].epoch, []
        while self.loaders[0].epoch == present:
            taken += self.step()
        return taken
