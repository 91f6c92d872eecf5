"""Each thing on the way of a conversation is done once: looked for, read, decided, made, joined, opened."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from chats.chatml import bpe
from millstream import ConversationDataLoader, prepare
from millstream.chats import ChatSettings, DecidedChat
from millstream.chats.encode import Encoder
from millstream.loaders.chat_keywords import chat_settings
from millstream.preparation import Job, make_part
from millstream.preparation.part import encode_part
from millstream.records import Recipe
from millstream.sources import Reading, discover, format_named
from millstream.sources.jsonl import JsonlFormat
from millstream.store import TokenStoreWriter, weighted_tokens
from millstream.store.opening import open_store
from millstream.store.unfinished import UnfinishedOrigins

ROWS, WORDS = 40, 4000
"""Rows of some 20,000 bytes, so that the head of a file is a small part of it."""
HEAD = 3 << 16
"""What is read of a file to find out what its rows are: at most so many bytes."""
HOW: dict[str, Any] = {"chat_template": "chatml", "truncation": "keep_start", "untrained": "drop", "max_length": 64}
COUNTED: dict[str, Callable[..., Any]] = {
    "decided": ChatSettings.decided,
    "encoder": Encoder.__init__,
    "read": JsonlFormat.read,
    "part": make_part,
    "join": weighted_tokens.weigh,
    "split": weighted_tokens.weight_codes,
    "group": TokenStoreWriter.finish_shard,
    "unfinished": UnfinishedOrigins.__init__,
    "store": open_store,
}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count calls in this thread and in those that begin meanwhile."""
    names: dict[CodeType, str] = {call.__code__: name for name, call in COUNTED.items()}
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            calls[names[frame.f_code]] += 1

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bytes that were read of files, by their names."""
    names: dict[int, str] = {}
    sizes: Counter[str] = Counter()
    lock, open_file, read = threading.Lock(), os.open, os.pread

    def opened(path: Any, *given: Any, **how: Any) -> int:
        handle = open_file(path, *given, **how)
        names[handle] = Path(os.fsdecode(path)).name
        return handle

    def read_at(handle: int, size: int, place: int) -> bytes:
        found = read(handle, size, place)
        with lock:
            sizes[names.get(handle, "")] += len(found)
        return found

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "pread", read_at)
    return sizes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of conversations."""
    made = tmp_path / "chats"
    made.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (made / name).write_text("".join(json.dumps(row(number)) + "\n" for number in range(ROWS)))
    return made


def row(number: int) -> dict[str, Any]:
    answer = {"role": "assistant", "content": "mill " * WORDS}
    return {"messages": [{"role": "user", "content": f"{number}"}, answer]}


def trained(source: Path, cache: Path, **given: Any) -> None:
    """One epoch, while the store is made."""
    how = {**HOW, "tokenizer": bpe(), "cache_dir": cache, "framework": "numpy", **given}
    with ConversationDataLoader(source, **how) as loader:
        assert sum(len(batch.input_ids) for batch in loader) == loader.store.documents > 0


def prepared(source: Path, output: Path) -> Path:
    prepare(source, output, bpe(), kind="chat", cache_dir=output.with_name("cache"), **HOW)
    return output


def walk(road: str, source: Path, tmp_path: Path) -> None:
    if road == "loader":
        trained(source, tmp_path / "cache")
    else:
        prepared(source, tmp_path / "store")


roads = pytest.mark.parametrize("road", ["loader", "prepare"])


@roads
def test_a_file_is_read_once_for_its_rows_and_once_for_its_hash(
    road: str, folder: Path, tmp_path: Path, taken: Counter[str]
) -> None:
    """The hash comes first: parts of the same bytes may be in the cache, and then no row is read at all."""
    walk(road, folder, tmp_path)

    for file in folder.iterdir():
        assert 2 * file.stat().st_size <= taken[file.name] <= 2 * file.stat().st_size + HEAD


@roads
def test_everything_is_decided_and_made_once(road: str, folder: Path, tmp_path: Path) -> None:
    with counted() as calls:
        walk(road, folder, tmp_path)

    assert (calls["decided"], calls["encoder"], calls["part"]) == (1, 1, 2)
    assert calls["read"] == calls["part"] + 2  # and the head of each file


@roads
def test_id_and_weight_are_joined_once_and_never_taken_apart(road: str, folder: Path, tmp_path: Path) -> None:
    with counted() as calls:
        walk(road, folder, tmp_path)

    assert (calls["join"], calls["split"]) == (calls["part"], 0)


def test_a_store_that_grows_is_opened_when_there_is_news_and_once_when_it_is_whole(
    folder: Path, tmp_path: Path
) -> None:
    with counted() as calls:
        trained(folder, tmp_path / "cache", reading={"chunk_bytes": 100_000})

    assert calls["part"] > calls["group"] > 3
    assert calls["unfinished"] <= calls["group"]
    assert calls["store"] == 1


def test_a_prepared_store_is_opened_once_by_its_loader(folder: Path, tmp_path: Path) -> None:
    store = prepared(folder, tmp_path / "store")

    with counted() as calls, ConversationDataLoader(store, framework="numpy") as loader:
        assert loader.next().metadata["rows"]

    assert calls["store"] == 1


@pytest.mark.parametrize("kind", ["chat", "text"])
def test_a_store_is_not_opened_by_its_maker(kind: str, folder: Path, tmp_path: Path) -> None:
    with counted() as calls:
        if kind == "chat":
            prepared(folder, tmp_path / "store")
        else:
            prepare(folder, tmp_path / "store", bpe(), format="text", cache=False)

    assert calls["store"] == 0


def test_what_was_decided_is_sent_to_another_process_which_makes_one_encoder(folder: Path, tmp_path: Path) -> None:
    reading = Reading(whole_rows=True)
    files = discover(folder).files
    settings = chat_settings({"chat_template": "chatml", "truncation": "keep_start"}, None, 64)
    decided = DecidedChat.of(settings, files, reading, bpe())
    job = Job(reading, Recipe(), decided.encoder.tokenizer, None, "weighted", chat=decided)
    chunks = [(file, chunk) for file in files for chunk in format_named(file.format).chunks(file, reading)]
    data = pickle.dumps(job)

    with counted() as calls:
        sent = pickle.loads(data)
        parts = [encode_part(make_part(sent, *chunk)) for chunk in chunks]

    assert (calls["decided"], calls["encoder"], calls["part"]) == (0, 1, len(chunks))
    assert calls["read"] == len(chunks) + 1  # the head of the first file was looked at before
    assert sent.identity == job.identity
    assert parts == [encode_part(make_part(job, *chunk)) for chunk in chunks]
