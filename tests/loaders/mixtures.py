"""Mixtures of which some sources are streams, and the rows that each source gives alone."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from chats.chatml import bpe
from loaders.conversations import Chats
from loaders.corpora import LENGTH, TOKENIZER, Delivered, Ranks, corpora, cuts, stream
from millstream import MixedDataLoader, PretrainDataLoader, TokenStore, prepare
from millstream.loaders import ConversationDataLoader

BLOCK = 12
TEXT = ("chunk_size", "documents")
"""Keywords that loaders of conversations do not have."""


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

    def open(self, **given: Any) -> PretrainDataLoader | ConversationDataLoader:
        """Open a loader over it alone; rows are as long as conversations need them, where there are any."""
        shared = {"framework": "numpy", "pad_id": 0, **given}
        chat = {key: shared.pop(key) for key in ("loss", "accumulation") if key in shared}
        if isinstance(self.data, Chats):
            return self.data.loader(**{key: value for key, value in shared.items() if key not in TEXT}, **chat)
        if self.streaming:
            own = {"tokenizer": bpe()} if self.beside_chats else {}
            return stream(self.data, cut=self.cut, **own, **shared)
        return PretrainDataLoader(_store(self.data), tokenizer=TOKENIZER, **{"chunk_size": LENGTH, **shared})


Sources = Mapping[str, Source]


@st.composite
def all_sources(draw: st.DrawFn) -> Sources:
    """One or two streams, and perhaps a store."""
    streams = st.builds(Source, corpora, st.just(value=True), cuts, st.sampled_from([1.0, 2.0, 3.0]))
    stores = st.builds(Source, corpora, st.just(value=False), weight=st.sampled_from([1.0, 2.0]))
    found = {"web": draw(streams.filter(_has_rows))}
    if draw(st.booleans()):
        found["news"] = draw(streams.filter(_has_rows))
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


def mixed_ranks(sources: Sources, world_size: int, global_rows: int, **given: Any) -> Ranks:
    """All ranks of a mixture."""
    return Ranks(partial(mixed, sources), world_size, global_rows, **given)


def alone(name: str, source: Source, rows: int, **given: Any) -> list[tuple[int, ...]]:
    """The first rows of a source by itself, epoch after epoch."""
    with source.open(name=name, seed=3, batch_size=1, **given) as loader:
        return [tuple(loader.next().input_ids[0].tolist()) for _ in range(rows)]


def check_sources(rows: Sequence[Delivered], sources: Sources) -> None:
    """Insist that each source gave its own rows, one after another."""
    for name, source in sources.items():
        own = [row.inputs for row in rows if row.source == name]
        assert own == alone(name, source, len(own))
