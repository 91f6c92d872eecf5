"""Texts or conversations? Told by how a store was made, by what is asked for, or by the first row of raw files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.loaders.chat_keywords import ChatKeywords
from millstream.loaders.raw import RawSettings, is_raw
from millstream.records.chat.block import format_of_rows
from millstream.records.chat.options import Options
from millstream.sources import Reading
from millstream.sources.formats import format_named
from millstream.store import TokenStore
from millstream.store.weights import WEIGHTED

_OF_TEXTS = {"chunk_size", "seq_len", "documents", "streaming", "tail"}
_OF_CHATS = ChatKeywords.__annotations__.keys() | {"max_length", "packing", "isolation", "loss", "accumulation"}


def holds_chats(path: Any, asked: Mapping[str, Any]) -> bool:
    """Whether a path holds conversations.

    >>> holds_chats([{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}], {})
    True
    >>> holds_chats([{"text": "the mill"}], {}), holds_chats([{"text": "the mill"}], {"train": "all"})
    (False, True)
    """
    if not is_raw(path):
        if isinstance(path, TokenStore):
            return path.dtype == WEIGHTED
        with TokenStore(path, dtype=asked.get("dtype")) as store:
            return store.dtype == WEIGHTED
    if not _OF_CHATS.isdisjoint(asked):
        return True
    if not _OF_TEXTS.isdisjoint(asked):
        return False
    found = RawSettings(reading=asked.get("reading") or {}).found(path)
    first = next((file for file in found.files if getattr(format_named(file.format), "gives_rows", False)), None)
    if first is None:
        return False
    return format_of_rows(first, Reading(whole_rows=True), Options()) not in (None, "text")
