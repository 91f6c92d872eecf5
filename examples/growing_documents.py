"""A folder of JSON lines that grows -> batches of tokens, without end: the stages of self-play without any chess.

python examples/growing_documents.py documents/ tokenizer.json
PYTHONPATH=examples millstream watch examples/growing_documents.yaml --import growing_documents
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from millstream import Discovery, Pipeline, Queue, Stage, load_tokenizer
from millstream.errors import RecordError
from millstream.selfplay import Arrival, FileFound
from millstream.sources import GrowingLines, format_of
from millstream.stages import MapStage, register_stage


class Documents(MapStage[Arrival, str]):
    """Files that were found -> the texts in them, each once: of a file that has grown only those of its new lines."""

    one_thread = True  # it remembers how far it has read

    def __init__(self, input: Queue[Arrival] | Stage[Arrival], **settings: Any) -> None:
        super().__init__(input, **settings)
        self._files = GrowingLines(self.count)
        self.bad: deque[RecordError] = deque(maxlen=1000)
        """The last lines and files that could not be used, and why."""

    def process(self, item: Arrival) -> Iterator[str]:
        """Read what is new in a file; what is no document is counted by its reason, and listed."""
        if not isinstance(item, FileFound):
            return
        if format_of(Path(item.path)) != "jsonl":
            self.count("no JSON lines")
            return
        for read in self._files.read(item.path):
            for reason, number in read.skipped.items():
                self.count(reason, number)
            for bad in read.bad:
                self.count(bad.reason)
                self.bad.append(RecordError(bad.reason, bad.found, bad.hint, f"{item.path}:{bad.row + 1}"))
            yield from (record.text for record in read.block)


class Rows(MapStage[str, np.ndarray]):
    """Texts -> their ids, one after the other, in batches of `rows` times `length`. The last one may have fewer rows;
    ids that fill none are counted."""

    one_thread = True  # what is left of one document goes before the next

    def __init__(self, input: Queue[str] | Stage[str], *, tokenizer: str, rows: int, length: int, **settings: Any):
        super().__init__(input, **settings)
        self._tokenizer, self._most, self._length, self._ids = load_tokenizer(tokenizer), rows, length, list[int]()

    def process(self, item: str) -> Iterator[np.ndarray]:
        """Add a document, and give every batch that is full."""
        self._ids += self._tokenizer.encode(item)
        while len(self._ids) >= self._most * self._length:
            yield from self._full_rows()

    def finish(self) -> Iterator[np.ndarray]:
        """Give the rows that there are."""
        yield from self._full_rows()
        if self._ids:
            self.count("ids behind the last row", len(self._ids))

    def _full_rows(self) -> Iterator[np.ndarray]:
        if rows := min(len(self._ids) // self._length, self._most):
            taken, self._ids = self._ids[: rows * self._length], self._ids[rows * self._length :]
            yield np.array(taken).reshape(rows, self._length)


register_stage("documents", Documents)
register_stage("rows", Rows)

if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: growing_documents.py FOLDER TOKENIZER [BATCHES]")
    files = Discovery(sys.argv[1])
    rows = Rows(texts := Documents(files), tokenizer=sys.argv[2], rows=8, length=128)
    with Pipeline({"files": files, "texts": texts, "rows": rows}) as pipeline:
        for batch in islice(pipeline, int(sys.argv[3]) if sys.argv[3:] else None):
            print(batch.shape, flush=True)
