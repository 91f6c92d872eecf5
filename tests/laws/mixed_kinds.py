"""Mixtures: stores or streams beside conversations and rollouts, and any streams beside each other and a store."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from chats.chatml import bpe
from laws.case import Kind, Row, State, Team
from laws.token_kinds import Tokens, interleaved, rows_of
from loaders import mixtures
from loaders.conversations import Chats
from loaders.corpora import TOKENIZER, corpus
from millstream import (
    MixedDataLoader,
    PretrainDataLoader,
    RolloutDataLoader,
    RowOrigin,
    TokenStore,
    merge_states,
    prepare,
)
from millstream.loaders.stream_explain import StreamSpan
from millstream.order.mix import quotas
from rollouts.samples import random_rollouts

BLOCK = 6
CHATS = 30
RAW = (("jsonl", tuple(range(9)) * 6), ("jsonl", (4,) * 30))


@dataclass(frozen=True)
class Mixed(Tokens):
    """A store or a stream beside conversations or rollouts; each source gives its own rows in its own order."""

    beside: str
    streaming: bool = False
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)

    def __post_init__(self) -> None:
        for name in ("knows_ahead", "seeks"):
            object.__setattr__(self, name, not self.streaming)
        object.__setattr__(self, "first_is_enough", self.streaming)

    @property
    def length(self) -> int:
        return 64 if self.beside == "chats" else 24

    @property
    def tokenizer(self) -> Any:
        return bpe() if self.beside == "chats" else TOKENIZER

    def parts(self, folder: Path, **given: Any) -> dict[str, tuple[Any, float]]:
        """The sources, each alone."""
        own: dict[str, Any] = {"framework": "numpy", "seed": 9, "cache_dir": folder, "rank": 0, "world_size": 1}
        own |= given
        text: dict[str, Any] = {"chunk_size": self.length, "pad_id": 0, "tokenizer": self.tokenizer, **own}
        if self.streaming:
            web: Any = PretrainDataLoader(corpus(RAW), streaming=True, reading={"chunk_bytes": 100}, name="web", **text)
        else:
            web = PretrainDataLoader(_stored(corpus(RAW), self.beside == "chats"), name="web", **text)
        other: Any
        if self.beside == "chats":
            chats = Chats(tuple(random.Random(4).choices(range(1, 30), k=CHATS)), "growing", packing=False)
            other = replace(chats, cache=folder / "chats").loader(
                pad_id=0, name="chats", **{**own, "cache_dir": folder}
            )
        else:
            other = RolloutDataLoader(RECORDS, max_length=self.length, name="rollouts", **own)
        return {"web": (web, 2.0), self.beside: (other, 1.0)}

    def open(self, folder: Path, **how: Any) -> Any:
        given = {"framework": "numpy", "mix_block": BLOCK, "epoch_size": 48, "cache_dir": folder, **how}
        return MixedDataLoader(self.parts(folder), **given)

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        return interleaved(start, of_ranks) if self.streaming else super().merged(start, of_ranks)

    def joined(self, states: Sequence[State]) -> State:
        return merge_states(states) if self.streaming else super().joined(states)

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Each source gives the rows that it gives alone, in its order; where there are lanes, in each of them."""
        assert [len(epoch) for epoch in epochs] == [48] * len(epochs)
        rows = [row for epoch in epochs for row in epoch]
        lanes = run.loaders[0].state_dict()["lanes"] if self.streaming else 1
        check_blocks(rows, {"web": 2.0, self.beside: 1.0}, BLOCK)
        with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
            for name, (loader, _) in self.parts(Path(place), batch_size=1).items():
                stack.callback(loader.close)
                own = [(number, row.name) for number, row in enumerate(rows) if row.source == name]
                mixtures.check_lanes(own, lanes, lambda count: alone(loader, count))  # noqa: B023 - called at once

    def documents(self, loader: Any) -> list[Any]:
        with TokenStore(_stored(corpus(RAW), self.beside == "chats")) as store:
            counts = {"web": store.documents, self.beside: CHATS if self.beside == "chats" else len(RECORDS)}
        return [(number, name) for name, count in counts.items() for number in range(count)]

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        assert origin.source == row.source
        assert all(span.source == row.source for span in origin.spans)
        if origin.source == "rollouts":
            assert tuple(np.asarray(RECORDS[origin.sample]["token_ids"]).tolist()) == row.name
        else:
            assert origin.text == self.tokenizer.decode(list(row.name))
            assert sum(span.stop - span.start for span in origin.spans) == len(row.name)
        return [(span.document, origin.source) for span in origin.spans]


