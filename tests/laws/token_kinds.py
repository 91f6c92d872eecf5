"""Loaders of tokens: stores, conversations, streams of raw files, and mixtures of all of them."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import laws
from chats.chatml import bpe
from laws.case import Data, Kind, Row, State
from loaders.conversations import CHAT, CHUNK_BYTES, Chats, Road, conversation
from loaders.corpora import EOS, TOKENIZER, corpora, corpus, words_of
from millstream import (
    ConversationDataLoader,
    MixedDataLoader,
    PretrainDataLoader,
    RolloutDataLoader,
    RowOrigin,
    TokenStore,
    TrainingBatch,
    merge_states,
    prepare,
)
from millstream.sources import Reading, discover, read_file
from rollouts.samples import random_rollouts

LENGTH = 7


def rows_of(batch: TrainingBatch, name: str = "data") -> list[Row]:
    """Everything that a batch says about each of its rows."""
    found = []
    for row in laws.rows_of(batch, name):
        content = (row.inputs, row.labels, row.positions, row.length, row.weights)
        found.append(Row(row.source, row.epoch, row.tokens, content))
    return found


class Tokens(Data):
    """Data whose batches are rows of tokens."""

    def rows(self, batch: TrainingBatch) -> list[Row]:
        return rows_of(batch)


# Stores


@dataclass(frozen=True)
class Stores(Tokens):
    """One store, or several that are mixed."""

    data: laws.Data
    how: Mapping[str, Any] = field(default_factory=dict)
    spoils = True

    def open(self, folder: Path, **how: Any) -> Any:
        size = {} if self.data.places is None else {"epoch_size": 50}
        return self.data.loader(**size, **self.how, **how)

    @cached_property
    def samples(self) -> dict[str, Counter[Any]]:
        kind = self.how.get("documents", "attend"), self.how.get("tail", "drop")
        return {name: Counter(laws.samples_of(store, *kind)) for name, store in self.data.stores.items()}

    def check_complete(self, epochs: Sequence[list[Row]]) -> None:
        """Of each source: a mixture's own epoch is a number of rows, and begins nothing anew."""
        for name, samples in self.samples.items():
            used = [row.name for epoch in epochs for row in epoch if row.source == name]
            passes = [Counter(used[at : at + samples.total()]) for at in range(0, len(used), samples.total())]
            assert passes[:-1] == [samples] * (len(passes) - 1)
            assert passes[-1] <= samples
        size = 50 if self.data.places is not None else self.samples["data"].total()
        assert [len(epoch) for epoch in epochs] == [size] * len(epochs)

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        tokens: list[int] = []
        for span in origin.spans:
            assert span.source == row.source == origin.source
            tokens += self.data.stores[span.source].document(span.document)[span.start : span.stop].tolist()
        assert tuple(tokens) == row.name
        return [(span.document, span.source) for span in origin.spans if span.start < span.stop]

    def spoiled(self) -> Stores:
        return replace(self, how={**self.how, "drop_last": True})

    def given_units(self) -> int:
        return 50 if self.data.places is not None else self.samples["data"].total()

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        (lost,) = {each["dropped_rows"] for each in losses}
        return lost


def _example_store() -> Data:
    chance = random.Random(5)
    return Stores(laws.Data({"data": laws.make_store([chance.randint(0, 40) for _ in range(60)], 300)}))


def _example_mixture() -> Data:
    found = {name: laws.make_store([30] * 20, start=number * laws.APART) for number, name in enumerate("abc")}
    return Stores(laws.Data(found, {"a": 1, "b": 2, "c": 3}))


# Conversations


