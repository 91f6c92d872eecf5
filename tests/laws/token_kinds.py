"""Loaders of stores of tokens, alone and mixed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import laws
from laws.case import Data, Kind, Row, Team
from millstream import RowOrigin, TrainingBatch

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

    def documents(self, run: Team) -> list[Any]:
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


KINDS = [
    Kind("store", st.builds(Stores, laws.ONE, laws.row_kinds), _example_store, cases=20),
    Kind(
        "stores",
        st.builds(Stores, laws.SEVERAL, laws.row_kinds, st.one_of(st.none(), st.integers(17, 80))),
        _example_mixture,
        cases=20,
    ),
]
