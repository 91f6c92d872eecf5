"""Small raw corpora of several formats, and what a stream over one of them delivers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from hypothesis import strategies as st

from millstream import CharTokenizer, PretrainDataLoader, TrainingBatch
from millstream.loaders import merge_states

LENGTH = 7
TOKENIZER = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
EOS = TOKENIZER.eos_id


@cache
def corpus(sizes: tuple[tuple[str, tuple[int, ...]], ...]) -> Path:
    """Write a folder of files (format, words of each document); every document begins with its own number."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-corpus-"))
    number = 0
    for place, (kind, words) in enumerate(sizes):
        texts = [f"{number + i} " + "word " * count for i, count in enumerate(words)]
        number += len(texts)
        (folder / f"{place:02d}.{kind}").write_bytes(_encoded(kind, texts))
    return folder


def _encoded(kind: str, texts: Sequence[str]) -> bytes:
    if kind == "txt":
        return " and ".join(texts).encode()
    if kind == "csv":
        table = io.StringIO()
        csv.writer(table).writerows([["text"], *([text] for text in texts)])
        return table.getvalue().encode()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    return gzip.compress(lines) if kind.endswith(".gz") else lines


documents = st.lists(st.integers(0, 6), min_size=1, max_size=12).map(tuple)
corpora = st.lists(
    st.tuples(st.sampled_from(["jsonl", "jsonl.gz", "csv", "txt"]), documents), min_size=1, max_size=6
).map(lambda files: corpus(tuple(files)))
cuts = st.sampled_from([40, 100, 1 << 20])


def stream(folder: Path, **given: Any) -> PretrainDataLoader:
    """Open a stream; `cut` is the size of its ranges."""
    reading = {"chunk_bytes": given.pop("cut", 64), **given.pop("reading", {})}
    chosen = {"framework": "numpy", "chunk_size": LENGTH, "tokenizer": TOKENIZER, "reading": reading, **given}
    loader: Any = PretrainDataLoader(folder, streaming=True, **chosen)
    assert isinstance(loader, PretrainDataLoader)
    return loader


@dataclass(frozen=True)
class Delivered:
    """A row and its number in the run."""

    sample: int
    inputs: tuple[int, ...]
    labels: tuple[int, ...]


class Numbered(Protocol):
    """A row that knows its number in the run."""

    @property
    def sample(self) -> int:
        """It."""


Row = TypeVar("Row", bound=Numbered)


class Ranks(ABC, Generic[Row]):
    """The loaders of all ranks of a run in lanes, stepped together."""

    loaders: Sequence[Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for loader in self.loaders:
                stack.callback(loader.close)

    @abstractmethod
    def rows_of(self, batch: TrainingBatch, samples: range) -> list[Row]:
        """The rows of a batch, which are these samples of the run."""

    def step(self) -> list[Row]:
        """The rows of one step of all ranks, in the order of the run."""
        rows: list[Row] = []
        for loader in self.loaders:
            samples = loader._run.samples()
            rows += self.rows_of(loader.next(), samples)
        return sorted(rows, key=lambda row: row.sample)

    def steps(self, count: int) -> list[Row]:
        """The rows of several steps."""
        return [row for _ in range(count) for row in self.step()]

    def states(self) -> list[dict[str, Any]]:
        """The state of each rank, as a checkpoint holds it."""
        return [json.loads(json.dumps(loader.state_dict())) for loader in self.loaders]

    def load(self, states: list[dict[str, Any]], *, merged: bool) -> None:
        """Let every rank go on from the states of all earlier ranks, or from the one of rank 0 alone."""
        for loader in self.loaders:
            loader.load_state_dict(merge_states(states) if merged else states[0])


class StreamRanks(Ranks[Delivered]):
    """The loaders of all ranks of a stream, stepped together."""

    def __init__(self, folder: Path, world_size: int, global_rows: int, **given: Any) -> None:
        rows = max(1, global_rows // world_size)
        self.loaders = [
            stream(folder, rank=rank, world_size=world_size, batch_size=rows, **given) for rank in range(world_size)
        ]

    def rows_of(self, batch: TrainingBatch, samples: range) -> list[Delivered]:
        """The rows of a batch."""
        columns = (batch.input_ids.tolist(), batch.labels.tolist())
        return [Delivered(k, tuple(i), tuple(t)) for k, i, t in zip(samples, *columns, strict=True)]


def words_of(tokens: Sequence[int]) -> list[str]:
    """Documents of tokens that begin with one; the last one may be cut."""
    found, text = [], list[int]()
    for token in tokens:
        if token == EOS:
            found.append(TOKENIZER.decode(text))
            text = []
        else:
            text.append(token)
    return [*found, TOKENIZER.decode(text)] if text else found
