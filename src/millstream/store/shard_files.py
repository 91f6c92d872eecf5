"""The files of shards: opened when first needed, checked against the table, and only so many at a time.

A store may have 10^5 shards, a process about 10^3 file descriptors and 65 530 mappings.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.compressed_blocks import PackedTokens
from millstream.store.foreign import megatron_index, whole_tokens
from millstream.store.frames import (
    FRAME_BYTES,
    SHRUNK,
    EverySecond,
    Frame,
    Numbers,
    index_kind,
    open_body,
    open_framed,
    read_frame,
    token_dtype,
)
from millstream.store.layout import BOUND, DOCUMENTS, TAG, TOKENS, VERIFY, Ends, Index, Layout, OneDocument

MOST_OPEN = 128
MIXED = "files of two different stores were mixed, or the shard was replaced; copy the store again"

Value = TypeVar("Value")


class RecentCache(Generic[Value]):
    """The most recent values of a function, at most `limit` of them.

    >>> recent = RecentCache(str, limit=2)
    >>> recent(1), recent(2), recent(3), list(recent.kept)
    ('1', '2', '3', [2, 3])
    """

    def __init__(self, make: Callable[[int], Value], limit: int = MOST_OPEN) -> None:
        self._make, self._limit, self._lock = make, limit, threading.Lock()
        self.kept: OrderedDict[int, Value] = OrderedDict()

    def __call__(self, key: int) -> Value:
        """Give the value of `key`, made again if it was forgotten."""
        with self._lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        value = self._make(key)
        with self._lock:
            self.kept[key] = value
            while len(self.kept) > self._limit:
                self.kept.popitem(last=False)  # views that were handed out keep their own mapping alive
        return value


class Shards:
    """The tokens and indexes of a layout, shard by shard."""

    def __init__(self, layout: Layout) -> None:
        # Functions of the layout, not methods: a store that is garbage-collected closes its files at once.
        self.tokens = RecentCache(partial(_shard_tokens, layout))
        self.index = RecentCache(partial(_shard_index, layout))

    def close(self) -> None:
        """Forget every file."""
        self.tokens.kept.clear()
        self.index.kept.clear()


def _shard_tokens(layout: Layout, shard: int) -> Numbers | PackedTokens:
    path = layout.path_of(shard)
    if not layout.header_bytes:
        return open_bare_tokens(path, layout)
    frame, body = open_tokens(path)
    check_tokens(path, frame, layout, shard)
    return body


def _shard_index(layout: Layout, shard: int) -> Index:
    tokens = int(layout.table[shard, TOKENS])
    if layout.index == "none":
        return OneDocument(tokens)
    if layout.index == "megatron":
        return megatron_index(layout, tokens)
    path = layout.path_of(shard, ".idx")
    frame, words = open_body(path, index_kind(layout.dtype))
    check_index(path, frame, layout, shard)
    ends = words if frame.words == frame.count else EverySecond(words)
    last = ends.at(len(ends) - 1) if len(ends) else tokens
    if last != tokens:
        raise StoreError(f"{path}: the last document ends at {last}, the shard at {tokens}", hint=VERIFY)
    return Ends(ends, tokens)


def open_tokens(path: Path) -> tuple[Frame, Numbers | PackedTokens]:
    """Open the tokens of one of our files, plain or packed."""
    frame, fd = open_framed(path, "T")
    if frame.kind == "Z":
        return frame, PackedTokens(path, fd, frame)
    return frame, Numbers(path, fd, frame.entry, FRAME_BYTES, frame.count)


def open_bare_tokens(path: Path, layout: Layout) -> Numbers:
    """Open a file of nothing but ids, if it still has the size it had at first."""
    count = int(layout.table[0, TOKENS])
    if count and whole_tokens(path, layout.dtype) != count:
        raise StoreError(f"{path}: the file changed its size after it was opened", hint=SHRUNK)
    return Numbers(path, disk.open_regular(path), token_dtype(layout.dtype), 0, count)


def check_shard(layout: Layout, shard: int) -> Frame:
    """Check that a shard's files are there, have their size and belong to the table; gives the frame of its tokens."""
    path = layout.path_of(shard)
    tokens = read_frame(path, "T")
    check_tokens(path, tokens, layout, shard)
    if layout.index == "ends":
        path = layout.path_of(shard, ".idx")
        check_index(path, read_frame(path, index_kind(layout.dtype)), layout, shard)
    return tokens


def check_tokens(path: Path, frame: Frame, layout: Layout, shard: int) -> None:
    """Compare the frame of a `.bin` with the table."""
    row = layout.table[shard]
    documents = frame.documents if layout.index == "none" else int(row[DOCUMENTS])
    expected = Frame("T", int(row[TOKENS]), int(row[BOUND]), int(row[TAG]), documents, layout.dtype)
    compare(path, frame, expected)


def check_index(path: Path, frame: Frame, layout: Layout, shard: int) -> None:
    """Compare the frame of an `.idx` with the table."""
    row = layout.table[shard]
    compare(path, frame, Frame(index_kind(layout.dtype), int(row[DOCUMENTS]), int(row[TOKENS]), int(row[TAG])))


def compare(path: Path, found: Frame, expected: Frame) -> None:
    """Refuse a file that is whole but not the one that belongs here."""
    for key in ("dtype", "count", "documents", "bound", "tag"):
        if getattr(found, key) != getattr(expected, key):
            raise StoreError(
                f"{path}: its {key} is {getattr(found, key)}, the store says {getattr(expected, key)}",
                hint=MIXED,
            )


def place(firsts: NDArray[np.uint64], index: int) -> int:
    """Find the shard that holds a token or document, among the shards' first ones.

    >>> place(np.array([0, 5, 5, 9], np.uint64), 5)
    2
    """
    return int(np.searchsorted(firsts, np.uint64(index), side="right")) - 1
