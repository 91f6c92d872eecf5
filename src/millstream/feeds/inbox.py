"""Inbox: bodies of requests -> durable shards of a spool. What HTTP does here, without HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millstream.errors import ClosedError, RecordError
from millstream.feeds.http import BLOCKS
from millstream.feeds.shards import ProducerFolder, shard_name
from millstream.rollouts import block_of, encode_parts, iter_blocks
from millstream.sources import wording
from millstream.storage import Bytes

JSON = ("application/json",)
JSON_LINES = ("application/jsonl", "application/x-jsonl", "application/jsonlines", "application/x-ndjson")
KINDS = (BLOCKS, "application/octet-stream", *JSON, *JSON_LINES)


class Inbox:
    """Takes rollouts for a spool in the name of producers that cannot write there themselves. For many threads.

    Args:
        spool: The spool's folder.
        taken: Gives the last shard of a producer that its consumer has taken.
    """

    def __init__(self, spool: Path, taken: Callable[[str], str]) -> None:
        self._spool, self._taken = spool, taken
        self._folders: dict[str, ProducerFolder] = {}
        self._lock = threading.Lock()
        self._closed = False

    def open(self, producer: str) -> int:
        """Begin a session of a producer, and give its number."""
        with self._lock:
            if producer in self._folders:
                self._folders[producer].begin_again()
            return self._folder(producer, None).session

    def take(self, producer: str, kind: str, body: bytes, session: int | None, number: int | None) -> int:
        """Make rollouts durable, and say how many they are. With a number, doing it twice is the same as once."""
        parts, rollouts = _checked(kind, body)
        with self._lock:  # one at a time: the disk would not be faster with more
            folder = self._folder(producer, session)
            known = number is not None and shard_name(folder.session, number) <= self._taken(producer)
            if rollouts and not known:
                folder.write(parts, number)
        return rollouts

    def end(self, producer: str, session: int | None) -> None:
        """Note that nothing more comes from a producer."""
        with self._lock:
            folder = self._folder(producer, session)
            folder.end()
            folder.close()
            del self._folders[producer]

    def close(self) -> None:
        """Let others write for these producers; a request that is still under way comes too late."""
        with self._lock:
            self._closed = True
            for folder in self._folders.values():
                folder.close()
            self._folders.clear()

    def _folder(self, producer: str, session: int | None) -> ProducerFolder:
        if self._closed:
            raise ClosedError("this feed was closed", hint="try again: another one may take its place")
        folder = self._folders.get(producer)
        if folder is None:
            folder = self._folders[producer] = ProducerFolder(self._spool, producer, session)
        folder.expect(session)
        return folder


def _checked(kind: str, body: bytes) -> tuple[Sequence[Bytes], int]:
    """A body as encoded blocks, checked, and how many rollouts they hold."""
    if kind not in (*JSON, *JSON_LINES):
        return [body], sum(len(block_of(block)) for block, _ in iter_blocks(body))
    records = _records(body, lines=kind in JSON_LINES)
    if not records:
        return [], 0
    block = block_of(records)
    return encode_parts(block), len(block)


def _records(body: bytes, *, lines: bool) -> list[Any]:
    try:
        if lines:
            return [json.loads(line) for line in body.splitlines() if line.strip()]
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON", wording(error), hint="one JSON object, a list of them, or one per line") from None
    return found if isinstance(found, list) else [found]
