"""Mixtures: stores or streams beside conversations and rollouts, and any streams beside each other and a store."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from chats.chatml import bpe
from laws.case import Kind, Row, Team
from laws.raw_files import TOKENIZER, RawFiles, corpora, cuts
from laws.stream_kinds import LENGTH, Place, Stream, Streaming, kept_in, places
from laws.token_kinds import Tokens, rows_of
from loaders.conversations import Chats
from millstream import MixedDataLoader, PretrainDataLoader, RolloutDataLoader, RowOrigin, TokenStore, prepare
from millstream.loaders.growing.stream import StreamSpan
from millstream.order import quotas
from rollouts.samples import random_rollouts

BLOCK = 6
SIZE = 48
"""Of an epoch."""
CHATS = 30
RAW = RawFiles((("jsonl", tuple(range(9)) * 6), ("jsonl", (4,) * 30)))
RECORDS = random_rollouts(groups=5, size=4, mean_length=8)


@dataclass(frozen=True)
class Mixed(Tokens):
    """A store beside conversations or rollouts; each source gives its own rows in its own order."""

    beside: str
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)

    @property
    def length(self) -> int:
        return 64 if self.beside == "chats" else 24

    @property
    def tokenizer(self) -> Any:
        return bpe() if self.beside == "chats" else TOKENIZER

    def web(self, folder: Path, **how: Any) -> PretrainDataLoader:
        """The texts."""
        return PretrainDataLoader(_stored(RAW, self.beside == "chats"), **how)

    def parts(self, folder: Path, **given: Any) -> dict[str, tuple[Any, float]]:
        """The sources, each alone."""
        own: dict[str, Any] = {"framework": "numpy", "seed": 9, "rank": 0, "world_size": 1, **given}
        text = {"chunk_size": self.length, "pad_id": 0, "tokenizer": self.tokenizer, "name": "web", **own}
        other: Any
        if self.beside == "chats":
            chats = Chats(tuple(random.Random(4).choices(range(1, 30), k=CHATS)), "growing", packing=False)
            other = replace(chats, cache=folder / "chats").loader(pad_id=0, name="chats", cache_dir=folder, **own)
        else:
            other = RolloutDataLoader(RECORDS, max_length=self.length, name="rollouts", cache_dir=folder, **own)
        return {"web": (self.web(folder, **text), 2.0), self.beside: (other, 1.0)}

    def open(self, folder: Path, **how: Any) -> Any:
        given = {"framework": "numpy", "mix_block": BLOCK, "epoch_size": SIZE, "cache_dir": folder, **how}
        return MixedDataLoader(self.parts(folder), **given)

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Each source gives the rows that it gives alone, in its order."""
        assert [len(epoch) for epoch in epochs] == [SIZE] * len(epochs)
        rows = [row for epoch in epochs for row in epoch]
        check_blocks(rows, {"web": 2.0, self.beside: 1.0}, BLOCK)
        with tempfile.TemporaryDirectory() as place:
            check_alone(rows, {name: loader for name, (loader, _) in self.parts(Path(place), batch_size=1).items()})

    def documents(self, run: Team) -> list[Any]:
        with TokenStore(_stored(RAW, self.beside == "chats")) as store:
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


@dataclass(frozen=True)
class StreamBeside(Streaming, Mixed):  # type: ignore[misc]
    """A stream beside conversations or rollouts."""

    place: Place = "cache"
    epochs = 2

    def web(self, folder: Path, **how: Any) -> PretrainDataLoader:
        """The texts."""
        given = {"streaming": True, "reading": {"chunk_bytes": 100}, **kept_in(self.place, folder), **how}
        return PretrainDataLoader(RAW.path, **given)

    def open(self, folder: Path, **how: Any) -> Any:
        return super().open(folder, **{**kept_in(self.place, folder), **how})

    def documents(self, run: Team) -> list[Any]:
        others = [each for each in Mixed.documents(self, run) if each[1] != "web"]
        return [each for each in super().documents(run) if each[1] == "web"] + others


def check_alone(rows: Sequence[Row], parts: Mapping[str, Any]) -> None:
    """Insist that each source gave the rows that its loader, with batches of one row, gives alone."""
    with ExitStack() as stack:
        for loader in parts.values():
            stack.callback(loader.close)
        for name, loader in parts.items():
            own = [row.name for row in rows if row.source == name]
            assert own == [rows_of(loader.next())[0].name for _ in own]


def check_blocks(rows: Sequence[Row], weights: Mapping[str, float], block: int) -> None:
    """Insist on exact proportions in every block of a run."""
    for at in range(0, len(rows) - block + 1, block):
        assert Counter(row.source for row in rows[at : at + block]) == quotas(weights, block)


