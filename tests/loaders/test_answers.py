"""Batches of preferences, judged answers and judged steps: their fields, pinned, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laws import Work
from loaders.answers import KINDS, LENGTH, TOKENIZER, AnswerRanks, Answers, rows_of_kind, samples_in
from loaders.samples import follows_its_hint
from millstream import (
    LoaderError,
    MixedDataLoader,
    RecipeError,
    SourceError,
    Topology,
    TrainingBatch,
    distribute,
    per_row,
)
from millstream.errors import MillstreamError, StateError, StoreError
from millstream.loaders import ConversationDataLoader
from millstream.loaders.answers import AnswerRows
from millstream.loaders.runs import StoreRun
from millstream.store import TokenStore

END = "<|endoftext|>"


def text(ids: Any) -> str:
    """The text of the ids of a row, without padding and what has no loss."""
    return TOKENIZER.decode([int(token) for token in ids if token >= 0])


def first_batch(kind: str, count: int = 4, **given: Any) -> TrainingBatch:
    with Answers(kind, count, stored=True).loader(shuffle=False, batch_size=count, **given) as loader:
        return loader.next().copy()


def test_a_pair_is_two_neighbouring_rows_and_two_sides() -> None:
    batch = first_batch("preference")
    rows = rows_of_kind("preference", 4)

    assert batch.metadata["pairs"] == 4
    assert batch.input_ids.shape == (8, LENGTH)
    for side in ("chosen", "rejected"):
        assert [text(labels) for labels in batch[f"{side}_labels"]] == [row[side] + END for row in rows]
    assert np.shares_memory(batch.chosen.input_ids, batch.input_ids)
    assert np.array_equal(batch["rejected_input_ids"], batch.input_ids[1::2])
    assert batch["chosen_attention_mask"].sum() == batch.chosen.metadata["tokens"]
    assert "chosen_input_ids" in batch
    assert "label" not in batch


@pytest.mark.parametrize("labels", ["next", "same"])
def test_a_judged_answer_has_its_label_and_the_answer_of_a_neighbour(labels: str) -> None:
    batch = first_batch("kto", 5, labels=labels)
    rows = rows_of_kind("kto", 5)
    neighbours = [1, 0, 3, 2, 3]

    assert batch["label"].tolist() == [row["label"] for row in rows] == batch.metadata["label"]
    assert [text(row) for row in batch.labels] == [row["completion"] + END for row in rows]
    assert [text(row) for row in batch["kl_labels"]] == [rows[other]["completion"] + END for other in neighbours]
    assert batch.metadata["kl_document"] == neighbours
    for row, real in zip(batch.kl.input_ids if batch.kl else (), batch["kl_attention_mask"], strict=True):
        assert text(row[real == 1]).count(END) == 1
    ahead = 1 if labels == "next" else 0
    for ids, targets in ((batch.input_ids, batch.labels), (batch["kl_input_ids"], batch["kl_labels"])):
        for row, target in zip(ids, targets, strict=True):
            places = np.flatnonzero(target >= 0)
            assert np.array_equal(row[places + ahead], target[places])


def test_what_a_neighbours_answer_leaves_no_room_for_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "long " * 12, "completion": "a", "label": True},
        {"prompt": "b", "completion": "mill " * 12, "label": False},
    ]
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "cache_dir": tmp_path, "framework": "numpy", "max_length": 80}
    with ConversationDataLoader(rows, batch_size=2, shuffle=False, **how) as loader:
        batch = loader.next()
        losses = loader.losses

    assert batch.kl is not None and batch.kl.lengths is not None
    whole = batch.input_ids.shape[1]
    lengths, cuts = batch.kl.lengths.tolist(), batch.kl.metadata["cut_tokens"]
    answers = (batch.labels >= 0).sum(axis=1)
    prompts = batch._real_lengths() - answers
    assert [length + cut for length, cut in zip(lengths, cuts, strict=True)] == (prompts + answers[::-1]).tolist()
    assert lengths[0] == whole and cuts[0] > 0 == cuts[1]
    assert (losses["cut_tokens"], losses["kl_cut_tokens"]) == (0, cuts[0])


def test_a_step_has_its_label_on_its_last_token() -> None:
    batch = first_batch("stepwise")
    for number, row in enumerate(rows_of_kind("stepwise", 4)):
        places = np.flatnonzero(batch.labels[number] != -100)
        assert batch.labels[number, places].tolist() == [int(label) for label in row["labels"]]
        before = [text(batch.input_ids[number, : place + 1]) for place in places]
        steps = [
            row["prompt"] + "".join(step + "\n" for step in row["completions"][: n + 1]) for n in range(len(places))
        ]
        assert before == steps
    assert batch.loss_weights is None
    assert batch.metadata["loss_tokens"] == batch.metadata["num_loss_tokens"] == batch.metadata["loss_denominator"] == 6


def test_the_first_batches_are_the_ones_that_were_pinned() -> None:
    """A change of these is a change of what people train on."""
    found: dict[str, Any] = {}
    for kind in ("preference", "kto", "stepwise"):
        with Answers(kind, 5, stored=True).loader(batch_size=2, seed=7, max_length=LENGTH) as loader:
            batch = loader.next()
            found[kind] = [[text(row[:real]) for row, real in zip(batch.input_ids, batch._real_lengths(), strict=True)]]
            found[kind] += [batch.metadata.get("label"), batch.metadata.get("kl_document")]
    assert found == PINNED


def test_cutting_copying_and_moving_keeps_answers_whole() -> None:
    for kind in ("preference", "kto"):
        batch = first_batch(kind, 5)
        whole = list(samples_in(batch))
        parts = batch.split(3)
        assert [len(part.input_ids) // part.unit for part in parts] == [2, 2, 1]
        assert [sample for part in parts for sample in samples_in(part)] == whole
        assert list(samples_in(TrainingBatch.merge(parts))) == whole
        assert list(samples_in(batch.copy())) == whole
        for balance in ("rows", "tokens"):
            shares = distribute(batch, Topology.flat(2), balance=balance)
            assert sorted(sample for share in shares for sample in samples_in(share)) == sorted(whole)
        kept = batch.kl
        batch.release()
        assert kept is None or kept.input_ids is None


def test_trl_gets_better_answers_then_worse_ones() -> None:
    batch = first_batch("preference")
    inputs = batch.trl_inputs()

    assert np.array_equal(inputs["input_ids"], np.concatenate([batch["chosen_input_ids"], batch["rejected_input_ids"]]))
    answers = [text(row[mask == 1]) for row, mask in zip(inputs["input_ids"], inputs["completion_mask"], strict=True)]
    rows = rows_of_kind("preference", 4)
    assert answers == [row[side] + END for side in ("chosen", "rejected") for row in rows]
    judged = first_batch("kto", labels="same").trl_inputs()
    assert set(judged) == {*inputs, *(f"KL_{name}" for name in inputs), "label"}
    with pytest.raises(Exception, match="no collator"):
        first_batch("stepwise").trl_inputs()


@pytest.mark.parametrize("kind", ["preference", "kto", "stepwise"])
def test_what_is_only_for_conversations_is_refused(kind: str) -> None:
    data = Answers(kind, 4, stored=True)
    refused: list[dict[str, Any]] = [{"packing": True}, {"loss": "sequence"}, {"max_length": LENGTH - 1}]
    refused += [{"group_by_length": True}, {"max_tokens": 8 * LENGTH}]
    refused += [{"pad_to": "longest"}] if kind == "kto" else []
    if kind == "stepwise":
        refused.append({"labels": "next"})
    for given in refused:
        with pytest.raises(LoaderError) as caught:
            data.loader(**given)
        follows_its_hint(caught.value)
    with data.loader() as loader, pytest.raises(LoaderError, match="not mixed"):
        MixedDataLoader({"a": (loader, 1.0)})
    raw: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": LENGTH}
    about_chats: list[dict[str, Any]] = [{"train": "all"}, {"truncation": "split"}]
    for given in about_chats:
        with pytest.raises(RecipeError) as wrong:
            ConversationDataLoader(rows_of_kind(kind, 3), **raw, **given)
        follows_its_hint(wrong.value)


def test_a_single_judged_answer_is_refused(tmp_path: Path) -> None:
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": LENGTH, "cache_dir": tmp_path}
    with ConversationDataLoader(rows_of_kind("kto", 1), **how) as loader, pytest.raises(LoaderError, match="two rows"):
        loader.next()


@pytest.mark.parametrize("stored", [True, False], ids=["store", "raw"])
def test_a_state_that_would_part_pairs_is_refused(stored: bool) -> None:
    data = Answers("preference", 7, stored)
    with data.loader(batch_size=2) as loader:
        loader.next()
        state = loader.state_dict()
        for path, value in (
            (("sources", "data", "unit"), 0),
            (("sources", "data", "unit"), 1),
            (("sources", "data", "unit"), 3),
            (("sources", "data", "offset"), 1),
            (("global_rows",), 3),
            (("offset",), 1),
        ):
            damaged = json.loads(json.dumps(state))
            place = damaged["phases"][0]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            with pytest.raises(StateError) as caught:
                loader.load_state_dict(damaged)
            follows_its_hint(caught.value)
        loader.load_state_dict(state)
        assert loader.next().metadata["pairs"] == 2


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "preference": [
        ({"prompt": "p", "chosen": "a"}, "missing field"),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "no prompt"),
        ({"prompt": "p", "chosen": "", "rejected": "b"}, "empty answer"),
        ({"prompt": "p", "chosen": "Ä", "rejected": "b"}, "cannot be encoded"),
    ],
    "kto": [
        ({"prompt": "p", "completion": "a"}, "missing field"),
        ({"prompt": "", "completion": "a", "label": True}, "no prompt"),
        ({"prompt": "p", "completion": "", "label": True}, "empty answer"),
        ({"prompt": "p", "completion": "a", "label": "maybe"}, "wrong type"),
    ],
    "stepwise": [
        ({"prompt": "p", "completions": ["a"], "labels": []}, "lengths differ"),
        ({"prompt": "", "completions": ["a"], "labels": [True]}, "no prompt"),
        ({"prompt": "p", "completions": [], "labels": []}, "empty conversation"),
    ],
}


@pytest.mark.parametrize(("kind", "row", "reason"), [(kind, *each) for kind, rows in BAD.items() for each in rows])
def test_a_row_that_cannot_be_used_is_named_by_file_and_line(
    kind: str, row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.jsonl", [*rows_of_kind(kind, 2), row, *rows_of_kind(kind, 2)])
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": 64, "cache_dir": tmp_path / "cache"}
    with pytest.raises(MillstreamError, match=rf"rows\.jsonl:3: {reason}"):
        ConversationDataLoader(path, **how).close()
    with ConversationDataLoader(path, **how, on_bad="skip") as loader:
        loader.wait()
        store = loader.store
        assert store.manifest["recipe"]["left_out"] == {reason: 1}
        assert store.documents == 4 * (2 if kind == "preference" else 1)


def test_rows_of_another_kind_are_bad_rows(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", rows_of_kind("kto", 3))
    write(tmp_path / "2.jsonl", rows_of_kind("preference", 2))
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": 64, "cache_dir": tmp_path / "cache"}
    with pytest.raises(SourceError, match="wrong kind"), ConversationDataLoader(tmp_path, **how) as loader:
        loader.wait()
    with ConversationDataLoader(tmp_path, **how, on_bad="skip") as loader:
        loader.wait()
        assert loader.store.manifest["recipe"]["left_out"] == {"wrong kind": 2}
        assert loader.store.manifest["recipe"]["chat"]["kind"] == "kto"


def test_a_pair_is_no_duplicate_of_itself(tmp_path: Path) -> None:
    """A record that became several documents is compared as one."""
    rows = rows_of_kind("preference", 4)
    path = write(tmp_path / "rows.jsonl", [*rows, *rows])
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": 64, "cache_dir": tmp_path / "cache"}
    with ConversationDataLoader(path, **how, recipe=["exact_dedup"]) as loader:
        loader.wait()
        assert loader.store.documents == 8
        assert sum(loader.store.manifest["recipe"]["left_out"].values()) == 4


@pytest.mark.parametrize("kind", ["preference", "kto", "stepwise"])
def test_training_starts_while_answers_are_made(kind: str, tmp_path: Path) -> None:
    """What was delivered meanwhile is what a loader over the finished store delivers."""
    fields: dict[str, dict[str, Any]] = {
        "preference": {"chosen": "yes", "rejected": "no"},
        "kto": {"completion": "yes", "label": True},
        "stepwise": {"completions": ["a", "b"], "labels": [True, False]},
    }
    path = write(tmp_path / "rows.jsonl", [{"prompt": f"{number}?", **fields[kind]} for number in range(5000)])
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": LENGTH, "cache_dir": tmp_path / "cache"}
    how |= {"framework": "numpy", "batch_size": 64, "reading": {"chunk_bytes": 20_000}}
    seen = []
    for _ in range(2):
        with ConversationDataLoader(path, **how) as loader:
            seen.append([sample for batch in loader for sample in samples_in(batch)])
            seen[-1] += [sample for batch in loader for sample in samples_in(batch)]

    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 10_000
    first = seen[0][:5000]
    assert first != sorted(first)


def test_pairs_lie_beside_each_other_in_the_store_and_name_their_row(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", rows_of_kind("preference", 40))
    how: dict[str, Any] = {"tokenizer": TOKENIZER, "max_length": 64, "cache_dir": tmp_path / "cache"}
    with ConversationDataLoader(path, **how) as loader:
        loader.wait()
        store: TokenStore = loader.store
        for document in range(store.documents):
            row = int(TOKENIZER.decode(store.document(document).tolist()).split()[0])
            origin = store.origin_of(document)
            assert origin is not None and origin.row == row
            assert ("yes" in TOKENIZER.decode(store.document(document).tolist())) == (document % 2 == 0)


PINNED: dict[str, Any] = {
    "preference": [
        [
            "2 what???2 yes aa<|endoftext|>",
            "2 what???2 no!<|endoftext|>",
            "1 what??1 yes a<|endoftext|>",
            "1 what??1 no!<|endoftext|>",
        ],
        None,
        None,
    ],
    "kto": [["2 what???2 so aa<|endoftext|>", "1 what??1 so a<|endoftext|>"], [False, False], [1, 2]],
    "stepwise": [["2 what???b\n", "1 what??b\nca\n"], None, None],
}


@pytest.mark.parametrize("kind", ["preference", "stepwise"])
def test_answers_are_padded_to_the_longest_of_their_batch(kind: Any) -> None:
    with (
        Answers(kind, 6).loader(batch_size=3, pad_to="longest") as short,
        Answers(kind, 6).loader(batch_size=3) as full,
    ):
        batch, whole = short.next(), full.next()
    assert batch.lengths is not None
    length = int(batch.lengths.max())

    assert batch.input_ids.shape[1] == length < LENGTH
    assert np.array_equal(batch.input_ids, whole.input_ids[:, :length])
    assert np.array_equal(batch.labels, whole.labels[:, :length])


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_fill_up_a_batch_have_no_loss(kind: str) -> None:
    data = Answers(kind, 7, stored=True)
    with data.loader(batch_size=3, pad_last=True, world_size=2, rank=1) as loader:
        batches = list(loader)
    last, unit = batches[-1], batches[-1].unit
    assert [sum(batch.metadata["filler"]) for batch in batches] == [0, 3 * unit]
    assert last.input_ids.shape == (3 * unit, LENGTH)
    assert (last.labels == -100).all()
    assert last.kl is None or (last.kl.labels == -100).all()


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_rows_are_the_same_on_any_ranks(kind: str) -> None:
    """What is mismatched is made before: it does not depend on which rows a rank transforms."""

    @per_row
    def hide(row: Any, rng: Any) -> Any:
        row["input_ids"][rng.random(row["input_ids"].shape) < 0.5] = 0
        return row

    seen: list[Counter[Any]] = []
    for world_size in (1, 3):
        work = Work(threads=2, prefetch=2, world_size=world_size)
        with AnswerRanks(Answers(kind, 30, stored=True), work, 12, transforms=[hide]) as run:
            seen.append(Counter(run.epoch()))
    assert seen[0] == seen[1]


def test_answers_whose_store_was_moved_meanwhile_are_found_where_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A growing store is finished, and moved, at any moment; one that is gone for another reason is an error."""
    expected = list(samples_in(first_batch("kto", 5)))
    take, moved, found = AnswerRows.take, [True], [True]

    def missing(self: AnswerRows, *given: Any) -> Any:
        if moved and moved.pop():
            raise StoreError("this file is missing")
        return take(self, *given)

    monkeypatch.setattr(AnswerRows, "take", missing)
    monkeypatch.setattr(StoreRun, "finds_files_again", lambda _: found.pop())
    assert list(samples_in(first_batch("kto", 5))) == expected and not found
    moved.append(True)
    found.append(False)
    with pytest.raises(StoreError, match="missing"):
        first_batch("kto", 5)
