"""Joins the small puts of a producer into larger pieces, for feeds that go over a disk or a wire."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np

from millstream.errors import BusyError, ClosedError, MillstreamError, WaitWarning
from millstream.feeds.feed import Puttable, RolloutSource
from millstream.rollouts import Part, RolloutBlock, block_of, encode_parts
from millstream.stages import Threads
from millstream.stats import counted

Encoded: TypeAlias = list[Part]
"""A block as bytes, in parts that lie end to end."""

log = logging.getLogger("millstream.feeds")
MOST_TRIES = 10
"""How often what could not be sent is sent again without being asked, after pauses that double up to 64 times."""


@dataclass(frozen=True)
class Gather:
    """When what was put is sent: at so many bytes, so many rollouts, or after so many seconds."""

    most_bytes: int = 8 << 20
    most_rollouts: int = 4096
    seconds: float = 1.0


class GatheringSource(RolloutSource):
    """A source that sends many puts at once, while the next ones are gathered. Any number of threads may put."""

    def __init__(self, gather: Gather | None) -> None:
        self._gather = gather or Gather()
        self._lock = threading.RLock()
        self._waiting: list[RolloutBlock] = []
        self._rollouts = self._bytes = 0
        self._sender = Threads(1, "millstream-put", finish_on_exit=True)
        self._sending: tuple[Future[None], list[Encoded], int] | None = None
        """What is on its way, and how many rollouts that are."""
        self._timer: threading.Timer | None = None
        self._tries = 0
        """How often in a row the timer could not send what was gathered."""
        self._closed = False

    @abstractmethod
    def _send(self, blocks: list[Encoded]) -> None:
        """Put blocks where they are safe; together they have at most `most_bytes`, or are one rollout."""

    @abstractmethod
    def _end(self) -> None:
        """Say that nothing more comes, and let go of what is held."""

    def put(self, rollouts: Puttable) -> None:
        """Give rollouts to the trainer; at the latest after `gather.seconds` they are on their way.

        What fails on the way is kept and tried again, a few times without being asked; then the next put, flush or
        close tries it, and says so if it fails again. The arrays of a block are sent from where they lie: do not change
        them any more.
        """
        block = block_of(rollouts)
        with self._lock:
            if self._closed:
                raise ClosedError("this source was closed; the rollouts are not in it", hint="open another one")
            if self._tries and self._timer is None:  # it is not tried any more without being asked
                self.flush()
            if self._sending is not None and self._sending[0].done():
                self._wait_for_sending()
            for piece in pieces(block, self._gather.most_bytes):
                self._add(piece)

    def flush(self) -> None:
        """Send what was gathered, and wait until it is safe."""
        with self._lock:
            blocks = encoded(self._waiting)
            self._wait_for_sending()
            if blocks:
                self._send(blocks)
                self._forget()
            self._tries = 0

    def close(self) -> None:
        """Flush, and say that nothing more comes from here. What fails can be tried again, by another close().

        Where another producer has taken the name, nothing can: the source is closed, and the error says what it held.
        """
        with self._lock:
            if self._closed:
                return
            self._stop_timer()
            try:
                self.flush()
                self._end()
            except BusyError as error:
                self._closed = True
                self._sender.close()
                raise self._given_up(error) from error
            self._sender.close()
            self._closed = True

    def _given_up(self, error: BusyError) -> BusyError:
        unsent = self._rollouts + (0 if self._sending is None else self._sending[2])
        self._sending, self._waiting = None, []
        return BusyError(
            f"{error.message}; this source is closed, and {counted(unsent, 'rollout')} in it did not arrive",
            hint=f"{error.hint}, and put them again",
        )

    def _add(self, block: RolloutBlock) -> None:
        size = size_of(block)
        if self._waiting and self._bytes + size > self._gather.most_bytes:
            self._begin_to_send()
        self._waiting.append(block)
        self._rollouts, self._bytes = self._rollouts + len(block), self._bytes + size
        if self._rollouts >= self._gather.most_rollouts:
            self._begin_to_send()
        elif self._timer is None:
            self._send_later()

    def _begin_to_send(self) -> None:
        blocks = encoded(self._waiting)  # while what was gathered before is still on its way
        self._wait_for_sending()
        self._sending = self._sender.submit(self._send, blocks), blocks, self._rollouts
        self._forget()

    def _wait_for_sending(self) -> None:
        """Return when nothing is on its way; what did not arrive is tried once more, and raises if it cannot."""
        if self._sending is None:
            return
        future, blocks, _ = self._sending
        if future.exception() is not None:
            self._send(blocks)
        self._sending = None

    def _forget(self) -> None:
        self._waiting, self._rollouts, self._bytes = [], 0, 0
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_later(self) -> None:
        self._timer = threading.Timer(self._gather.seconds * 2 ** min(self._tries, 6), self._send_old)
        self._timer.daemon = True
        self._timer.start()

    def _send_old(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._timer:
                return  # sent meanwhile
            self._timer = None
            try:
                self.flush()
            except (MillstreamError, WaitWarning) as error:  # the next put, flush or close raises it, if it lasts
                self._tries += 1
                if isinstance(error, BusyError) or self._tries > MOST_TRIES:
                    log.error("gathered rollouts wait for the next put, flush or close, which tries again: %s", error)
                    return
                log.warning("gathered rollouts wait: %s", error)
                self._send_later()


def size_of(block: RolloutBlock) -> int:
    """About how many bytes a block has when it is sent: versions are runs then, nearly nothing."""
    return block.nbytes - (block["policy_version"].nbytes if "policy_version" in block else 0)


def pieces(block: RolloutBlock, most_bytes: int) -> Iterator[RolloutBlock]:
    """Cut a block between rollouts so that each piece has about so many bytes at most, and one rollout at least.

    >>> block = RolloutBlock(np.arange(100, 900, 100), {}, {"token_ids": np.zeros(800, np.uint32)})
    >>> [len(piece) for piece in pieces(block, 1 << 20)], [len(piece) for piece in pieces(block, 1300)]
    ([8], [3, 3, 2])
    """
    size = size_of(block)
    if size <= most_bytes:
        if len(block):
            yield block
        return
    tokens = max(1, int(block.ends[-1] * most_bytes / size))
    start = 0
    while start < len(block):
        stop = max(start + 1, int(np.searchsorted(block.ends, block.starts[start] + tokens, side="right")))
        yield block.select(np.arange(start, stop))
        start = stop


def encoded(blocks: Sequence[RolloutBlock]) -> list[Encoded]:
    """Neighbours with the same columns of tokens as one block, encoded.

    >>> from millstream.rollouts import decode
    >>> said = {"group_id": "g", "reward": 1.0, "finish": "stop", "token_ids": [5, 6], "loss_mask": [0, 1]}
    >>> [len(decode(b"".join(each))) for each in encoded([block_of({**said, "rollout_id": name}) for name in "abc"])]
    [3]
    """
    alike = groupby(blocks, lambda block: {name: (it.dtype, it.shape[1:]) for name, it in block.tokens.items()})
    return [encode_parts(*each) for _, each in alike]