@cache
def _stored(raw: RawFiles, chats: bool = False) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-mixture-"), "store")
    prepare(raw.path, path, bpe() if chats else TOKENIZER, workers=1, cache=False, **raw.reading)
    return path


def mixture(beside: str, *, streaming: bool = False) -> Kind:
    made = StreamBeside(beside) if streaming else Mixed(beside)
    return Kind(f"{'stream' if streaming else 'store'} and {beside}", st.just(made), lambda: made, cases=3)


@dataclass(frozen=True)
class MixedStreams(Streaming):
    """One or two streams, and perhaps a store."""

    streams: Mapping[str, tuple[Stream, float]]
    books: Stream | None = None
    """What is prepared before."""
    epoch_rows: int | None = None
    """Of an epoch; without it one ends when the first source is used up."""
    place: Place = "cache"

    @property
    def budget(self) -> int:  # type: ignore[override]
        return sum(stream.budget for stream, _ in self.streams.values())

    @property
    def names_budget(self) -> bool:  # type: ignore[override]
        return self.place != "memory"

    def parts(self, folder: Path, **how: Any) -> dict[str, tuple[Any, float]]:
        """The sources, each alone."""
        own = {"seed": 9, "rank": 0, "world_size": 1, **how}
        found: dict[str, tuple[Any, float]] = {
            name: (replace(stream, place=self.place).open(folder, name=name, **own), weight)
            for name, (stream, weight) in self.streams.items()
        }
        if self.books is not None:
            books = {"chunk_size": LENGTH, "name": "books", "framework": "numpy", "tokenizer": TOKENIZER, **own}
            found["books"] = PretrainDataLoader(_stored(self.books.raw), **books), 1.0
        return found

    def open(self, folder: Path, **how: Any) -> Any:
        given: dict[str, Any] = {"framework": "numpy", "mix_block": BLOCK, "epoch_size": self.epoch_rows}
        return MixedDataLoader(self.parts(folder), **given, **kept_in(self.place, folder), **how)

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Each source gives the rows that it gives alone: so its own epochs hold every row once."""
        rows = [row for epoch in epochs for row in epoch]
        with tempfile.TemporaryDirectory() as place:
            parts = self.parts(Path(place), batch_size=1)
            check_alone(rows, {name: loader for name, (loader, _) in parts.items()})
        check_blocks(rows, {name: weight for name, (_, weight) in parts.items()}, BLOCK)
        assert [len(epoch) for epoch in epochs] == [self.epoch_rows or len(epochs[0])] * len(epochs)
        if self.epoch_rows is None:
            sizes = {name: stream.size for name, (stream, _) in self.streams.items()}
            sizes |= {} if self.books is None else {"books": self.books.size}
            used = Counter(row.source for row in epochs[0])
            assert all(used[name] <= size for name, size in sizes.items())
            assert any(used[name] == size for name, size in sizes.items())

    def documents(self, run: Team) -> list[Any]:
        books = [] if self.books is None else [(number, "books") for number in range(len(self.books.raw.documents))]
        return [each for each in super().documents(run) if each[1] != "books"] + books

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        assert origin.source == row.source
        assert {span.source for span in origin.spans} == {row.source}
        if row.source in self.streams:
            return self.streams[row.source][0].check_origin(loader, origin, row)
        assert not any(isinstance(span, StreamSpan) for span in origin.spans)
        assert origin.text == TOKENIZER.decode(list(row.name))
        assert sum(span.stop - span.start for span in origin.spans) == len(row.name)
        return [(span.document, row.source) for span in origin.spans]


@st.composite
def mixed_streams(draw: st.DrawFn) -> MixedStreams:
    names = ["web", *draw(st.sampled_from([(), ("news",)]))]
    sources = {name: (Stream(draw(corpora), draw(cuts)), draw(st.sampled_from([1.0, 2.0, 3.0]))) for name in names}
    books = Stream(draw(corpora)) if draw(st.booleans()) else None
    return MixedStreams(sources, books, draw(st.sampled_from([None, 30, 40])), draw(places))


def _example_streams() -> MixedStreams:
    web, books = RawFiles((("jsonl", tuple(range(6)) * 2), ("jsonl", (4,) * 9))), RawFiles((("jsonl", (7,) * 30),))
    news = RawFiles((("jsonl", (2,) * 20), ("jsonl.gz", (3,) * 9)))
    return MixedStreams({"web": (Stream(web, 100), 2.0), "news": (Stream(news, 60), 1.0)}, Stream(books), None)


KINDS = [
    mixture("chats"),
    mixture("rollouts"),
    mixture("chats", streaming=True),
    mixture("rollouts", streaming=True),
    Kind("streams", mixed_streams(), _example_streams, cases=8),
]
