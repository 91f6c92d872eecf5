"""An address where a path belongs is refused by name, everywhere, and no folder of its name appears."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    ConversationDataLoader,
    MillstreamError,
    PretrainDataLoader,
    RolloutDataLoader,
    SelfPlayDataLoader,
    TokenStore,
    TokenStoreWriter,
    load,
    load_tokenizer,
    prepare,
)
from millstream.cli.main import main
from millstream.feeds import SpoolFeed
from millstream.feeds.spool import SpoolSource
from millstream.games import example_folder
from millstream.loaders import lint
from millstream.selfplay.chunk_feed import Discovery

CHAT: dict[str, Any] = {"chat_template": "chatml", "add_control_tokens": True, "tokenizer": "tokenizer.json"}
ROLLOUT = {"group_id": "g", "token_ids": [72, 105], "loss_mask": [0, 1], "finish": "stop", "reward": 1.0}
INPUTS: dict[str, Callable[[Any], object]] = {
    "prepare": lambda url: prepare(url, "new", "char"),
    "prepare of several": lambda url: prepare(["raw.txt", url], "new", "char"),
    "prepare of weighted ones": lambda url: prepare({"raw.txt": 1, url: 2}, "new", "char"),
    "PretrainDataLoader": lambda url: PretrainDataLoader(url, chunk_size=2),
    "PretrainDataLoader, streaming": lambda url: PretrainDataLoader(
        [url], tokenizer="tokenizer.json", streaming=True, chunk_size=2
    ),
    "PretrainDataLoader, streaming one": lambda url: PretrainDataLoader(
        url, tokenizer="tokenizer.json", streaming=True, chunk_size=2
    ),
    "ConversationDataLoader": lambda url: ConversationDataLoader(url, **CHAT),
    "RolloutDataLoader": lambda url: RolloutDataLoader([url]),
    "SelfPlayDataLoader": SelfPlayDataLoader,
    "load": load,
    "TokenStore": TokenStore,
    "load_tokenizer": load_tokenizer,
    "lint": lint,
    "Discovery": Discovery,
    "SpoolFeed": SpoolFeed,
}
OUTPUTS: dict[str, Callable[[Any], object]] = {
    "prepare": lambda url: prepare("raw.txt", url, "char"),
    "TokenStoreWriter": TokenStoreWriter,
    "SpoolSource": SpoolSource,
}
CACHES: dict[str, Callable[[Any], object]] = {
    "prepare": lambda url: prepare("raw.txt", "new", "char", cache_dir=url),
    "PretrainDataLoader": lambda url: PretrainDataLoader("store", chunk_size=2, cache_dir=url),
    "ConversationDataLoader": lambda url: ConversationDataLoader("raw.jsonl", cache_dir=url, **CHAT),
    "RolloutDataLoader": lambda url: RolloutDataLoader([{**ROLLOUT, "rollout_id": "a"}], cache_dir=url),
    "SelfPlayDataLoader": lambda url: SelfPlayDataLoader("games", watch=False, cache_dir=url),
}
ALL = [
    (f"{what}: {name}", call)
    for what, some in vars().items()
    if what in ("INPUTS", "OUTPUTS", "CACHES")
    for name, call in some.items()
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("raw.txt").write_text("the mill by the stream")
    prepare("raw.txt", "store", "bpe:300")
    Path("store/tokenizer.json").rename("tokenizer.json")
    Path("games").symlink_to(example_folder(1))
    return tmp_path


@pytest.mark.parametrize(
    "url", ["s3://bucket/corpus", "gs://bucket/a.jsonl", "memory://x", Path("s3://bucket/corpus")], ids=str
)
@pytest.mark.parametrize("call", [call for _, call in ALL], ids=[name for name, _ in ALL])
def test_an_address_is_refused_and_leaves_nothing_behind(here: Path, call: Callable[[Any], object], url: Any) -> None:
    before = sorted(here.rglob("*"))

    with pytest.raises(MillstreamError, match=r"^\S+: .* behind (s3|gs|memory):// is not supported yet") as refused:
        call(url)

    assert "local path" in (refused.value.hint or "")
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("call", [call for _, call in ALL], ids=[name for name, _ in ALL])
def test_a_file_address_is_answered_with_the_path(here: Path, call: Callable[[Any], object]) -> None:
    with pytest.raises(MillstreamError, match="not by a file:// address") as refused:
        call("file:///data/my%20corpus")
    assert refused.value.hint == "pass '/data/my corpus'"


@pytest.mark.parametrize("scheme", ["redis", "http", "hf"])
@pytest.mark.parametrize("call", CACHES.values(), ids=CACHES)
def test_no_scheme_makes_a_folder_of_a_cache(here: Path, call: Callable[[Any], object], scheme: str) -> None:
    with pytest.raises(MillstreamError, match=f"a cache_dir behind {scheme}:// is not supported yet"):
        call(f"{scheme}://host:6379/cache")
    assert not list(here.glob(f"{scheme}*"))


def test_the_cache_of_the_environment_is_asked_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", "s3://bucket/cache")
    with pytest.raises(MillstreamError, match=r"\$MILLSTREAM_CACHE.* behind s3://"):
        prepare("raw.txt", "new", "char")


LINES = [
    "prepare raw.txt new -t char --cache-dir s3://bucket/cache",
    "prepare raw.txt s3://bucket/new -t char",
    "prepare s3://bucket/raw.txt new -t char",
    "inspect s3://bucket/store",
    "verify s3://bucket/store",
    "bench s3://bucket/store",
    "explain s3://bucket/store --step 0",
    "show s3://bucket/store",
    "lint s3://bucket/chats.jsonl",
    "demo -o s3://bucket/demo",
]


@pytest.mark.parametrize("line", LINES)
def test_the_command_line_says_so_too(here: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    before = sorted(here.rglob("*"))

    assert main(line.split()) == 2
    assert "behind s3:// is not supported yet" in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("name", ["s3", "a:b", "C:/x", "12:30", "x:", "file:"])
def test_names_with_colons_are_names(name: str) -> None:
    Path(name).mkdir(parents=True)
    Path(name, "a.txt").write_text("abc")
    assert prepare(name, f"{name}-store", "char").documents == 1


def test_a_cache_in_memory_is_for_streams_alone() -> None:
    """What is prepared as a whole needs a folder."""
    with pytest.raises(MillstreamError, match="prepared as a whole") as refused:
        ConversationDataLoader("raw.jsonl", cache_dir="memory://", **CHAT)
    assert "folder" in (refused.value.hint or "")
    with pytest.raises(MillstreamError, match="memory:// is not supported"):
        prepare("raw.txt", "new", "char", cache_dir="memory://")