def alone(loader: Any, rows: int) -> list[Any]:
    """The first rows of a loader with batches of one row."""
    return [rows_of(loader.next())[0].name for _ in range(rows)]


def check_blocks(rows: Sequence[Row], weights: Mapping[str, float], block: int) -> None:
    """Insist on exact proportions in every block of a run."""
    for at in range(0, len(rows) - block + 1, block):
        assert Counter(row.source for row in rows[at : at + block]) == quotas(weights, block)


RECORDS = random_rollouts(groups=5, size=4, mean_length=8)


@cache
def _stored(raw: Path, chats: bool) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-mixture-"), "store")
    prepare(raw, path, bpe() if chats else TOKENIZER, workers=1, cache=False)
    return path


def mixture(beside: str, *, streaming: bool = False) -> Kind:
    made = Mixed(beside, streaming)
    return Kind(f"{'stream' if streaming else 'store'} and {beside}", st.just(made), lambda: made, cases=3)


@dataclass(frozen=True)
class MixedStreams(Tokens):
    """One or two streams, and perhaps a store."""

    sources: mixtures.Sources
    size: int | None = None
    """Of an epoch."""
    step_rows = (4, 8, 12)
    steps = 9
    most_steps = 9
    knows_ahead = False
    seeks = False
    first_is_enough = True

    @property
    def ranks(self) -> Sequence[int]:  # type: ignore[override]
        return [ranks for ranks in (1, 2, 4) if self.lanes % ranks == 0]

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return self.size is not None

    @property
    def drops(self) -> bool:  # type: ignore[override]
        return self.size is not None

    @property
    def budget(self) -> int:  # type: ignore[override]
        return max(8 << 20, *(128 * source.cut for source in self.sources.values()))

    @cached_property
    def lanes(self) -> int:
        return mixtures.lanes_of(self.sources)

    def open(self, folder: Path, **how: Any) -> Any:
        return mixtures.mixed(self.sources, **{**how, "epoch_size": self.size, "cache_dir": folder, "seed": 3})

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        return interleaved(start, of_ranks)

    def joined(self, states: Sequence[State]) -> State:
        return merge_states(states)

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """In each lane. So an epoch of a store, and of the lanes of a stream, holds every sample once."""
        rows = [row for epoch in epochs for row in epoch]
        assert self.size is None or [len(epoch) for epoch in epochs] == [self.size] * len(epochs)
        check_blocks(rows, {name: source.weight for name, source in self.sources.items()}, mixtures.BLOCK)
        found = [mixtures.MixedRow(number, row.source, row.name, ()) for number, row in enumerate(rows)]
        mixtures.check_sources(found, self.sources, self.lanes)

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        assert origin.source == row.source
        assert {span.source for span in origin.spans} == {row.source}
        assert origin.text == TOKENIZER.decode(list(row.name))
        assert sum(span.stop - span.start for span in origin.spans) == len(row.name)
        assert all(isinstance(span, StreamSpan) == self.sources[row.source].streaming for span in origin.spans)
        return [(span.document, row.source) for span in origin.spans]


def _example_streams() -> MixedStreams:
    web, books = corpus((("jsonl", tuple(range(9)) * 6), ("jsonl", (4,) * 30))), corpus((("jsonl", (7,) * 30),))
    found = {"web": mixtures.Source(web, cut=100, weight=2.0), "books": mixtures.Source(books, streaming=False)}
    return MixedStreams({**found, "news": mixtures.Source(corpus((("jsonl", (2,) * 50),)), cut=60)}, 48)


KINDS = [
    mixture("chats"),
    mixture("rollouts"),
    mixture("chats", streaming=True),
    mixture("rollouts", streaming=True),
    Kind(
        "streams",
        st.builds(MixedStreams, mixtures.all_sources(), st.sampled_from([None, 30, 40])),
        _example_streams,
        cases=8,
    ),
]
