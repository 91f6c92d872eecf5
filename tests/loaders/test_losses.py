"""Honest: what was left out of a store, or cut, is named by its loader, and told once."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chats.chatml import bpe
from loaders.conversations import CHAT, conversation
from millstream import ConversationDataLoader, LossWarning, MixedDataLoader, PretrainDataLoader, prepare
from millstream.loaders.growing import BackgroundPrepare
from millstream.preparation.bad_records import LOUD
from millstream.store import TokenStore

GOOD, BAD = 12, 3


def rows(*more: object) -> str:
    return "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in (*CHATS, *more))


CHATS = [conversation(number, 40) for number in range(GOOD)]
PICTURE = {"type": "image_url", "image_url": {"url": "mill.png"}}
WITH_PICTURE = {
    "messages": [
        {"role": "user", "content": [PICTURE, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": "A mill."},
    ]
}
CASES: dict[str, tuple[list[object], dict[str, Any], dict[str, int]]] = {
    "bad rows": (["no json"] * BAD, {"on_bad": "skip"}, {"left_out:data:not JSON": BAD}),
    "too long": ([conversation(1, 400)], {"truncation": "drop"}, {"left_out:data:too long": 1}),
    "cut": ([conversation(1, 400)], {"truncation": "keep_start"}, {"changed:data:truncated": 1}),
    "media": ([WITH_PICTURE], {"media": "ignore"}, {"changed:data:media left out": 1}),
    "untrained": (
        [{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!", "weight": 0}]}],
        {"untrained": "drop"},
        {"left_out:data:nothing to train": 1},
    ),
}
LONG_PICTURE = {"messages": [*WITH_PICTURE["messages"], *conversation(1, 400)["messages"]]}
DROPPED: dict[str, tuple[object, dict[str, Any]]] = {
    "too long": (conversation(1, 400), {"truncation": "drop"}),
    "too long, of one exchange": (conversation(1, 400), {"truncation": "turns"}),
    "too long, with a picture": (LONG_PICTURE, {"truncation": "drop", "media": "ignore"}),
    "bad, with a picture": (LONG_PICTURE, {"truncation": "error", "on_bad": "skip", "media": "ignore"}),
    "nothing is learned of what is left": (
        {"messages": [{"role": "user", "content": "why? " * 400}, {"role": "assistant", "content": "!"}]},
        {"truncation": "keep_start", "untrained": "drop"},
    ),
}


def chats(path: Any, cache: Path, **given: Any) -> ConversationDataLoader:
    how = {"tokenizer": bpe(), "max_length": 256, "framework": "numpy", "cache_dir": cache, **CHAT}
    return ConversationDataLoader(path, **{**how, **given})


@pytest.mark.parametrize("case", CASES)
def test_rows_of_conversations_that_are_left_out_or_cut_are_named_by_reason_and_told_once(
    tmp_path: Path, case: str
) -> None:
    more, given, losses = CASES[case]
    (tmp_path / "chats.jsonl").write_text(rows(*more))

    with pytest.warns(LossWarning) as told, chats(tmp_path / "chats.jsonl", tmp_path / "cache", **given) as loader:
        loader.wait()
        assert {key: loader.losses.get(key) for key in losses} == losses
    assert len(told) == 1
    assert told[0].filename == __file__
    assert "report.html" in str(told[0].message)
    with pytest.warns(LossWarning) as again, chats(tmp_path / "chats.jsonl", tmp_path / "cache", **given) as loader:
        assert {key: loader.losses.get(key) for key in losses} == losses
    assert str(again[0].message) == str(told[0].message)


@pytest.mark.parametrize("truncation", ["keep_start", "keep_end", "turns", "split"])
def test_rows_that_were_shortened_when_the_store_was_made_are_counted_apart_from_what_a_loader_cuts(
    tmp_path: Path, truncation: Any
) -> None:
    (tmp_path / "chats.jsonl").write_text(
        "".join(
            json.dumps({"messages": [*conversation(1, 9)["messages"], *conversation(2, words)["messages"]]}) + "\n"
            for words in range(5, 45, 5)
        )
    )
    how: Any = {"tokenizer": bpe(), "kind": "chat", "chat_template": "chatml"}
    whole = prepare(tmp_path / "chats.jsonl", tmp_path / "whole", **how)
    with TokenStore(whole.path) as store:
        lengths = [stop - start for start, stop in map(store.document_span, range(store.documents))]
    limit = lengths[4]
    made = prepare(tmp_path / "chats.jsonl", tmp_path / "cut", max_length=limit, truncation=truncation, **how)
    rows: Any = {"max_length": limit, "batch_size": len(lengths), "framework": "numpy"}

    with pytest.warns(LossWarning, match="3 truncated"), ConversationDataLoader(made.path, **rows) as loader:
        loader.next()
        assert (loader.losses["changed:data:truncated"], loader.losses["cut_tokens"]) == (3, 0)
    with ConversationDataLoader(whole.path, **rows) as loader:
        loader.next()
        cut = sum(length - limit for length in lengths if length > limit)
        assert (loader.losses.get("changed:data:truncated"), loader.losses["cut_tokens"]) == (None, cut)


@pytest.mark.parametrize("case", DROPPED)
def test_a_row_that_is_left_out_is_counted_once_and_not_as_changed(tmp_path: Path, case: str) -> None:
    row, given = DROPPED[case]
    (tmp_path / "chats.jsonl").write_text(rows(row))

    with pytest.warns(LossWarning), chats(tmp_path / "chats.jsonl", tmp_path / "cache", **given) as loader:
        loader.wait()
        losses = {key: number for key, number in loader.losses.items() if number}
    assert [key.partition(":")[0] for key in losses] == ["left_out"] and [*losses.values()] == [1]


def test_the_warning_says_how_many_of_how_many_and_the_most_frequent_reason(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(rows(*["no json"] * BAD, {"messages": []}))

    with (
        pytest.warns(LossWarning) as told,
        chats(tmp_path / "chats.jsonl", tmp_path / "cache", on_bad="skip") as loader,
    ):
        loader.wait()
    said = f"left out: {BAD + 1} of {GOOD + BAD + 1} rows, most often 'not JSON' ({BAD})"
    assert [said in str(each.message) for each in told] == [True]


def test_nothing_is_told_where_nothing_was_left_out_nor_of_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(rows() + "\n\n")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with chats(tmp_path / "chats.jsonl", tmp_path / "cache") as loader:
            loader.wait()
            assert loader.losses == {"cut_tokens": 0, "left_out:data:blank line": 2}


def test_one_rank_tells_it_for_all(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(rows("no json"))

    with chats(tmp_path / "chats.jsonl", tmp_path / "cache", on_bad="skip", rank=1, world_size=2) as loader:
        loader.wait()
        assert loader.losses["left_out:data:not JSON"] == 1


@pytest.mark.parametrize("form", [list, lambda given: given], ids=["rows", "file"])
def test_what_is_known_so_far_is_named_while_rows_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[[Any], Any]
) -> None:
    (tmp_path / "chats.jsonl").write_text(rows({"messages": []}))
    source: Any = tmp_path / "chats.jsonl" if form is not list else [*CHATS, {"messages": []}]
    look = BackgroundPrepare.look

    def only_unfinished(growth: BackgroundPrepare) -> tuple[TokenStore | None, bool]:
        if seen:
            return look(growth)
        while (found := look(growth))[0] is None and not found[1]:
            pass
        seen.append(found[0])
        return found

    seen: list[TokenStore | None] = []
    monkeypatch.setattr(BackgroundPrepare, "look", only_unfinished)
    with pytest.warns(LossWarning), chats(source, tmp_path / "cache", on_bad="skip") as loader:
        assert loader.losses["left_out:data:empty conversation"] == 1
        loader.wait()


@pytest.mark.parametrize("made_by", ["loader", "prepare"])
def test_texts_that_are_left_out_are_named_and_told_by_raw_loaders_and_over_stores(
    tmp_path: Path, made_by: str
) -> None:
    good = "".join(json.dumps({"text": f"{number} fine words by the mill"}) + "\n" for number in range(GOOD))
    (tmp_path / "a.jsonl").write_text(good + '{"txt": 1}\n')
    source = tmp_path / "a.jsonl"
    given: dict[str, Any] = {"tokenizer": "char", "on_bad": "skip", "cache_dir": tmp_path / "cache"}
    if made_by == "prepare":
        source, given = prepare(source, tmp_path / "store", tokenizer="char", on_bad="skip").path, {}

    with pytest.warns(LossWarning, match=f"1 of {GOOD + 1} rows") as told:
        loader = PretrainDataLoader(source, chunk_size=8, framework="numpy", **given)
    assert loader.losses["left_out:data:no text in 'text'"] == 1
    with MixedDataLoader({"web": (loader, 1.0)}, framework="numpy") as mixed:
        assert mixed.losses["left_out:web:no text in 'text'"] == 1
    assert len(told) == 1


def test_a_stream_with_bad_records_in_every_unit_tells_a_reason_a_few_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "wheel"}\nno json\n' * 40, "utf-8")
    given: dict[str, Any] = {"tokenizer": bpe(), "chunk_size": 4, "framework": "numpy", "threads": 1}
    with PretrainDataLoader(tmp_path, streaming=True, on_bad="skip", reading={"chunk_bytes": 64}, **given) as loader:
        for _ in loader:
            pass

    assert loader.losses["left_out:data:not JSON"] == 40
    assert sum("left out" in record.message for record in caplog.records if record.levelname == "WARNING") == LOUD
