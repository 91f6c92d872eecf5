"""A folder of JSON lines that grows -> batches of tokens, for ever: the stages of the live road without any chess.

PYTHONPATH=examples millstream watch examples/growing_documents.yaml --import growing_documents
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from millstream import Discovery, Pipeline, Queue, Stage, load_tokenizer
from millstream.live import Arrival, Found
from millstream.stages import MapStage, register_stage


class Documents(MapStage[Arrival, str]):
    """Files that were found -> the texts in them."""

    def process(self, item: Arrival) -> Iterator[str]:
        """Read a file; what is no document is counted."""
        for line in Path(item.path).read_text("utf-8").splitlines() if isinstance(item, Found) else ():
            try:
                yield json.loads(line)["text"]
            except (ValueError, KeyError, TypeError):
                self.count("no document")


class Rows(MapStage[str, np.ndarray]):
    """Texts -> their ids, one behind the other, in batches of `rows` times `length`; the last one may be short."""

    def __init__(self, input: Queue[str] | Stage[str], *, tokenizer: str, rows: int, length: int, **settings: Any):
        super().__init__(input, **settings)
        self._tokenizer, self._most, self._length, self._ids = load_tokenizer(tokenizer), rows, length, list[int]()

    def process(self, item: str) -> Iterator[np.ndarray]:
        """Add a document, and give every batch that is full."""
        self._ids += self._tokenizer.encode(item)
        while len(self._ids) >= self._most * self._length:
            yield from self.finish()

    def finish(self) -> Iterator[np.ndarray]:
        """Give the rows that there are; less than one is left."""
        if rows := min(len(self._ids) // self._length, self._most):
            taken, self._ids = self._ids[: rows * self._length], self._ids[rows * self._length :]
            yield np.array(taken).reshape(rows, self._length)


register_stage("documents", Documents)
register_stage("rows", Rows)

if __name__ == "__main__":
    files = Discovery(sys.argv[1])
    rows = Rows(texts := Documents(files, threads=2), tokenizer=sys.argv[2], rows=8, length=128)
    for batch in Pipeline({"files": files, "texts": texts, "rows": rows}):
        print(batch.shape)
