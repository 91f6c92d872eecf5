"""Conversations become a store by `prepare(kind="chat")`: the same bytes every time, every bad row named."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream
from command import Run
from millstream.api import load, prepare
from millstream.cli.main import main
from millstream.cli.options import add_chat_arguments
from millstream.errors import LoaderError, MillstreamError, RecipeError, SourceError, TokenizerError
from millstream.loaders import ChatKeywords, ConversationDataLoader, PretrainDataLoader
from millstream.preparation import raw_record
from millstream.store import TokenStore
from millstream.tokens import BPETokenizer, load_tokenizer

TOKENIZER = BPETokenizer.train(["user assistant 2+2? four the mill by the stream"], vocab_size=270)
HOW: dict[str, Any] = {"kind": "chat", "chat_template": "chatml", "add_control_tokens": True}


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"messages": messages, **fields}


CHATS = [chat("2+2?", "4"), chat("The mill?", "It runs.", "Why?", "The stream."), chat("日本語?", "🙂 ok", id=7)]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CHATS))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    TOKENIZER.save(path)
    return path


def learned(store: TokenStore, document: int) -> str:
    start, stop = store.document_span(document)
    ids, weights = store.read(start, stop), store.weights(start, stop)
    return load_tokenizer(store.path).decode(ids[weights > 0].tolist())


def files_of(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "report" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_the_assistant_says_is_learned_and_nothing_else(source: Path, tmp_path: Path) -> None:
    report = prepare(source, tmp_path / "store", TOKENIZER, **HOW)

    store = TokenStore(report.path)
    assert [learned(store, n) for n in range(3)] == [
        "4<|im_end|>", "It runs.<|im_end|>The stream.<|im_end|>", "🙂 ok<|im_end|>",
    ]  # fmt: skip
    weights = store.weights(0, len(store))
    assert report.details["chat"]["trained_tokens"] == np.count_nonzero(weights)
    assert sum(report.details["lengths"]) == 3


def test_tokens_whose_weight_a_store_cannot_hold_are_counted(tmp_path: Path) -> None:
    rows = [chat("2+2?", "4"), chat("Why?", "The mill."), chat("The stream?", "It runs.")]
    for row, weight in zip(rows, (1, 0.5, 0.3333), strict=True):
        row["messages"][1]["weight"] = weight
    report = prepare(rows, tmp_path / "store", TOKENIZER, **HOW)

    store = TokenStore(report.path)
    weights = store.weights(*store.document_span(2))
    assert report.details["changed"] == {"weights rounded": np.count_nonzero(weights)}
    assert weights.max() == pytest.approx(0.33)


def test_any_number_of_workers_and_any_format_of_the_file_give_the_same_tokens(tmp_path: Path) -> None:
    rows = [chat(f"{n}+{n}?", f"{2 * n}") for n in range(400)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    how = {**HOW, "chunk_bytes": 4000, "cache": False}
    for workers in (1, 3):
        prepare(tmp_path / "rows.jsonl", tmp_path / str(workers), TOKENIZER, workers=workers, **how)
    table = prepare(tmp_path / "rows.parquet", tmp_path / "table", TOKENIZER, **how)
    listed = prepare(rows, tmp_path / "listed", TOKENIZER, **how)

    assert files_of(tmp_path / "1") == files_of(tmp_path / "3")
    assert TokenStore(tmp_path / "1").fingerprint == table.fingerprint == listed.fingerprint


def test_what_was_shortened_dropped_or_straddled_is_in_the_report_and_on_its_page(tmp_path: Path) -> None:
    rows = [chat("2+2?", "4"), chat("a" * 40, "b" * 40), chat("c" * 30, "d", "e", "f")]
    limit: dict[str, Any] = {"max_length": 40, "truncation": "turns"}

    report = prepare(rows, tmp_path / "store", TOKENIZER, **HOW, **limit)

    assert report.skipped == {"too long": 1}
    assert report.details["chat"]["truncated"] == report.details["changed"]["truncated"] == 1
    assert report.details["chat"]["max_length"] == 40
    assert "chatml, trains assistant, at most 40 tokens (else turns)" in report.page.read_text()


BAD = {
    "not JSON": '{"messages": [{"role": "user"',
    "not an object": "[1, 2]",
    "wrong type": '{"messages": 7}',
    "unknown role": '{"messages": [{"role": "miller", "content": "x"}]}',
    "empty conversation": '{"messages": []}',
    "no assistant turn": '{"messages": [{"role": "user", "content": "x"}]}',
    "not Unicode": '{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "x"}]}',
    "tool result without call": json.dumps(
        {"messages": [*chat("x", "y")["messages"], {"role": "tool", "content": "7", "tool_call_id": "1"}]}
    ),
    "too long": json.dumps(chat("x", "y" * 1000)),
}  # fmt: skip


@pytest.mark.parametrize("reason", BAD)
def test_every_kind_of_bad_row_is_named_by_file_and_line_or_set_aside(
    source: Path, tmp_path: Path, reason: str
) -> None:
    with source.open("a") as file:
        file.write(BAD[reason] + "\n")

    with pytest.raises(SourceError, match=rf"chats\.jsonl:4: {reason}"):
        prepare(source, tmp_path / "store", TOKENIZER, max_length=500, **HOW)
    report = prepare(source, tmp_path / "store", TOKENIZER, max_length=500, on_bad="quarantine", **HOW)

    assert (report.documents, report.skipped) == (3, {reason: 1})
    assert report.quarantine is not None


@pytest.mark.parametrize("content", [b"", b"\n\n", bytes(range(256)) * 40], ids=["empty", "blank", "binary"])
def test_a_file_without_a_conversation_is_an_error_with_a_hint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)

    with pytest.raises(SourceError) as caught:
        prepare(tmp_path / "a.jsonl", tmp_path / "store", TOKENIZER, **HOW)

    assert caught.value.hint
    with pytest.raises(SourceError, match="no document was found"):
        prepare(tmp_path / "a.jsonl", tmp_path / "store", TOKENIZER, on_bad="skip", **HOW)
    assert not (tmp_path / "store").exists()


def test_words_about_texts_are_refused_for_conversations_and_the_reverse(source: Path, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [{"text_field": "x"}, {"eos": None}, {"eos": 7}, {"dtype": "uint16"}]
    for wrong in asked[:1] + asked[2:]:
        with pytest.raises(RecipeError, match="is about texts"):
            prepare(source, tmp_path / "store", TOKENIZER, **HOW, **wrong)
    with pytest.raises(RecipeError, match="is about conversations") as caught:
        prepare(source, tmp_path / "store", TOKENIZER, train="last")
    assert caught.value.hint == 'pass kind="chat" too'
    with pytest.raises(TokenizerError, match="would be learned"):
        prepare(source, tmp_path / "store", **HOW)
    with pytest.raises(SourceError, match="has no rows of several fields"):
        (tmp_path / "a.txt").write_text("x")
        prepare(tmp_path / "a.txt", tmp_path / "store", TOKENIZER, **HOW)


def test_the_folder_of_a_model_brings_its_template(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    model = tmp_path / "model"
    model.mkdir()
    TOKENIZER.save(model / "tokenizer.json")
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}"
        "\n{% endfor %}"
    )
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))

    how: dict[str, Any] = {"kind": "chat", "add_control_tokens": True}
    report = prepare(source, tmp_path / "store", model, **how)

    assert learned(TokenStore(report.path), 1) == "It runs.<|im_end|>The stream.<|im_end|>"
    assert report.details["chat"]["template"] == "model"


def test_load_opens_what_is_there(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "store", TOKENIZER, max_length=300, **HOW)
    how = {"tokenizer": TOKENIZER, "chat_template": "chatml", "add_control_tokens": True, "framework": "numpy"}

    with load(tmp_path / "store", framework="numpy") as prepared, load(source, max_length=300, **how) as raw:
        assert isinstance(prepared, ConversationDataLoader)
        assert isinstance(raw, ConversationDataLoader)
        assert prepared.shape.length == 300  # what the store was made for
        assert sorted(prepared.next().labels.tolist()) == sorted(raw.next().labels.tolist())
    (tmp_path / "a.jsonl").write_text('{"text": "the mill"}\n')
    with load(tmp_path / "a.jsonl", tokenizer="char", chunk_size=4, framework="numpy") as texts:
        assert isinstance(texts, PretrainDataLoader)
    with pytest.raises(LoaderError, match="conversations need a tokenizer"):
        load(source)


def test_the_command_says_the_same_as_the_function(source: Path, tokenizer: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "dialogs.jsonl").write_text(
        "".join(json.dumps({"dialog": row["messages"], "text": "x"}) + "\n" for row in CHATS)
    )
    flags = ("--kind", "chat", "--template", "chatml", "--add-control-tokens", "--train", "last", "--max-length", 50)

    code, out, _ = run(
        "prepare", tmp_path / "dialogs.jsonl", tmp_path / "store", "-t", tokenizer, *flags, "--truncation", "turns",
        "--columns", "messages=dialog", "--columns", "text=", "--no-train-reasoning",
    )  # fmt: skip

    last = prepare(source, tmp_path / "other", TOKENIZER, train="last", max_length=50, truncation="turns", **HOW)
    assert code == 0
    assert last.fingerprint in out
    trained = last.details["chat"]["trained_tokens"]
    assert f"trained    {trained}  (" in out
    assert learned(TokenStore(tmp_path / "store"), 1) == "The stream.<|im_end|>"


def test_every_keyword_about_conversations_has_its_flag() -> None:
    parser = argparse.ArgumentParser()
    add_chat_arguments(parser)

    assert ChatKeywords.__annotations__.keys() - {action.dest for action in parser._actions} == {"format"}


def test_a_fault_is_told_with_the_flags_that_mend_it(source: Path, tokenizer: Path, tmp_path: Path, run: Run) -> None:
    common = ("-t", tokenizer, "--kind", "chat", "--template", "chatml")

    lacking = run("prepare", source, tmp_path / "store", *common)
    ambiguous = tmp_path / "b.jsonl"
    ambiguous.write_text(json.dumps({**CHATS[0], "text": "x"}) + "\n")
    unclear = run("prepare", ambiguous, tmp_path / "store", *common, "--add-control-tokens")

    assert (lacking[0], unclear[0]) == (2, 2)
    assert "--add-control-tokens" in lacking[2]
    assert "pass --format messages or --format text, or hide fields: --columns text=" in unclear[2]


def test_machines_get_the_report_as_json(source: Path, tokenizer: Path, tmp_path: Path, run: Run) -> None:
    flags = ("-t", tokenizer, "--kind", "chat", "--template", "chatml", "--add-control-tokens", "--json")

    report = json.loads(run("prepare", source, tmp_path / "store", *flags)[1])

    assert report["details"]["chat"]["template"] == "chatml"
    assert 0 < report["details"]["chat"]["trained_share"] < 1


def test_the_other_verbs_know_stores_of_conversations(source: Path, tmp_path: Path, run: Run) -> None:
    report = prepare(source, tmp_path / "store", TOKENIZER, **HOW)

    inspected, verified = run("inspect", report.path), run("verify", report.path)
    explained = run("explain", report.path, "--step", 0, "--packing", "--chunk-size", 100, "--json")
    raw = run("explain", report.path, "--document", 2, "--raw")

    assert (inspected[0], verified[0], explained[0], raw[0]) == (0, 0, 0, 0)
    assert "conversations  chatml, trains assistant" in inspected[1]
    assert "all is well" in verified[1]
    assert sum(len(row["spans"]) for row in json.loads(explained[1])["rows"]) == 3
    assert json.dumps(CHATS[2], ensure_ascii=True) in raw[1]
    assert run("explain", report.path, "--step", 0, "--chunk-size", 9)[0] == 0


def test_a_state_of_packed_conversations_can_be_explained(source: Path, tmp_path: Path, run: Run) -> None:
    report = prepare(source, tmp_path / "store", TOKENIZER, **HOW)
    with ConversationDataLoader(report.path, max_length=90, packing=True, batch_size=1, framework="numpy") as loader:
        loader.next()
        (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
        spans = [span.document for origin in loader.explain(1) for span in origin.spans]

    code, out, _ = run("explain", report.path, "--state", tmp_path / "state.json", "--json")

    assert code == 0
    assert [span["document"] for row in json.loads(out)["rows"] for span in row["spans"]] == spans


def test_rows_that_never_were_in_a_file_have_no_raw_record(tmp_path: Path) -> None:
    report = prepare(CHATS, tmp_path / "store", TOKENIZER, **HOW)

    with pytest.raises(MillstreamError, match="was a data set in memory"):
        raw_record(TokenStore(report.path), 0)


def test_the_names_are_public() -> None:
    assert millstream.ConversationDataLoader is ConversationDataLoader
