"""Texts, conversations, rollouts or games? Detected from how a store was made, from keywords, or from a first row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from millstream.chats.parse import Options, format_of_rows
from millstream.errors import LoaderError, RecordError, SourceError
from millstream.feeds import ArrivalLog, is_spool
from millstream.games import open_chunk_source
from millstream.loaders.chat_keywords import ChatKeywords
from millstream.loaders.growing import RawSettings, is_raw
from millstream.loaders.rollouts import is_feed
from millstream.loaders.runs import JOURNAL
from millstream.rollouts import OWN_SUFFIXES, ROLLOUTS_SUFFIX, RolloutBlock, find_rollouts, holds_rollouts
from millstream.selfplay.chunk_feed import places_of
from millstream.sources import Reading, first_row, format_named, format_of
from millstream.stats import counted
from millstream.store import WEIGHTED, TokenStore

Kind: TypeAlias = Literal["text", "chat", "rollouts", "games"]
_OF_TEXTS = {"chunk_size", "seq_len", "documents", "streaming", "tail"}
_OF_CHATS = ChatKeywords.__annotations__.keys() | {"isolation", "accumulation"}
_OF_ROLLOUTS = {"compute_advantages", "estimator", "advantages", "live"}
_OF_ROLLOUTS |= {"balance", "keep_groups", "micro_tokens", "micro_multiple", "loss_constant", "cost"}
_OF_GAMES = {"num_chunks", "positions", "hanse", "shuffle_frames", "rescore", "replay", "position_cache"}
_GAME_SUFFIXES = (".tar", ".gz")
_NAMES_LOOKED_AT, _FILES_LOOKED_AT = 1000, 8
_NOT_OF_TEXTS = {"max_length", "packing", "loss", "pad_to_multiple_of"}


def kind_of(path: Any, asked: Mapping[str, Any]) -> Kind:
    """What a path holds, for a loader with the keywords `asked`.

    >>> kind_of([{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}], {})
    'chat'
    >>> kind_of([{"text": "the mill"}], {}), kind_of([{"text": "the mill"}], {"train": "all"})
    ('text', 'chat')
    >>> kind_of([{"token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0}], {"max_length": 8})
    'rollouts'
    """
    if not _OF_GAMES.isdisjoint(asked):
        return "games"
    if not _OF_ROLLOUTS.isdisjoint(asked):
        return "rollouts"
    if _is_store(path):
        return _kind_of_store(path, asked.get("dtype"))
    if not _OF_CHATS.isdisjoint(asked):
        return "chat"
    if not _OF_TEXTS.isdisjoint(asked):
        return "text"
    if are_games(path):
        return "games"
    reading = asked.get("reading") or {}
    if are_rollouts(path, reading.get("format")):
        return "rollouts"
    return "chat" if not _NOT_OF_TEXTS.isdisjoint(asked) or _are_chats(path, reading) else "text"


def are_games(path: Any) -> bool:
    """Whether folders or files hold self-play games: one of the first archives or packed files is one of frames, or
    there is nothing but packed files of which no name says what they are.

    >>> from millstream.games import example_folder
    >>> are_games(example_folder(1)), are_games("texts/")
    (True, False)
    """
    paths = path if isinstance(path, list | tuple) else [path]
    if not paths or not all(isinstance(each, str | os.PathLike) and not is_feed(each) for each in paths):
        return False
    names = chain.from_iterable(each.rglob("*") if each.is_dir() else [each] for each in places_of(paths))
    files = [each for each in islice(names, _NAMES_LOOKED_AT) if each.is_file()]
    packed = [each for each in files if each.suffix in _GAME_SUFFIXES]
    if any(_opens_as_games(file) for file in packed[:_FILES_LOOKED_AT]):
        return True
    unnamed = [each for each in packed if each.suffix == ".gz" and format_of(each) is None]
    return bool(unnamed) and all(format_of(each) is None for each in files)


def _opens_as_games(file: Path) -> bool:
    try:
        open_chunk_source(file).close()
    except RecordError:
        return False
    return True


def are_rollouts(path: Any, format: str | None = None) -> bool:
    """Whether a path holds rollouts: those of a feed, or files whose first row is one.

    >>> are_rollouts("redis://localhost:6379/rollouts"), are_rollouts([{"text": "the mill"}])
    (True, False)
    """
    if is_feed(path):
        return True
    if _is_store(path):
        return False
    if isinstance(path, RolloutBlock) or (isinstance(path, Mapping) and holds_rollouts(path)):
        return True
    if isinstance(path, list | tuple) and path and not isinstance(path[0], str | os.PathLike):
        return isinstance(path[0], RolloutBlock) or _is_rollout(path[0])
    try:
        files = find_rollouts(path, format=format)
    except SourceError:  # the reader says what is missing
        return False
    return files[0].format in OWN_SUFFIXES.values() or _is_rollout(first_row(files[0]))


def journal_of(path: Any) -> Path | None:
    """The journal of a run, given by its folder (`cache_dir=`) or by itself; None: this is something else."""
    if not isinstance(path, str | os.PathLike):
        return None
    place = Path(path)
    if (place / JOURNAL).is_file():
        return place / JOURNAL
    return place if place.is_file() and place.name.startswith(JOURNAL) else None


def refuse_journal(path: Any) -> None:
    """Refuse the folder in which a run writes down what it does, unless that is where its feed lies, too."""
    if journal_of(path) is not None and not is_feed(path):
        raise LoaderError(
            f"{path}: this is the journal of a run over a feed or games, and holds none of them",
            hint="give what the run reads: files, a spool, or the folder of games; `millstream explain` says what its "
            "steps trained on",
        )


def refuse_empty_folder(path: Any) -> None:
    """Refuse a folder in which there is nothing: it may become anything."""
    if isinstance(path, str | os.PathLike) and Path(path).is_dir() and not any(Path(path).iterdir()):
        raise SourceError(
            f"{path}: the folder is empty, so its kind cannot be detected",
            hint='look at the path; if games or rollouts are to come, pass kind="games" or kind="rollouts"',
        )


def refuse_nothing(path: Any) -> None:
    """Refuse a spool, or a file, in which there is nothing to look at: its kind cannot be detected."""
    if not isinstance(path, str | os.PathLike):
        return
    refuse_empty_folder(path)
    place = Path(path)
    if place.is_dir() and is_spool(place) and not any(place.rglob(f"*{ROLLOUTS_SUFFIX}")):
        released = ArrivalLog(place / "arrivals.log").released
        raise SourceError(
            f"{place}: this spool is empty: "
            + (f"{counted(released, 'shard')} came, and all were released" if released else "nothing has come yet"),
            hint="what was trained on stands in the journal of the run: `millstream explain CACHE_DIR --step N`"
            if released
            else "producers put rollouts in with open_source(); what they gather is here after flush() or close()",
        )
    if place.is_file() and not place.stat().st_size:
        raise SourceError(
            f"{place}: the file is empty", hint="its writer failed or is not done, or it is the wrong one"
        )
    if place.is_file() and is_raw(path) and not _has_rows(path):
        raise SourceError(
            f"{place}: no row of it can be read",
            hint="it is damaged, or not what its name says: `millstream lint` names what is wrong",
        )


def _has_rows(path: Any) -> bool:
    """Whether a file has a row that can be read, if it is one of rows."""
    try:
        files = find_rollouts(path)
    except SourceError:
        return True
    return files[0].format in OWN_SUFFIXES.values() or first_row(files[0]) is not None


def _is_store(path: Any) -> bool:
    if isinstance(path, TokenStore):
        return True
    return not (is_raw(path) or is_feed(path) or Path(path).suffix.lower() in OWN_SUFFIXES)


def _kind_of_store(path: Any, dtype: str | None) -> Kind:
    if isinstance(path, TokenStore):
        return "chat" if path.dtype == WEIGHTED else "text"
    with TokenStore(path, dtype=dtype) as store:
        return _kind_of_store(store, dtype)


def _is_rollout(row: Any) -> bool:
    if is_dataclass(row):
        return holds_rollouts({field.name: getattr(row, field.name) for field in fields(row)})
    return isinstance(row, Mapping) and holds_rollouts(row)


def _are_chats(path: Any, reading: Mapping[str, Any]) -> bool:
    found = RawSettings(reading=reading).found(path)
    first = next((file for file in found.files if getattr(format_named(file.format), "gives_rows", False)), None)
    if first is None:
        return False
    return format_of_rows(first, Reading(whole_rows=True), Options()) not in (None, "text")
