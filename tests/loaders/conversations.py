"""Small files of conversations, every road that a loader takes over them, and what it delivers.

Every conversation begins with its own number, so a row says by itself what it holds.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import strategies as st

from chats.chatml import bpe
from laws import Row
from millstream import TrainingBatch
from millstream.chats import Limit
from millstream.chats.encode import Encoder
from millstream.chats.parse.parser import parse_row
from millstream.loaders import ChatKeywords, ConversationDataLoader
from millstream.loaders import rows as row_module
from millstream.loaders.chat_keywords import chat_settings
from millstream.loaders.growing import background_prepare as growth
from millstream.preparation import RunOptions, StoreRecipe, prepare_store
from millstream.sources import Reading, discover
from millstream.storage import disk
from millstream.store import stamp_of

LENGTH = 64
CHUNK_BYTES = 300
"""Two or three conversations make a part, so that a store of dozens comes to be in many steps."""
WINDOW = 8
CHAT: ChatKeywords = {"chat_template": "chatml", "truncation": "keep_start", "untrained": "drop"}
WEIGHTS = (1, 1, 0.5, 1, 2.5)

Sizes = tuple[int, ...]
Document = tuple[int, ...]
Road = Literal["growing", "made", "prepared"]


def conversation(number: int, size: int, questions: int = 0) -> dict[str, Any]:
    """A row: a number, and an answer of some words that may weigh more or less than others."""
    asked = {"role": "user", "content": f"{number}" + " stream" * questions}
    return {"messages": [asked, {"role": "assistant", "content": "mill " * size, "weight": WEIGHTS[number % 5]}]}


@cache
def files_of(sizes: Sizes) -> Path:
    """Write conversations into a folder of two files: the same one for all processes of a run of tests."""
    name = hashlib.blake2b(repr(sizes).encode(), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir(), f"millstream-chats-of-{name}")
    lines = [json.dumps(conversation(number, size)) + "\n" for number, size in enumerate(sizes)]
    half = len(lines) // 2
    if not folder.exists():
        beside = Path(tempfile.mkdtemp(prefix="millstream-chats-"))
        for name, part in (("a.jsonl", lines[:half]), ("b.jsonl", lines[half:])):
            if part:
                (beside / name).write_text("".join(part))
        with suppress(OSError):  # another process was faster
            beside.rename(folder)
    return folder


@cache
def _encoder(length: int) -> tuple[Encoder, Limit]:
    settings = chat_settings(CHAT, None, length)
    return settings.encoder(bpe()), settings.limit


@cache
def document(number: int, size: int, length: int = LENGTH) -> tuple[Document, tuple[float, ...]]:
    """Ids and weights of one conversation, encoded by itself."""
    encoder, limit = _encoder(length)
    ((row,),) = encoder.encode([parse_row(conversation(number, size))], limit).rows
    return tuple(row.ids.tolist()), tuple(row.weights.tolist())


@cache
def _prepared(sizes: Sizes, compress: int | None) -> Path:
    path = Path(tempfile.mkdtemp(prefix="millstream-chats-"), "store")
    reading = Reading(chunk_bytes=CHUNK_BYTES, whole_rows=True)
    making = StoreRecipe(reading, tokenizer=bpe(), chat=chat_settings(CHAT, None, LENGTH), compress=compress)
    prepare_store(discover(files_of(sizes)), path, making, RunOptions())
    return path


@dataclass(frozen=True)
class Chats:
    """Conversations, and how a loader comes by their tokens."""

    sizes: Sizes
    road: Road
    packing: bool
    cache: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="millstream-chats-"), "cache"))

    def loader(self, **given: Any) -> ConversationDataLoader:
        """Open a loader; on the growing road it makes its store while it delivers rows."""
        shared = {"framework": "numpy", "max_length": LENGTH, "pad_to": "max_length", "packing": self.packing, **given}
        if self.road == "prepared":
            return ConversationDataLoader(_prepared(self.sizes, len(self.sizes) % 2 or None), **shared)
        how = {"tokenizer": bpe(), "reading": {"chunk_bytes": CHUNK_BYTES}, "cache_dir": self.cache, **CHAT}
        loader = ConversationDataLoader(files_of(self.sizes), **{**how, **shared})
        if self.road == "made":
            loader.wait()
        return loader

    @property
    def documents(self) -> list[Document]:
        """The ids of all conversations."""
        return [document(number, size)[0] for number, size in enumerate(self.sizes)]


sizes = st.builds(
    lambda count, seed, most: tuple(random.Random(seed).choices(range(1, most), k=count)),
    *(st.integers(1, 90), st.integers(0, 9), st.sampled_from([5, 20, 60])),
)
chats = st.builds(Chats, sizes, st.sampled_from(["growing", "growing", "made", "prepared"]), st.booleans())


def segments(row: Row) -> list[Document]:
    """The conversations that lie in a row."""
    if row.positions is None:
        return [row.tokens] if row.tokens else []
    starts = [place for place in range(row.length) if row.positions[place] == 0]
    return [row.inputs[a:b] for a, b in zip(starts, [*starts[1:], row.length], strict=True)]


def columns(batch: TrainingBatch) -> list[Any]:
    """All that a batch says about its rows, to be compared."""
    names = ("input_ids", "labels", "position_ids", "cu_seqlens", "loss_weights", "lengths")
    found = [getattr(batch, name) for name in names]
    return [*(None if each is None else each.tolist() for each in found), batch.max_seqlen]


class Tap:
    """Lets parts be made only while somebody waits for them: everything is known as late as it can be."""

    def __init__(self) -> None:
        self.allowed = self.used = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        report = growth.BackgroundPrepare._report

        def allow(path: Path) -> Any:
            self.allowed += 1
            return stamp_of(path)

        def await_turn(made: growth.BackgroundPrepare, progress: Any) -> None:
            while self.used >= self.allowed and not made._stopping.is_set():
                time.sleep(0.0005)
            self.used += 1
            report(made, progress)

        patch.setattr(growth, "stamp_of", allow)
        patch.setattr(growth.BackgroundPrepare, "_report", await_turn)


@contextmanager
def small() -> Iterator[pytest.MonkeyPatch]:
    """Make windows of a few conversations, look often, and do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_module, "WINDOW_DOCUMENTS", WINDOW)
        patch.setattr(growth, "_LOOK_S", 0.001)
        patch.setattr(growth, "_BUSY_S", 0.005)
        patch.setattr(disk, "sync", lambda fd: None)
        yield patch


@pytest.fixture(scope="module")
def made_late() -> Iterator[None]:
    """Small windows, and a maker that is never ahead."""
    with small() as patch:
        Tap().install(patch)
        yield