@dataclass(frozen=True)
class Conversations(Tokens):
    """Conversations in a store, or in files from which rows are made while they are trained on."""

    chats: Chats
    shuffle: Any = "global"
    bad: int = 0
    """Lines that are no conversation."""
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)
    spoils = True

    def open(self, folder: Path, **how: Any) -> Any:
        if not self.bad:
            made = replace(self.chats, cache=folder / "chats")
            return made.loader(shuffle=self.shuffle, **how)
        shared = {"framework": "numpy", "max_length": 64, "pad_to": "max_length", "packing": self.chats.packing}
        own = {"tokenizer": bpe(), "reading": {"chunk_bytes": CHUNK_BYTES}, "cache_dir": folder / "chats", **CHAT}
        path = _with_bad_lines(self.chats.sizes, self.bad)
        return ConversationDataLoader(path, on_bad="skip", shuffle=self.shuffle, **{**own, **shared, **how})

    def rows(self, batch: TrainingBatch) -> list[Row]:
        found = []
        for row in laws.rows_of(batch):
            content = (row.inputs, row.labels, row.positions, row.length, row.weights)
            found.append(Row(row.source, row.epoch, tuple(segments(row)), content))
        return found

    def check_complete(self, epochs: Sequence[list[Row]]) -> None:
        for epoch in epochs:
            assert Counter(each for row in epoch for each in row.name) == Counter(self.chats.documents)
        assert len({len(epoch) for epoch in epochs}) == 1

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        store = loader.store
        half, named = len(self.chats.sizes) // 2, []
        for span in origin.spans:
            where = store.origin_of(span.document)
            assert where.file.endswith(span.file)
            named.append(self.chats.documents[where.row + (half if span.file.endswith("b.jsonl") else 0)])
            assert (span.start, span.stop) == (0, len(named[-1]))
        assert tuple(named) == row.name
        return [(span.document, None) for span in origin.spans]

    def joined(self, states: Sequence[State]) -> State:
        """While rows are made, one rank may know the end already and another not yet; any of their states will do."""
        known = [state for state in states if "unknown_length" not in state]
        unknown = [state for state in states if "unknown_length" in state]
        assert all(state == each[0] for each in (known, unknown) for state in each)
        assert len({(state["step"], state["epoch"], state["offset"]) for state in states}) == 1
        return states[0]

    def forget(self, folder: Path) -> None:
        shutil.rmtree(folder / "chats", ignore_errors=True)

    def spoiled(self) -> Conversations:
        return replace(self, bad=3)

    def given_units(self) -> int:
        return len(self.chats.sizes) + self.bad

    def kept_units(self, rows: Sequence[Row]) -> int:
        return sum(len(row.name) for row in rows)

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        (lost,) = {sum(count for name, count in each.items() if name.startswith("left_out:")) for each in losses}
        return lost


def segments(row: laws.Row) -> list[tuple[int, ...]]:
    """The conversations that lie in a row."""
    if row.positions is None:
        return [row.tokens] if row.tokens else []
    starts = [place for place in range(row.length) if row.positions[place] == 0]
    return [row.inputs[a:b] for a, b in zip(starts, [*starts[1:], row.length], strict=True)]


