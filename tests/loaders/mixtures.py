"""Mixtures of which some sources are streams, and the rows that each source gives alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from chats.chatml import bpe
from loaders.conversations import Chats
from loaders.corpora import LENGTH, TOKENIZER, Ranks, corpora, cuts, stream
from millstream import MixedDataLoader, PretrainDataLoader, TokenStore, TrainingBatch, prepare
from millstream.loaders import ConversationDataLoader

BLOCK = 12


@cache
def _store(folder: Path) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-mixture-"), "store")
    prepare(folder, path, TOKENIZER, workers=1, cache=False)
    return path


@dataclass(frozen=True)
class Source:
    """A source, as a stream or as a store; or conversations."""

    data: Path | Chats
    streaming: bool = True
    cut: int = 64
    weight: float = 1.0
    beside_chats: bool = False
    """Whether its ids are those of the conversations' tokenizer."""

    def open(self, **given: Any) -> PretrainDataLoader | PretrainDataLoader | ConversationDataLoader:
        """Open a loader over it alone; rows are as long as conversations need them, where there are any."""
        shared = {"framework": "numpy", "pad_id": 0, **given}
        chat = {key: shared.pop(key) for key in ("loss", "accumulation") if key in shared}
        if isinstance(self.data, Chats):
            return self.data.loader(**{key: value for key, value in shared.items() if key != "chunk_size"}, **chat)
        if self.streaming:
            own = {"tokenizer": bpe()} if self.beside_chats else {}
            return stream(self.data, cut=self.cut, **own, **shared)
        return PretrainDataLoader(_store(self.data), tokenizer=TOKENIZER, **{"chunk_size": LENGTH, **shared})


Sources = Mapping[str, Source]
streams = st.builds(Source, corpora, st.just(value=True), cuts, st.sampled_from([1.0, 2.0, 3.0]))
stores = st.builds(Source, corpora, st.just(value=False), weight=st.sampled_from([1.0, 2.0]))


@st.composite
def all_sources(draw: st.DrawFn) -> Sources:
    """One or two streams, and perhaps a store."""
    found = {"web": draw(streams)}
    if draw(st.booleans()):
        found["news"] = draw(streams)
    if draw(st.booleans()):
        found["books"] = draw(stores.filter(_has_rows))
    return found


def _has_rows(source: Source) -> bool:
    assert isinstance(source.data, Path)
    with TokenStore(_store(source.data)) as store:
        return len(store) > LENGTH


def mixed(sources: Sources, *, members: Mapping[str, Any] | None = None, **given: Any) -> MixedDataLoader:
    """Mix sources; `members` are settings of the mixed loaders."""
    how = {"rank": 0, "world_size": 1, "seed": 3, **(members or {})}
    parts = {name: (source.open(name=name, **how), source.weight) for name, source in sources.items()}
    loader: Any = MixedDataLoader(parts, **{"framework": "numpy", "mix_block": BLOCK, "seed": 3, **given})
    assert isinstance(loader, MixedDataLoader)
    return loader


@dataclass(frozen=True)
class MixedRow:
    """A row, its number in the run and its source."""

    sample: int
    source: str
    inputs: tuple[int, ...]
    labels: tuple[int, ...]


class MixedRanks(Ranks[MixedRow]):
    """The loaders of all ranks of a mixture, stepped together."""

    def __init__(self, sources: Sources, world_size: int, global_rows: int, **given: Any) -> None:
        how = {"world_size": world_size, "batch_size": max(1, global_rows // world_size), **given}
        self.loaders = [mixed(sources, rank=rank, **how) for rank in range(world_size)]

    def rows_of(self, batch: TrainingBatch, samples: range) -> list[MixedRow]:
        """The rows of a batch; filler is none."""
        return rows_of(batch, samples)


def rows_of(batch: TrainingBatch, samples: range) -> list[MixedRow]:
    """The rows of a batch of a mixture; filler is none."""
    columns = (batch.metadata["source"], batch.input_ids.tolist(), batch.labels.tolist())
    return [
        MixedRow(sample, name, tuple(inputs), tuple(labels))
        for sample, name, inputs, labels in zip(samples, *columns, strict=False)
    ]


def alone(name: str, source: Source, rows: int, **given: Any) -> list[tuple[int, ...]]:
    """The first rows of a source by itself, epoch after epoch."""
    with source.open(name=name, seed=3, batch_size=1, **given) as loader:
        return [tuple(loader.next().input_ids[0].tolist()) for _ in range(rows)]


def lanes_of(sources: Sources) -> int:
    """The lanes of a mixture: those of the stream that has fewest."""
    opened = (source.open() for source in sources.values() if source.streaming and isinstance(source.data, Path))
    return min(loader.stream.lanes for loader in opened if isinstance(loader, PretrainDataLoader))


def check_sources(rows: list[MixedRow], sources: Sources, lanes: int) -> None:
    """Insist that each source gave, in each lane, its own rows of that lane, one after another."""
    for name, source in sources.items():
        own = [(row.sample, row.inputs) for row in rows if row.source == name]
        check_lanes(own, lanes, lambda count: alone(name, source, count))  # noqa: B023 - called at once


def check_lanes(rows: Sequence[tuple[int, Any]], lanes: int, alone: Callable[[int], list[Any]]) -> None:
    """Insist that rows, each with its number in the run, are in each lane those that their source gives alone."""
    by_lane = [[row for sample, row in rows if sample % lanes == lane] for lane in range(lanes)]
    expected = alone(lanes * max(map(len, by_lane)))
    assert by_lane == [expected[lane::lanes][: len(found)] for lane, found in enumerate(by_lane)]
