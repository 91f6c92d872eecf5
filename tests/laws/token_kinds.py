"""Loaders of tokens: stores, alone and mixed, and streams of raw files."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import laws
from laws.case import Data, Kind, Row, State, Team
from loaders.corpora import EOS, LENGTH, TOKENIZER, corpora, corpus, cuts, words_of
from millstream import PretrainDataLoader, RowOrigin, TokenStore, TrainingBatch, merge_states, prepare
from millstream.loaders.stream_explain import StreamSpan
from millstream.sources import Reading, discover, raw_record, read_file

shuffles = st.sampled_from(["global", "local", False])


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
    size: int | None = 50
    """Of an epoch of several."""
    step_rows = (12, 24, 36)
    epochs = 4

    def open(self, folder: Path, **how: Any) -> Any:
        size = {} if self.data.places is None else {"epoch_size": self.size}
        return self.data.loader(**size, **self.how, **how)

    def documents(self, loader: Any) -> list[Any]:
        return [(number, name) for name, store in self.data.stores.items() for number in range(store.documents)]

    @cached_property
    def samples(self) -> dict[str, Counter[Any]]:
        kind = self.how.get("documents", "attend"), self.how.get("tail", "drop")
        return {name: Counter(laws.samples_of(store, *kind)) for name, store in self.data.stores.items()}

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Of each source: a mixture's own epoch is a number of rows, and begins nothing anew."""
        for name, samples in self.samples.items():
            used = [row.name for epoch in epochs for row in epoch if row.source == name]
            passes = [Counter(used[at : at + samples.total()]) for at in range(0, len(used), samples.total())]
            assert passes[:-1] == [samples] * (len(passes) - 1)
            assert passes[-1] <= samples
        size = self.samples["data"].total() if self.data.places is None else self.size or len(epochs[0])
        assert [len(epoch) for epoch in epochs] == [size] * len(epochs)

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        tokens: list[int] = []
        for span in origin.spans:
            assert span.source == row.source == origin.source
            tokens += self.data.stores[span.source].document(span.document)[span.start : span.stop].tolist()
        assert tuple(tokens) == row.name
        return [(span.document, span.source) for span in origin.spans]

    def check_losses(self, rows: Sequence[Row], losses: Sequence[Mapping[str, int]]) -> None:
        """Tails of sources, and what documents have that are longer than a row."""
        cut = 0
        for name, store in self.data.stores.items():
            if self.how.get("documents") == "row":
                texts = [store.document(number).tolist() for number in range(store.documents)]
                whole = {text[0]: len(text) for text in texts if text}
                cut += sum(whole[row.name[0]] - len(row.name) for row in rows if row.source == name and row.name)
            else:
                left = max(0, len(store) - 1 - sum(len(sample) for sample in self.samples[name].elements()))
                assert {each[f"tail_tokens:{name}"] for each in losses} == {left}
        assert sum(each["cut_tokens"] for each in losses) == cut


def _example_store() -> Data:
    chance = random.Random(5)
    return Stores(laws.Data({"data": laws.make_store([chance.randint(0, 40) for _ in range(60)], 300)}))


def _example_mixture() -> Data:
    found = {name: laws.make_store([30] * 20, start=number * laws.APART) for number, name in enumerate("abc")}
    return Stores(laws.Data(found, {"a": 1, "b": 2, "c": 3}))


# Streams


@dataclass(frozen=True)
class Stream(Tokens):
    """Raw files that are tokenised on the way, in lanes."""

    path: Path
    cut: int = 64
    shuffle: Any = "global"
    ranks = (1, 2, 4, 8)
    step_rows = (8, 16, 24, 64)
    ends_alone = True  # the lanes of several ranks end at different steps
    epochs = 1
    steps = 9
    most_steps = 9
    knows_ahead = False
    seeks = False
    drops = False
    first_is_enough = True

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

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """The documents are those of `prepare`, token for token. A lane that has none repeats those of the next one."""
        (loader,), (rows,) = run.loaders, epochs
        tokens, found = loader._run.lanes.lane_tokens, Counter[str]()
        for lane in range(self.lanes):
            entry = loader._run.lanes.log.find(lane, 0)
            if entry is not None and entry.place.range < loader.stream.ranges.in_lane(lane):
                own = [token for row in rows[lane :: self.lanes] for token in row.name]
                found += Counter(words_of(own[: tokens[lane]]))
        assert found == self.texts

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        tokens: list[int] = []
        for span in origin.spans:
            assert isinstance(span, StreamSpan) and span.first_byte is not None and span.last_byte is not None
            text = self.records[span.file, span.first_byte]
            assert raw_record(self.files[span.file], Reading(), 0, span.first_byte, span.last_byte)
            tokens += [*TOKENIZER.encode(text), EOS][span.start : span.stop]
        assert tuple(tokens) == row.name
        return [(span.document, None) for span in origin.spans]

    def check_length(self, loader: Any, epochs: int) -> None:
        """The next one may be shorter: its lanes begin in the middle of a row."""
        assert loader.get_num_batches() > 0

    @property
    def budget(self) -> int:  # type: ignore[override]
        return max(8 << 20, 128 * self.cut)

    def counts_steps(self, run: Team) -> bool:
        """A document comes again whenever its lane does."""
        return not any(loader._run.lanes.lane_tokens for loader in run.loaders)

    @cached_property
    def files(self) -> dict[str, Any]:
        return {file.name: file for file in discover(self.path).files}

    @cached_property
    def records(self) -> dict[tuple[str, int], str]:
        return {
            (file.name, record.start): record.text
            for file in self.files.values()
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
    made = Stream(draw(corpora), draw(cuts), draw(shuffles))
    object.__setattr__(made, "ranks", [ranks for ranks in Stream.ranks if made.lanes % ranks == 0])
    return made


def _example_stream() -> Data:
    return Stream(corpus((("jsonl", tuple(range(9)) * 12), ("jsonl.gz", (3,) * 40), ("csv", (5,) * 30))))


KINDS = [
    Kind("store", st.builds(Stores, laws.ONE, laws.row_kinds), _example_store, cases=20),
    Kind(
        "stores",
        st.builds(Stores, laws.SEVERAL, laws.row_kinds, st.one_of(st.none(), st.integers(17, 80))),
        _example_mixture,
        cases=20,
    ),
    Kind("stream", streams(), _example_stream, cases=8),
]