@cache
def _with_bad_lines(sizes: tuple[int, ...], bad: int) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-chats-"), "a.jsonl")
    lines = [json.dumps(conversation(number, size)) for number, size in enumerate(sizes)]
    for number in range(bad):
        lines.insert(number * len(lines) // bad, '{"messages": 7}')
    path.write_text("\n".join(lines) + "\n")
    return path


sizes = st.builds(
    lambda count, seed, most: tuple(random.Random(seed).choices(range(1, most), k=count)),
    *(st.integers(1, 90), st.integers(0, 9), st.sampled_from([5, 20, 60])),
)
shuffles = st.sampled_from(["global", "local", False])


def conversations(road: Road, *, packing: bool) -> Kind:
    name = f"{'packed' if packing else 'single'} chats, {road}"
    made = st.builds(lambda found, how: Conversations(Chats(found, road, packing), how), sizes, shuffles)
    lengths = tuple(random.Random(2).choices(range(1, 30), k=90))
    return Kind(name, made, lambda: Conversations(Chats(lengths, road, packing)), cases=4)


# Streams


@dataclass(frozen=True)
class Stream(Tokens):
    """Raw files that are tokenised on the way, in lanes."""

    path: Path
    cut: int = 64
    shuffle: Any = "global"
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)
    ends_alone = True  # the lanes of several ranks end at different steps

    def rows(self, batch: TrainingBatch) -> list[Row]:
        """Each rank counts the epochs of its own lanes."""
        return [replace(row, epoch=0) for row in rows_of(batch)]

    def open(self, folder: Path, **how: Any) -> Any:
        own: dict[str, Any] = {"framework": "numpy", "chunk_size": LENGTH, "tokenizer": TOKENIZER}
        own |= {"shuffle": self.shuffle}
        own |= {"reading": {"chunk_bytes": self.cut}, "cache_dir": folder, "streaming": True}
        return PretrainDataLoader(self.path, **{**own, **how})

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        return interleaved(start, of_ranks)

    def joined(self, states: Sequence[State]) -> State:
        return merge_states(states)

    @cached_property
    def lanes(self) -> int:
        with self.open(Path(tempfile.mkdtemp())) as loader:
            return int(loader.stream.lanes)

    @cached_property
    def texts(self) -> Counter[str]:
        """All documents, by the road of `prepare`."""
        with tempfile.TemporaryDirectory() as place:
            prepare(self.path, Path(place, "store"), TOKENIZER, workers=1, cache=False)
            with TokenStore(Path(place, "store")) as store:
                return Counter(TOKENIZER.decode(store.document(i)[:-1].tolist()) for i in range(store.documents))

    def check_complete(self, epochs: Sequence[list[Row]]) -> None:
        """Every document is there; lanes that are shorter than others come round again."""
        rows = [row for epoch in epochs for row in epoch]
        found: Counter[str] = Counter()
        for lane in range(self.lanes):
            found += Counter(words_of([token for row in rows[lane :: self.lanes] for token in row.name]))
        assert all(found[text] >= 1 for text in self.texts)

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        tokens: list[int] = []
        for span in origin.spans:
            text = self.records[span.file, getattr(span, "first_byte")]  # noqa: B009 - of streams alone
            tokens += [*TOKENIZER.encode(text), EOS][span.start : span.stop]
        assert tuple(tokens) == row.name
        return []  # a document comes again whenever its lane does

    @cached_property
    def records(self) -> dict[tuple[str, int], str]:
        return {
            (file.name, record.start): record.text
            for file in discover(self.path).files
            for read in read_file(file, Reading())
            for record in read.block
        }


