"""What a loader of conversations says when it refuses: the class, the place, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    BPETokenizer,
    ConversationDataLoader,
    MillstreamError,
    RecordError,
    SourceError,
    TemplateError,
)

TOKENIZER = BPETokenizer.train(["user assistant the mill by the stream"], vocab_size=270)
ASK, TELL = {"role": "user", "content": "Does it run?"}, {"role": "assistant", "content": "It runs."}
GOOD = {"messages": [ASK, TELL]}
TOOL = {"type": "function", "function": {"name": "grind"}}


def loader(folder: Path, rows: list[dict[str, Any]], **how: Any) -> ConversationDataLoader:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"chat_template": "chatml", "max_length": 64, **how}
    return ConversationDataLoader(
        path, tokenizer=TOKENIZER, add_control_tokens=True, framework="numpy", cache_dir=folder / "cache", **given
    )


def refused(folder: Path, rows: list[dict[str, Any]], **how: Any) -> MillstreamError:
    """The error that a run over some rows ends with."""
    with pytest.raises(MillstreamError) as caught, loader(folder, rows, **how) as run:
        run.wait()
        run.next()
    return caught.value


@pytest.mark.parametrize(
    ("row", "kind", "reason"),
    [
        ({"messages": [ASK, {**TELL, "weight": 100}]}, RecordError, "bad weight"),
        ({"messages": [ASK, {**TELL, "content": None}]}, RecordError, "null content"),
        ({**GOOD, "tools": [TOOL]}, TemplateError, "cannot be rendered: chatml: this format has no form for tools"),
        ({"instruction": "a", "output": "b"}, RecordError, "missing field"),
    ],
)
def test_a_bad_row_is_an_error_with_its_class_and_place_and_can_be_skipped(
    tmp_path: Path, row: dict[str, Any], kind: type[MillstreamError], reason: str
) -> None:
    error = refused(tmp_path, [GOOD, row])

    assert type(error) is kind
    assert error.message.startswith(f"chats.jsonl:2: {reason}")
    with loader(tmp_path, [GOOD, row], on_bad="skip") as run:
        run.wait()
        assert run.store.documents == 1


def test_what_trains_nothing_is_told_how_to_train_something(tmp_path: Path) -> None:
    assert '"weight"' in str(refused(tmp_path, [GOOD], train="explicit").hint)
    long = {"messages": [{**ASK, "content": "a" * 200}, TELL]}
    assert 'truncation="turns"' in str(refused(tmp_path, [long], truncation="keep_start").hint)


@pytest.mark.parametrize("truncation", ["turns", "split", "drop"])
def test_a_run_that_drops_everything_speaks_of_lengths(tmp_path: Path, truncation: str) -> None:
    error = refused(tmp_path, [{"messages": [{**ASK, "content": "a" * 200}, TELL]}], truncation=truncation)

    assert isinstance(error, SourceError) and "1 too long" in error.message
    assert error.hint and "max_length" in error.hint and "text_field" not in error.hint


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("max_seq_length", "max_length="),
        ("assistant_only_loss", 'train="assistant"'),
        ("completion_only_loss", 'train="completion"'),
        ("dataset_text_field", 'columns={"text"'),
        ("truncations", "did you mean 'truncation'"),
        ("pakcing", "did you mean 'packing'"),
        ("whatever", "chat_template, .*batch_size"),
    ],
)
def test_a_keyword_of_another_trainer_is_answered_with_ours(given: str, ours: str) -> None:
    with pytest.raises(TypeError, match=rf"unknown keyword '{given}'; .*{ours}"):
        ConversationDataLoader([GOOD], tokenizer=TOKENIZER, **{given: True})  # type: ignore[arg-type]


def test_the_first_token_of_a_text_is_shown_as_no_target(tmp_path: Path) -> None:
    with loader(tmp_path, [{"text": "abc"}], chat_template=None) as run:
        run.wait()
        assert str(run.show(0)).splitlines()[1].startswith("a⟦bc")
        labels = run.next().labels[0]
        assert run.tokenizer is not None
        assert run.tokenizer.decode(labels[labels >= 0].tolist()).startswith("bc")
