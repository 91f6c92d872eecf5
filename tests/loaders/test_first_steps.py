"""What goes wrong in the first minutes is answered with what helps there, in words of the loader that was called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from chats.chatml import bpe
from loaders.conversations import CHAT, conversation
from millstream import ConversationDataLoader, LoaderError, MissingExtra, PretrainDataLoader, SourceError, load, prepare
from sources.samples import Dataset
from unloading import unload

CHATS = [conversation(number, 3) for number in range(4)]


def chats(path: Any, **given: Any) -> ConversationDataLoader:
    return ConversationDataLoader(path, **{"tokenizer": bpe(), "max_length": 64, "framework": "numpy", **CHAT, **given})


@pytest.mark.parametrize("name", ["chats.jsonl", "chats.jsonl.gz", "chats.parquet"])
@pytest.mark.parametrize("open_it", [chats, lambda path: PretrainDataLoader(path, tokenizer=bpe()), load])
def test_raw_files_that_are_missing_are_said_to_be_missing(tmp_path: Path, name: str, open_it: Any) -> None:
    with pytest.raises(SourceError, match=f"{name}: there is no such file") as caught:
        open_it(tmp_path / name)
    assert "prepare" not in str(caught.value)


def test_a_source_that_cannot_be_cached_is_answered_with_what_works_for_conversations(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="cannot be told without reading it") as caught:
        chats(Dataset(["x"]), cache_dir=tmp_path, format="text")
    assert "streaming" not in str(caught.value)
    assert 'kind="chat"' in str(caught.value)


def test_an_impossible_length_is_refused_by_the_name_it_was_given() -> None:
    with pytest.raises(LoaderError, match="max_length must be an integer of at least 1") as caught:
        chats(CHATS, max_length=0)
    assert "chunk_size" not in str(caught.value)
    with pytest.raises(LoaderError, match="max_length=64 is longer than the model's longest row"):
        chats(CHATS, model_config={"vocab_size": 9999, "max_position_embeddings": 32})


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_file_without_conversations_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "nothing.jsonl").write_text(text)

    with pytest.raises(SourceError, match=r"nothing\.jsonl: no document was found") as caught:
        chats(tmp_path / "nothing.jsonl", cache_dir=tmp_path / "cache").wait()
    assert "text_field" not in str(caught.value)


def test_a_generator_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"a generator is no source(?s:.*)list\(rows\)"):
        chats((row for row in CHATS), cache_dir=tmp_path)


def test_a_tokenizer_whose_library_is_missing_is_not_said_to_be_missing_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = prepare(CHATS, tmp_path / "store", bpe(), kind="chat", max_length=64, **CHAT).path
    unload(monkeypatch, "millstream.tokens.huggingface")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with ConversationDataLoader(store, framework="numpy") as loader:
        assert len(loader.next().input_ids) == len(CHATS)
        with pytest.raises(MissingExtra, match="tokenizers"):
            loader.show(0)
