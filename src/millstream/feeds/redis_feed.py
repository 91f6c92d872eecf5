"""RedisFeed: the trainer reads a Redis stream (`XREAD`), and trims it when a state is committed (`XTRIM`)."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from millstream.errors import BusyError, StateError, StoreError
from millstream.feeds.feed import Arrival, Control, Cursor, arrivals_of
from millstream.feeds.gathering import log
from millstream.feeds.redis_source import RedisStream
from millstream.rollouts import RolloutBlock, iter_blocks
from millstream.stages import Deadline, poll
from millstream.stats import Ledger

Entries: TypeAlias = list[tuple[bytes, dict[bytes, bytes]]]
BEGIN = "0-0"
MOST_BYTES = 64 << 20
"""About how many bytes are received at once."""
_SLICE_S = 0.25
_FOLLOW_S = 0.02
_GONE_S = 1.0


class RedisFeed:
    """Where the trainer takes rollouts out of a Redis stream.

    Args:
        url: `redis://host:port/name`.
        follow: Only follow the one consumer, for the other ranks of a run: what it has received, and nothing is
            released or told.
        patience_s: How long the server may be away before that is an error.
        on_bad: An entry that cannot be read is counted and left out ("skip"), or an error ("error").
    """

    def __init__(
        self,
        url: str,
        *,
        follow: bool = False,
        patience_s: float = 3600.0,
        on_bad: Literal["skip", "error"] = "skip",
    ) -> None:
        self._stream = RedisStream(url, patience_s, consumes=not follow)
        self._follow, self._on_bad = follow, on_bad
        self._is_only = follow
        self._closing = threading.Event()
        self._id: str | None = None
        self._unsent_control: Control | None = None
        self._last, self._blocks = BEGIN, 0
        self._held: deque[str] = deque()
        self._numbers: dict[bytes, int] = {}
        self._entry_bytes = 8 << 20
        self._counts = Ledger("received", "repeated", "damaged", "begun_anew")

    @property
    def cursor(self) -> Cursor:
        """The last entry that was received, and of which stream."""
        if self._id is None:
            self._stream.ask_until(Deadline(0), self._start)
        return self._cursor(self._last, self._blocks)

    @property
    def ended(self) -> bool:
        """Whether every producer has said that nothing more comes, and all of it was received."""
        return self._stream.ask_until(Deadline(0), self._is_ended) or False

    def receive(self, timeout_s: float) -> list[Arrival]:
        """Give the next rollouts of the stream; waits so long for something, then gives nothing."""
        deadline = Deadline(timeout_s)
        while True:
            entries = self._stream.ask_until(deadline, lambda: self._read(deadline.left_s))
            if entries and (arrivals := self._published(entries)):
                return arrivals
            if deadline.is_over or self._closing.is_set() or (not entries and self.ended):
                return []

    def seek(self, cursor: Cursor) -> None:
        """Continue after a place where a state was saved; if the server lost its memory since, at its new beginning."""
        place = _order(cursor["entry"]) if cursor["stream"] == self._id else (0, 0)
        self._held = deque(entry for entry in self._held if _order(entry) <= place)
        self._id, self._last, self._blocks = cursor["stream"], cursor["entry"], int(cursor["blocks"])
        self._numbers.clear()

    def release(self, cursor: Cursor) -> None:
        """Remove entries up to a place: its state is committed."""
        if self._follow or cursor["stream"] != self._id or cursor["entry"] == BEGIN:
            return
        milliseconds, number = _order(cursor["entry"])

        def trim() -> None:
            pipeline = self._stream.commands(together=True)
            pipeline.set(self._stream.key("released"), cursor["entry"])
            pipeline.xtrim(self._stream.name, minid=f"{milliseconds}-{number + 1}", approximate=False).execute()

        self._stream.ask(trim)
        while self._held and _order(self._held[0]) <= (milliseconds, number):
            self._held.popleft()

    def tell(self, control: Control) -> None:
        """Tell producers what is wanted; while the server is away, when it is back."""
        if not self._follow:
            self._unsent_control = control
            self._stream.ask_until(Deadline(0), self._send_control)

    @property
    def away(self) -> str | None:
        """What is said of a server that is away."""
        return self._stream.away

    def _send_control(self) -> None:
        if self._unsent_control is not None:
            self._stream.client.set(self._stream.key("control"), self._unsent_control.to_json())
            self._unsent_control = None

    def counters(self) -> dict[str, int]:
        """`received` rollouts; entries that were `repeated` or `damaged`; how often the server came back, and how often
        with nothing of what it had."""
        return {**self._counts.counts, "reconnected": self._stream.reconnected}

    def close(self) -> None:
        """Close the connection; a waiting `receive` gives nothing."""
        self._closing.set()
        self._stream.close()

    def _cursor(self, entry: str, blocks: int = 0) -> Cursor:
        return {"stream": self._id, "entry": entry, "blocks": blocks}

    def _is_ended(self) -> bool:
        pipeline = self._stream.commands()
        pipeline.hvals(self._stream.key("producers")).xread({self._stream.name: self._last}, count=1)
        producers, further = pipeline.execute()
        return bool(producers) and all(each == b"closed" for each in producers) and not further

    def _read(self, timeout_s: float) -> Entries:
        """The entries after the last; waits a little for them, so that it is noticed when there will be none."""
        self._check_only_consumer()
        if self._id is None:
            self._start()
        self._send_control()
        pipeline = self._stream.commands() if self._follow else self._note_received()
        pipeline.set(self._stream.key("id"), uuid4().hex, nx=True).get(self._stream.key("id"))
        pipeline.get(self._stream.key("released"))
        if self._follow:
            pipeline.get(self._stream.key("received"))
        else:
            block = max(1, int(1000 * min(timeout_s, _SLICE_S)))
            pipeline.xread({self._stream.name: self._last}, count=self._at_once, block=block)
        *_, found, released, further = pipeline.execute()
        if not self._is_known(found.decode()):
            return []
        if released is not None and _order(self._last) < _order(released.decode()):
            raise StateError(
                f"Redis: {self._stream.name}: entries after {self._last} were released, up to {released.decode()}",
                hint="resume from the last committed state",
            )
        if self._follow:
            return self._entries_up_to((further or BEGIN.encode()).decode(), timeout_s)
        entries: Entries = further[0][1] if further else []
        return entries

    def _entries_up_to(self, received: str, timeout_s: float) -> Entries:
        """The entries that the consumer which is followed has received; waits a little where there are none."""
        if _order(received) <= _order(self._last):
            self._closing.wait(min(timeout_s, _FOLLOW_S))
            return []
        entries: Entries = self._stream.client.xrange(
            self._stream.name, min=f"({self._last}", max=received, count=self._at_once
        )
        return entries

    @property
    def _at_once(self) -> int:
        return max(1, MOST_BYTES // self._entry_bytes)

    def _published(self, entries: Entries) -> list[Arrival]:
        """What was received, when other ranks may receive it, too; else nothing was."""
        before, arrivals = self._cursor(self._last, self._blocks), self._received(entries)
        if not self._follow:
            try:
                self._stream.ask(lambda: self._note_received().execute())
            except BaseException:
                self.seek(before)
                raise
        return arrivals

    def _note_received(self) -> Any:
        """The commands that say how far this consumer is."""
        pipeline = self._stream.commands()
        pipeline.set(self._stream.key("held"), len(self._held))
        return pipeline.set(self._stream.key("received"), self._last)

    def _check_only_consumer(self) -> None:
        """Refuse to take what another consumer takes, too; one that has just ended may take a moment to be gone."""
        if self._is_only:
            return
        pauses_s = (_FOLLOW_S, _FOLLOW_S)
        alone = poll(lambda: not self._stream.has_other_consumer() or None, Deadline(_GONE_S), pauses_s=pauses_s)
        if alone is None:
            self._stream.client.close()  # of two that come at once, one may stay
            raise BusyError(
                f"Redis: {self._stream.name}: another consumer takes from this stream",
                hint="wait for it to end, or close it; other ranks of the same run pass follow=True",
            )
        self._is_only = True

    def _start(self) -> None:
        """Begin at the oldest entry that is kept."""
        self._check_only_consumer()
        pipeline = self._stream.commands()
        pipeline.set(self._stream.key("id"), uuid4().hex, nx=True)
        _, found, released = pipeline.get(self._stream.key("id")).get(self._stream.key("released")).execute()
        self._id, self._last = found.decode(), BEGIN if released is None else released.decode()

    def _is_known(self, stream: str) -> bool:
        known = self._id == stream
        if not known:
            log.warning("Redis: %s is not the stream that it was; what it held is lost", self._stream.name)
            self._counts.add("begun_anew")
            self._last, self._blocks = BEGIN, 0
            self._held.clear()
        self._id = stream
        return known

    def _received(self, entries: Entries) -> list[Arrival]:
        arrivals: list[Arrival] = []
        last, skipped, numbers = self._last, self._blocks, dict(self._numbers)
        for name, fields in entries:
            try:
                blocks = self._blocks_of(name, fields, numbers)
            except StoreError:
                if arrivals:  # they come first
                    break
                raise
            before, last = self._cursor(last), name.decode()
            arrivals += arrivals_of(blocks, skipped=skipped, before=before, after=self._cursor(last))
            skipped = 0
            if not self._follow:
                self._held.append(last)
        self._entry_bytes = max(1, *(sum(map(len, fields.values())) for _, fields in entries))
        self._counts.add("received", count=sum(len(arrival.block) for arrival in arrivals))
        self._last, self._blocks, self._numbers = last, skipped, numbers
        return arrivals

    def _blocks_of(self, name: bytes, fields: dict[bytes, bytes], numbers: dict[bytes, int]) -> list[RolloutBlock]:
        """The blocks of an entry; none if it was here before, or is none of ours. Notes its producer's number."""
        try:
            producer, number = fields[b"producer"], int(fields[b"number"])
            blocks = [block for block, _ in iter_blocks(fields[b"blocks"])]
        except Exception as error:  # any client may have added it
            said = f"Redis: {self._stream.name}: entry {name.decode()} is damaged: {error}"
            if self._on_bad == "error":
                raise StoreError(said, hint='on_bad="skip" counts damaged entries and continues') from error
            log.warning("%s; left out", said)
            self._counts.add("damaged")
            return []
        if number <= numbers.get(producer, -1):
            self._counts.add("repeated")
            return []
        numbers[producer] = number
        return blocks


def _order(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)
