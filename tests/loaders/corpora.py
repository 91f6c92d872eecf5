"""Small raw corpora of several formats, and what a stream over one of them delivers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

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


@dataclass(frozen=True)
class Delivered:
    """A row, and the source that it came from in a mixture."""

    source: str
    inputs: tuple[int, ...]
    labels: tuple[int, ...]


def stream(folder: Path, **given: Any) -> PretrainDataLoader:
    """Open a stream; `cut` is the size of its units."""
    reading = {"chunk_bytes": given.pop("cut", 64), **given.pop("reading", {})}
    chosen = {"framework": "numpy", "chunk_size": LENGTH, "tokenizer": TOKENIZER, "reading": reading, **given}
    loader: Any = PretrainDataLoader(folder, streaming=True, **chosen)
    assert isinstance(loader, PretrainDataLoader)
    return loader


class Ranks:
    """The loaders of all ranks of a run, stepped together."""

    def __init__(self, opened: Callable[..., Any], world_size: int, global_rows: int, **given: Any) -> None:
        rows = max(1, global_rows // world_size)
        self.loaders = [
            opened(rank=rank, world_size=world_size, batch_size=rows, **given) for rank in range(world_size)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for loader in self.loaders:
            loader.close()

    def step(self) -> list[Delivered]:
        """The rows of one step of all ranks, in the order of the run."""
        return [row for loader in self.loaders for row in rows_of(loader.next())]

    def steps(self, count: int) -> list[Delivered]:
        """The rows of several steps."""
        return [row for _ in range(count) for row in self.step()]

    def state(self) -> dict[str, Any]:
        """The state of the run, as a checkpoint holds it; it is that of each rank."""
        state: dict[str, Any] = json.loads(json.dumps(merge_states([each.state_dict() for each in self.loaders])))
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Let every rank go on from a state."""
        for loader in self.loaders:
            loader.load_state_dict(state)


def ranks_of(folder: Path, world_size: int, global_rows: int, **given: Any) -> Ranks:
    """All ranks of a stream."""
    return Ranks(partial(stream, folder), world_size, global_rows, **given)


def rows_of(batch: TrainingBatch) -> list[Delivered]:
    """The rows of a batch; filler is none."""
    rows = batch.metadata["rows"]
    columns = (batch.metadata.get("source", [""] * rows), batch.input_ids.tolist(), batch.labels.tolist())
    return [Delivered(name, tuple(inputs), tuple(labels)) for name, inputs, labels in zip(*columns, strict=True)][:rows]


def epoch_of(loader: PretrainDataLoader) -> list[tuple[int, ...]]:
    """The inputs of all rows of the rest of an epoch."""
    return [row.inputs for batch in loader for row in rows_of(batch)]


def parts_of(loader: Any, name: str = "data") -> dict[str, int]:
    """How many parts of a stream this process has made, and how many it found."""
    found: dict[str, int] = loader.get_profiling_results()["parts"][name]
    return found


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
