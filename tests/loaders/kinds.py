"""One small loader of every kind, for laws that hold whatever a loader is over."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from laws import Data, make_store
from loaders.answers import Answers
from loaders.conversations import Chats
from loaders.corpora import corpus, stream
from loaders.mixtures import Source, mixed
from millstream import MemoryFeed, MixedDataLoader, PretrainDataLoader, RolloutDataLoader
from rollouts.samples import random_rollouts
from selfplay.growing_games import loader as self_play
from selfplay.growing_games import three_archives

SIZES = (3, 9, 1, 20, 7, 7, 2, 30, 4, 11, 5, 16, 8)
LENGTH = 24


@cache
def _files() -> Path:
    return corpus((("jsonl", (3, 0, 6, 2, 5)), ("txt", (4, 4, 1))))


@cache
def _games() -> Path:
    return three_archives(Path(tempfile.mkdtemp(prefix="millstream-kinds-"), "games"))


def _store(**given: Any) -> Any:
    return Data({"data": make_store([37, 5, 60, 24])}).loader(**given)


def _mixed(**given: Any) -> Any:
    stores = {"a": make_store([37, 60]), "b": make_store([50, 8], start=1000)}
    return Data(stores, {"a": 3, "b": 1}).loader(**given)


def _chats(road: Any, packing: bool = False) -> Callable[..., Any]:
    def opened(**given: Any) -> Any:
        loader = Chats(SIZES, road, packing).loader(**given)
        loader.wait()
        return loader

    return opened


def _answers(kind: str) -> Callable[..., Any]:
    def opened(**given: Any) -> Any:
        loader = Answers(kind, 11).loader(**given)
        loader.wait()
        return loader

    return opened


def _mixed_stream(**given: Any) -> Any:
    return mixed({"web": Source(_files()), "books": Source(_files(), streaming=False)}, epoch_size=29, **given)


def _stream(**given: Any) -> Any:
    return stream(_files(), **given)


def _rollouts(**given: Any) -> Any:
    return RolloutDataLoader(random_rollouts(groups=5, size=4, mean_length=8), framework="numpy", **given)


def _packed_rollouts(**given: Any) -> Any:
    return _rollouts(packing=True, max_length=LENGTH * 4, **given)


def _groups(**given: Any) -> Any:
    return _rollouts(keep_groups=True, **given)


def _rollouts_beside_texts(**given: Any) -> Any:
    texts = PretrainDataLoader(make_store([300], start=5000), chunk_size=LENGTH, framework="numpy")
    sources = {"web": (texts, 0.5), "rl": (_rollouts(max_length=LENGTH), 0.5)}
    return MixedDataLoader(sources, mix_block=2, epoch_size=41, **given)


def _feed(**given: Any) -> Any:
    feed = MemoryFeed()
    with feed.source() as source:
        for record in random_rollouts(groups=6):
            source.put({**record, "policy_version": 0})
    live = {"groups_per_batch": 2, "group_size": 4, "timeout_s": 20}
    return RolloutDataLoader(feed, live=live, framework="numpy", **given)


def _games_loader(**given: Any) -> Any:
    return self_play(_games(), **given)


BOUNDED: dict[str, Callable[..., Any]] = {
    "store": _store,
    "isolated documents": lambda **given: _store(documents="isolate", **given),
    "documents": lambda **given: _store(documents="row", **given),
    "mixture": _mixed,
    "growing chats": _chats("growing"),
    "prepared chats": _chats("prepared"),
    "packed chats": _chats("prepared", packing=True),
    "packed growing chats": _chats("growing", packing=True),
    "preferences": _answers("preference"),
    "judged answers": _answers("kto"),
    "stream": _stream,
    "mixture with a stream": _mixed_stream,
    "rollouts": _rollouts,
    "packed rollouts": _packed_rollouts,
    "groups of rollouts": _groups,
    "rollouts beside texts": _rollouts_beside_texts,
    "self-play": _games_loader,
}
"""Loaders whose epochs have a length; of streams when one was read. Each takes the keywords that all share."""
KINDS = {**BOUNDED, "rollout feed": _feed}
