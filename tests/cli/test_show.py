"""`millstream show` and `loader.show`: a row of files, of a store, of a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command import Run
from millstream.api import prepare
from millstream.cli.terminal import print_shown
from millstream.errors import LoaderError
from millstream.loaders import ConversationDataLoader, show_chat
from millstream.store import TokenStoreWriter
from millstream.tokens import BPETokenizer

TOKENIZER = BPETokenizer.train(["user assistant 2+2? the mill by the stream\n"], vocab_size=270)
HOW: dict[str, Any] = {"chat_template": "chatml", "add_control_tokens": True}
CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": f"{n}+{n}?"}, {"role": "assistant", "content": f"{2 * n}"}]}
    for n in range(6)
]
SHOWN = "<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant\n⟦6<|im_end|>⟧\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CHATS))
    return path


@pytest.fixture
def flags(tmp_path: Path) -> list[object]:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    return ["-t", tmp_path / "tokenizer.json", "--template", "chatml", "--add-control-tokens"]


@pytest.fixture
def store(source: Path, tmp_path: Path) -> Path:
    return prepare(source, tmp_path / "store", TOKENIZER, kind="chat", **HOW).path


def test_a_row_of_a_file_is_named_and_its_messages_are_numbered(run: Run, source: Path, flags: list[object]) -> None:
    code, out, _ = run("show", source, *flags, "--row", 3)

    assert code == 0
    assert out.startswith("chats.jsonl:4  ")
    assert "── 0 user\n" in out
    assert "── 1 assistant\n<|im_start|>assistant\n⟦6<|im_end|>⟧\n" in out


def test_a_row_of_a_store_is_the_same_text(run: Run, store: Path) -> None:
    code, out, _ = run("show", store, "--row", 3)

    assert code == 0
    assert out.startswith("══ conversation 3 (chats.jsonl:4)  ")
    assert out.endswith(SHOWN)


def test_the_rows_of_a_packed_step_show_every_conversation_and_where_it_begins(run: Run, store: Path) -> None:
    flags = ("--packing", "--chunk-size", 100, "--batch-size", 1, "--seed", 3)
    with ConversationDataLoader(store, packing=True, max_length=100, batch_size=1, seed=3, framework="numpy") as loader:
        for step in range(loader.get_num_batches()):
            spans = loader.explain(step)[0].spans
            shown = loader.show(0, step=step)

            assert shown == run("show", store, "--step", step, *flags)[1]
            assert [f"══ conversation {span.document} " in shown for span in spans] == [True] * len(spans)
            assert shown.count("══ conversation") == len(spans)


def test_what_is_learned_of_a_step_is_what_its_labels_say(store: Path) -> None:
    with ConversationDataLoader(store, max_length=20, batch_size=2, seed=1, framework="numpy") as loader:
        shown = [loader.show(row, step=0) for row in range(2)]
        labels = loader.next().labels

    for text, row in zip(shown, labels, strict=True):
        learned = "".join(part.text.strip("⟦⟧") for part in text.parts if part.style == "trained")
        assert loader.tokenizer is not None
        assert learned == loader.tokenizer.decode(row[row >= 0].tolist())
        assert "shortened" in text


def test_machines_get_the_parts(run: Run, source: Path, flags: list[object]) -> None:
    parts = json.loads(run("show", source, *flags, "--row", 3, "--json")[1])["parts"]

    assert [part["text"] for part in parts if part["style"] == "trained"] == ["⟦6<|im_end|>⟧"]


def test_weights_truncation_and_splitting_are_seen(tmp_path: Path) -> None:
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("user", "assistant")]
    turns[1]["weight"] = 0.5  # type: ignore[assignment]

    whole = show_chat([{"messages": turns}], tokenizer=TOKENIZER, **HOW)
    split = show_chat([{"messages": turns}], tokenizer=TOKENIZER, max_length=80, truncation="split", **HOW)
    dropped = show_chat([{"messages": turns}], tokenizer=TOKENIZER, max_length=9, truncation="drop", **HOW)

    assert "⟦assistant 0<|im_end|>⟧×0.5" in whole
    assert "rows:1, part 2 of " in split
    assert "shortened" in split
    assert "left out: it is too long" in dropped


def test_both_answers_of_a_pair_are_shown() -> None:
    shown = show_chat([{"prompt": "2+2?", "chosen": "4", "rejected": "5"}], tokenizer=TOKENIZER)

    assert "rows:1 chosen  " in shown
    assert "rows:1 rejected  " in shown
    assert ("⟦4" in shown, "⟦5" in shown) == (True, True)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"messages": [{"role": "us', "chats.jsonl:7: not JSON"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "chats.jsonl:7: no assistant turn"),
        ("", "chats.jsonl:7: this line is blank"),
        (
            '{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": ""}]}',
            ":7: not Unic",
        ),
    ],
)
def test_a_row_that_cannot_be_shown_says_why(run: Run, source: Path, flags: list[object], line: str, told: str) -> None:
    with source.open("a") as file:
        file.write(f"{line}\n{line}\n")

    code, out, err = run("show", source, *flags, "--row", 6)

    assert (code, out) == (2, "")
    assert told in err


def test_rows_that_do_not_exist_are_named_with_those_that_do(run: Run, source: Path, store: Path) -> None:
    with ConversationDataLoader(store, framework="numpy") as loader, pytest.raises(LoaderError, match="among 6"):
        loader.show(6)
    assert "step 0 has no row 9" in run("show", store, "--step", 0, "--row", 9)[2]
    assert "need a tokenizer" in run("show", source, "--template", "chatml")[2]
    assert "leave out --train" in run("show", store, "--train", "last")[2]
    assert "leave out --max-length" in run("show", store, "--max-length", 9)[2]


def test_a_store_of_texts_is_for_other_verbs(run: Run, corpus: Path) -> None:
    assert "use inspect or explain" in run("show", corpus, "--chunk-size", 8)[2]


def test_colour_is_for_terminals_that_want_it(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ConversationDataLoader(store, framework="numpy") as loader:
        shown = loader.show(3)
    monkeypatch.setenv("TERM", "xterm-256color")
    print_shown(shown)
    piped = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_shown(shown)
    coloured = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_shown(shown)

    assert piped == shown == capsys.readouterr().out
    assert "\x1b[32m⟦6<|im_end|>⟧\x1b[0m" in coloured


def test_a_store_that_does_not_know_its_sources_shows_its_rows_without_them(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "bare", dtype="weighted") as writer:
        writer.append(TOKENIZER.encode("the mill"), weights=[1] * len(TOKENIZER.encode("the mill")))
    with ConversationDataLoader(tmp_path / "bare", tokenizer=TOKENIZER, framework="numpy") as loader:
        assert loader.show(0).startswith("══ conversation 0  ")
