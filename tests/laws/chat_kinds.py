"""Loaders of conversations, and of compared or judged answers: in a store, or made while they are trained on."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import laws
from chats.chatml import bpe
from laws.case import Data, Kind, Row, State, Team
from laws.token_kinds import Tokens, shuffles
from loaders import answers
from loaders.conversations import CHAT, CHUNK_BYTES, Chats, Road, conversation, document, segments, sizes
from millstream import ConversationDataLoader, RowOrigin, TrainingBatch


@dataclass(frozen=True)
class Conversations(Tokens):
    """Conversations in a store, or in files from which rows are made while they are trained on."""

    chats: Chats
    shuffle: Any = "global"
    bad: int = 0
    """Lines that are no conversation."""
    ranks = (1, 2, 4)
    step_rows = (4, 8, 12)
    epochs = 3
    spoils = True

    @property
    def grows(self) -> bool:  # type: ignore[override]
        return self.chats.road == "growing"

    def settle(self, loader: Any) -> None:
        loader.wait()

    def documents(self, run: Team) -> list[Any]:
        return [(number, None) for number in range(run.loaders[0].store.documents)]

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

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        for epoch in epochs:
            assert Counter(each for row in epoch for each in row.name) == Counter(self.chats.documents)
        assert len({len(epoch) for epoch in epochs}) == 1
        self.check_labels(epochs[0])

    def check_labels(self, rows: Sequence[Row]) -> None:
        """Labels are what follows, and weigh what the conversation says, whatever shares a row: the first token of a
        conversation is never a target, and padding has none."""
        known = dict(document(number, size) for number, size in enumerate(self.chats.sizes))
        for row in rows:
            labels, weights = list[int](), list[float]()
            for ids in row.name:
                targets = [*zip(ids[1:], known[ids][1:], strict=True), (0, 0.0)]
                labels += [token if weight else -100 for token, weight in targets]
                weights += [weight for _, weight in targets]
            _, found, _, length, weighed = row.content
            padding = 64 - length
            assert found == (*labels, *[-100] * padding)
            assert weighed == pytest.approx((*weights, *[0.0] * padding))

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        store = loader.store
        half, named = len(self.chats.sizes) // 2, []
        for span in origin.spans:
            where = store.origin_of(span.document)
            assert where.file.endswith(span.file)
            named.append(self.chats.documents[where.row + (half if span.file.endswith("b.jsonl") else 0)])
            assert (span.start, span.stop) == (0, len(named[-1]))
            assert tuple(store.document(span.document).tolist()) == named[-1]
        assert tuple(named) == row.name
        assert origin.text == bpe().decode([token for ids in named for token in ids])
        return [(span.document, None) for span in origin.spans]

    def joined(self, states: Sequence[State]) -> State:
        return joined(states)

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


def joined(states: Sequence[State]) -> State:
    """While rows are made, one rank may know the end already and another not yet; any of their states will do."""
    known = [state for state in states if "unknown_length" not in state]
    unknown = [state for state in states if "unknown_length" in state]
    assert all(state == each[0] for each in (known, unknown) for state in each)
    assert len({(state["step"], state["epoch"], state["offset"]) for state in states}) == 1
    return states[0]


@cache
def _with_bad_lines(sizes: tuple[int, ...], bad: int) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-chats-"), "a.jsonl")
    lines = [json.dumps(conversation(number, size)) for number, size in enumerate(sizes)]
    for number in range(bad):
        lines.insert(number * len(lines) // bad, '{"messages": 7}')
    path.write_text("\n".join(lines) + "\n")
    return path


def conversations(road: Road, *, packing: bool) -> Kind:
    name = f"{'packed' if packing else 'single'} chats, {road}"
    roads = st.sampled_from([road, "growing", "made"] if road == "growing" else [road])
    made = st.builds(lambda found, by, how: Conversations(Chats(found, by, packing), how), sizes, roads, shuffles)
    lengths = tuple(random.Random(2).choices(range(1, 30), k=90))
    return Kind(name, made, lambda: Conversations(Chats(lengths, road, packing)), cases=4)


# Answers


@dataclass(frozen=True)
class Answered(Data):
    """Pairs of answers, judged answers and judged steps, raw or as a store."""

    answers: answers.Answers
    shuffle: Any = "global"
    step_rows = (12, 24, 36)
    epochs = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", 2 if self.answers.kind == "preference" else 1)

    def open(self, folder: Path, **how: Any) -> Any:
        return self.answers.loader(**{"shuffle": self.shuffle, "cache_dir": folder / "answers", **how})

    @property
    def grows(self) -> bool:  # type: ignore[override]
        return not self.answers.stored

    def settle(self, loader: Any) -> None:
        loader.wait()

    def forget(self, folder: Path) -> None:
        shutil.rmtree(folder / "answers", ignore_errors=True)

    def joined(self, states: Sequence[State]) -> State:
        return joined(states)

    def rows(self, batch: TrainingBatch) -> list[Row]:
        """With a label, and with what the KL term is measured on."""
        assert batch.lengths is not None
        columns = [batch.labels]
        columns += [np.array(batch.metadata[fact]) for fact in ("label", "kl_document") if fact in batch.metadata]
        if batch.kl is not None:
            assert batch.kl.lengths is not None
            columns += [batch.kl.input_ids, batch.kl.labels, batch.kl.lengths]
        found = []
        for row in range(batch.metadata["rows"]):
            name = tuple(batch.input_ids[row, : batch.lengths[row]].tolist())
            content = {
                "padding": batch.input_ids[row, batch.lengths[row] :].tolist(),
                "columns": [np.asarray(column[row]).tolist() for column in columns],
                "kl_document": batch.metadata["kl_document"][row] if batch.kl is not None else None,
                "kl_labels": batch.kl.labels[row].tolist() if batch.kl is not None else None,
            }
            found.append(Row("data", batch.metadata["epoch"], name, content))
        return found

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Every answer once, with all that belongs to it but the answer of its neighbour, which an epoch chooses."""
        unit, judged = self.unit, self.answers.kind == "kto"
        with self.answers.loader(shuffle=False, batch_size=self.answers.count) as loader:
            rows = self.rows(loader.next())
        expected = {repr([(row.name, None if judged else row.content) for row in pair]) for pair in _in(rows, unit)}
        assert len(expected) == self.answers.count
        for number, epoch in enumerate(epochs):
            found = [repr([(row.name, None if judged else row.content) for row in pair]) for pair in _in(epoch, unit)]
            assert len(found) == self.answers.count and set(found) == expected
            assert {row.epoch for row in epoch} == {number}

    def documents(self, run: Team) -> list[Any]:
        return [(number, None) for number in range(run.loaders[0].store.documents)]

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        store, (span,), other = loader.store, origin.spans, row.content["kl_document"]
        assert row.name == tuple(store.document(span.document).tolist())
        if other is not None:
            answer = store.document(other)[1:][store.weights(*store.document_span(other))[1:] > 0].tolist()
            used = [label for label in row.content["kl_labels"] if label >= 0]
            assert other != span.document
            assert used == answer[: answers.LENGTH - 1]
        return [(span.document, None)]

    def check_origins(self, loader: Any, origins: Sequence[RowOrigin], rows: Sequence[Row]) -> list[Any]:
        found = super().check_origins(loader, origins, rows)
        if self.answers.kind == "preference":
            assert [number + 1 for number, _ in found[::2]] == [number for number, _ in found[1::2]]
        return found


def _in(rows: Sequence[Row], unit: int) -> list[Sequence[Row]]:
    return [rows[at : at + unit] for at in range(0, len(rows), unit)]


all_answers = st.builds(
    lambda *how, shuffle: Answered(answers.Answers(*how), shuffle),
    *(st.sampled_from(answers.KINDS), st.sampled_from([2, 7, 30, 61]), st.booleans()),
    shuffle=shuffles,
)
KINDS = [
    conversations("prepared", packing=True),
    conversations("growing", packing=True),
    conversations("growing", packing=False),
    Kind("answers", all_answers, lambda: Answered(answers.Answers("preference", 61)), cases=12),
]
