"""Small files of preferences, judged answers and judged steps, and what a loader over them delivers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from laws import Ranks
from millstream import CharTokenizer, TrainingBatch
from millstream.loaders import ConversationDataLoader

TOKENIZER = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz?!\n"])
LENGTH = 24
KINDS = ("preference", "kto", "stepwise")


def rows_of_kind(kind: str, count: int) -> list[dict[str, Any]]:
    """Rows of which each says its number in its prompt and in its answers, of any length from short to cut."""
    return [_row(kind, number) for number in range(count)]


def _row(kind: str, number: int) -> dict[str, Any]:
    prompt, long = f"{number} what?" + "?" * (number % 9), "a" * (number % 11)
    if kind == "preference":
        return {"prompt": prompt, "chosen": f"{number} yes {long}", "rejected": f"{number} no!"}
    if kind == "kto":
        return {"prompt": prompt, "completion": f"{number} so {long}", "label": number % 3 == 0}
    return {
        "prompt": prompt,
        "completions": ["b", f"c{long}"][: 1 + number % 2],
        "labels": [True, number % 3 == 0][: 1 + number % 2],
    }


@cache
def cache_dir() -> Path:
    return Path(tempfile.mkdtemp(prefix="millstream-answers-"))


@dataclass(frozen=True)
class Answers:
    """Some rows of a kind: raw, or as a store."""

    kind: str
    count: int
    stored: bool = False

    def loader(self, **given: Any) -> ConversationDataLoader:
        """Open the loader for them."""
        given = {"framework": "numpy", "max_length": LENGTH, "pad_to": "max_length", "cache_dir": cache_dir(), **given}
        truncation = "keep_start" if self.kind == "stepwise" else "keep_end"
        raw: dict[str, Any] = {"tokenizer": TOKENIZER, "truncation": truncation}
        if not self.stored:
            return ConversationDataLoader(rows_of_kind(self.kind, self.count), **raw, **given)
        path = _stored(self.kind, self.count)
        return ConversationDataLoader(path, **given)


@cache
def _stored(kind: str, count: int) -> Path:
    with Answers(kind, count).loader(shuffle=False) as loader:
        loader.wait()
        return Path(loader.store.path)


Sample = tuple[Any, ...]


def samples_in(batch: TrainingBatch) -> Iterator[Sample]:
    """The samples of a batch, each whole: both rows of a pair, a label, and what the KL term is measured on."""
    assert batch.lengths is not None
    columns = [batch.input_ids, batch.labels, batch.lengths]
    columns += [np.array(batch.metadata[fact]) for fact in ("label", "kl_document") if fact in batch.metadata]
    if batch.kl is not None:
        assert batch.kl.lengths is not None
        columns += [batch.kl.input_ids, batch.kl.labels, batch.kl.lengths]
    rows = [tuple(np.asarray(column[row]).tolist() for column in columns) for row in range(batch.metadata["rows"])]
    for first in range(0, len(rows), batch.unit):
        yield (batch.metadata["epoch"], *(str(row) for row in rows[first : first + batch.unit]))


class AnswerRanks(Ranks[Any]):
    """The loaders of all ranks of one run over answers."""

    def step(self) -> list[Any]:
        """Take one step on all ranks: the samples of the global batch."""
        return [sample for loader in self.loaders for sample in samples_in(loader.next())]