def interleaved(start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
    """Rows of lanes: sample k belongs to rank k modulo their number."""
    ranks = len(of_ranks)
    numbered = [
        (start + (rank - start) % ranks + place * ranks, row)
        for rank, rows in enumerate(of_ranks)
        for place, row in enumerate(rows)
    ]
    return [row for _, row in sorted(numbered, key=lambda each: each[0])]


@st.composite
def streams(draw: st.DrawFn) -> Data:
    made = Stream(draw(corpora), draw(st.sampled_from([40, 100])), draw(shuffles))
    object.__setattr__(made, "ranks", [ranks for ranks in (1, 2, 4) if made.lanes % ranks == 0])
    return made


def _example_stream() -> Data:
    return Stream(corpus((("jsonl", tuple(range(9)) * 12), ("jsonl.gz", (3,) * 40), ("csv", (5,) * 30))))


# Mixtures


@dataclass(frozen=True)
class Mixed(Tokens):
    """A store beside conversations, a stream or rollouts; each source gives its own rows in its own order."""

    beside: str
    streaming: bool = False
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)
    spoils = False

    @property
    def length(self) -> int:
        return 64 if self.beside == "chats" else 24 if self.beside == "rollouts" else LENGTH

    @property
    def tokenizer(self) -> Any:
        return bpe() if self.beside == "chats" else TOKENIZER

    def parts(self, folder: Path) -> dict[str, tuple[Any, float]]:
        """The sources, each alone."""
        own: dict[str, Any] = {"framework": "numpy", "seed": 9, "cache_dir": folder, "rank": 0, "world_size": 1}
        text: dict[str, Any] = {"chunk_size": self.length, "pad_id": 0, "tokenizer": self.tokenizer, **own}
        raw = corpus((("jsonl", tuple(range(9)) * 6), ("jsonl", (4,) * 30)))
        if self.streaming:
            web: Any = PretrainDataLoader(raw, streaming=True, reading={"chunk_bytes": 100}, name="web", **text)
        else:
            web = PretrainDataLoader(_stored(raw, self.beside == "chats"), name="web", **text)
        other: Any
        if self.beside == "chats":
            chats = Chats(tuple(random.Random(4).choices(range(1, 30), k=50)), "growing", packing=False)
            other = replace(chats, cache=folder / "chats").loader(
                pad_id=0, name="chats", **{**own, "cache_dir": folder}
            )
        elif self.beside == "rollouts":
            other = RolloutDataLoader(RECORDS, max_length=self.length, name="rollouts", **own)
        elif self.beside == "stream":
            how: dict[str, Any] = {"streaming": True, "reading": {"chunk_bytes": 60}, "name": "stream"}
            other = PretrainDataLoader(corpus((("jsonl", (2,) * 50),)), **how, **text)
        else:
            other = PretrainDataLoader(_stored(corpus((("jsonl", (7,) * 30),)), False), name="store", **text)
        return {"web": (web, 2.0), self.beside: (other, 1.0)}

    def open(self, folder: Path, **how: Any) -> Any:
        given = {"framework": "numpy", "mix_block": 6, "epoch_size": 48, "cache_dir": folder, **how}
        return MixedDataLoader(self.parts(folder), **given)

    @property
    def in_lanes(self) -> bool:
        return self.streaming or self.beside == "stream"

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        return interleaved(start, of_ranks) if self.in_lanes else super().merged(start, of_ranks)

    def joined(self, states: Sequence[State]) -> State:
        return merge_states(states) if self.in_lanes else super().joined(states)

    def check_complete(self, epochs: Sequence[list[Row]]) -> None:
        """Each source gives the rows that it gives alone, each as often; in lanes, as often within one."""
        assert [len(epoch) for epoch in epochs] == [48] * len(epochs)
        rows = [row for epoch in epochs for row in epoch]
        with tempfile.TemporaryDirectory() as place:
            for name, (loader, weight) in self.parts(Path(place)).items():
                own = Counter(row.name for row in rows if row.source == name)
                assert own.total() == len(rows) * weight / 3
                if name == "stream" or (name == "web" and self.streaming):
                    loader.close()
                    continue  # test_streaming_laws.py follows each lane
                epoch = Counter(row.name for batch in loader for row in rows_of(batch))
                loader.close()
                whole = own.total() // epoch.total()
                assert all(whole * count <= own[row] <= (whole + 1) * count for row, count in epoch.items())
                assert own.keys() <= epoch.keys()

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        assert origin.source == row.source
        if origin.source == "rollouts":
            assert tuple(np.asarray(RECORDS[origin.sample]["token_ids"]).tolist()) == row.name
        elif origin.text is not None:
            assert origin.text == self.tokenizer.decode(list(row.name))
        if self.in_lanes and (origin.source == "stream" or self.streaming):
            return []
        return [(span.document, origin.source) for span in origin.spans]


RECORDS = random_rollouts(groups=5, size=4, mean_length=8)


@cache
def _stored(raw: Path, chats: bool) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-mixture-"), "store")
    prepare(raw, path, bpe() if chats else TOKENIZER, workers=1, cache=False)
    return path


def mixture(beside: str, *, streaming: bool = False) -> Kind:
    made = Mixed(beside, streaming)
    return Kind(f"{'stream' if streaming else 'store'} and {beside}", st.just(made), lambda: made, cases=3)


KINDS = [
    Kind(
        "store",
        st.builds(Stores, laws.ONE, laws.row_kinds),
        _example_store,
        cases=20,
    ),
    Kind(
        "stores",
        st.builds(lambda several, how: Stores(several, how), laws.SEVERAL, laws.row_kinds),
        _example_mixture,
        12,
    ),
    conversations("prepared", packing=True),
    conversations("growing", packing=True),
    conversations("growing", packing=False),
    Kind("stream", streams(), _example_stream, cases=6),
    mixture("store"),
    mixture("chats"),
    mixture("rollouts"),
    mixture("store", streaming=True),
    mixture("chats", streaming=True),
    mixture("rollouts", streaming=True),
    mixture("stream"),
]
