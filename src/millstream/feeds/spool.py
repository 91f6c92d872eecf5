"""A spool: rollouts through a folder that producers and the trainer share. It outlives them all.

Producers write whole shards (`shards.py`). The consumer notes in which order it takes them (`arrival_log.py`), and
removes them when a later state is committed.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Literal
from uuid import uuid4

from millstream.errors import LoaderError, MillstreamError, StateError, StoreError
from millstream.feeds.arrival_log import ArrivalLog, ArrivalWriter
from millstream.feeds.feed import Arrival, Control, Cursor, arrivals_of
from millstream.feeds.gathering import Encoded, Gather, GatheringSource
from millstream.feeds.shards import DAMAGED, SESSION, SUFFIX, ProducerFolder, Shard, ShardDiscovery
from millstream.rollouts import RolloutBlock, iter_blocks
from millstream.settings import local_path
from millstream.stages import POLL_S, Deadline, poll
from millstream.stats import Ledger
from millstream.storage import Lock, disk

MOST_BYTES = 64 << 20
"""How many bytes are received at once, at least one shard."""
FREE_SPACE = "free some space, then do it again"
_CONTROL = "control.json"
_ARRIVALS = "arrivals.log"

log = logging.getLogger("millstream.feeds")


class SpoolSource(GatheringSource):
    """Where a producer puts rollouts into a spool.

    Args:
        directory: The spool's folder; it is made if it is not there.
        producer: A name that no other producer has at the same time. One that is started again under its old name
            continues after what it wrote before. By default a new one.
        gather: When what was put becomes a shard.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, producer: str | None = None, gather: Gather | None = None
    ) -> None:
        super().__init__(gather)
        self.producer = producer or uuid4().hex
        place = local_path(directory, "a spool", LoaderError)
        self._folder = ProducerFolder(place, self.producer)
        self._control = SpoolControl(place)

    def control(self) -> Control:
        """The trainer's latest word."""
        return self._control.read()

    def _send(self, blocks: list[Encoded]) -> None:
        self._folder.write([part for block in blocks for part in block])

    def _end(self) -> None:
        self._folder.end()
        self._folder.close()


class SpoolControl:
    """The trainer's word in a spool, read again only when it changed."""

    def __init__(self, spool: Path) -> None:
        self._path = spool / _CONTROL
        self._known: tuple[tuple[int, int], Control] = ((-1, -1), Control())

    def read(self) -> Control:
        """The latest word."""
        try:
            found = self._path.stat()
            key = (found.st_ino, found.st_mtime_ns)
            if key != self._known[0]:
                self._known = (key, Control.from_json(self._path.read_bytes()))
        except FileNotFoundError:
            pass
        return self._known[1]

    def write(self, control: Control) -> None:
        """Say something new; a reader sees the old word or this one."""
        with disk.reported(self._path, full=FREE_SPACE):
            disk.publish(self._path, control.to_json())


class SpoolFeed:
    """Where the trainer takes rollouts out of a spool.

    Args:
        directory: The spool's folder; it is made if it is not there.
        follow: Only follow the one consumer, for the other ranks of a run: the same arrivals in the same order, and
            nothing is released or told.
        keep: Do not remove shards when they are released.
        on_bad: A damaged shard is moved into `damaged/` and counted ("skip"), or an error each time ("error").
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        follow: bool = False,
        keep: bool = False,
        on_bad: Literal["skip", "error"] = "skip",
    ) -> None:
        self.directory = local_path(directory, "a spool", LoaderError)
        self._keep, self._on_bad = keep, on_bad
        self._counts = Ledger("received", "shards", "damaged")
        self._warned, self._closing = False, threading.Event()
        self._control = SpoolControl(self.directory)
        path = self.directory / _ARRIVALS
        with ExitStack() as opened, disk.reported(self.directory, full=FREE_SPACE):
            disk.make_directory(self.directory)
            self._writer = None
            if not follow:
                opened.callback(_only_consumer(self.directory / "consumer.lock").release)
                self._writer = ArrivalWriter(path)
                opened.callback(self._writer.close)
            self._log = self._writer or ArrivalLog(path)
            self._discovery = ShardDiscovery(self.directory, self._log.taken)
            if not follow:  # what a crash kept from being removed
                self._remove_released()
            self._opened = opened.pop_all()
        self._place, self._blocks = self._log.released, 0

    @property
    def cursor(self) -> Cursor:
        """How many shards were received, and of which log."""
        return self._cursor(self._place, self._blocks)

    @property
    def ended(self) -> bool:
        """Whether every producer has said that nothing more comes, and all of it was received."""
        with disk.reported(self.directory, full=FREE_SPACE):
            if self._writer is None:
                self._log.refresh()
            ended = self._place == self._log.end and self._discovery.ended()
        if ended and not self._counts.counts["shards"] and not self._discovery.was_open:
            self._warn_of_old_ends()
        return ended

    def receive(self, timeout_s: float) -> list[Arrival]:
        """Give the next rollouts of the spool; waits so long for something, then gives nothing."""
        deadline = Deadline(timeout_s)

        def look() -> list[Arrival] | None:
            if self._place >= self._log.end:
                self._take()
            while self._place < self._log.end:
                if arrivals := self._received():
                    return arrivals
            return [] if deadline.left_s > POLL_S[0] and self.ended else None

        return poll(look, deadline, stopping=self._closing) or []

    def seek(self, cursor: Cursor) -> None:
        """Continue after a place at which a state was saved."""
        self._log.refresh()
        place, blocks = self._checked(cursor), int(cursor["blocks"])
        if place < self._log.released or place > self._log.end:
            raise StateError(
                f"{self.directory}: the state is at shard {place}; this spool has {self._log.released} to "
                f"{self._log.end}",
                hint="resume from the last committed state",
            )
        self._place, self._blocks = place, blocks

    def release(self, cursor: Cursor) -> None:
        """Remove the shards before a place: its state is committed."""
        place = min(self._checked(cursor), self._log.end)
        if self._writer is None or self._keep:
            return
        self._writer.release(place)
        self._remove_released()
        self._writer.compact()

    def tell(self, control: Control) -> None:
        """Tell producers what is wanted."""
        if self._writer is not None:
            self._control.write(control)

    def counters(self) -> dict[str, int]:
        """`received` rollouts, `shards` that were taken, and those of them that are `damaged`."""
        return self._counts.counts

    def taken(self, producer: str) -> str:
        """The last shard of a producer that was taken, or nothing."""
        return self._log.taken.get(producer, "")

    def close(self) -> None:
        """Let another consumer take over; what was not released stays. A waiting `receive` gives nothing."""
        self._closing.set()
        self._opened.close()

    def _warn_of_old_ends(self) -> None:
        if self._writer is not None and not self._warned:
            log.warning(
                "%s: ended before anything came: its producers had closed it before this consumer was there; "
                "if others are to come, start them first",
                self.directory,
            )
            self._warned = True

    def _cursor(self, place: int, blocks: int = 0) -> Cursor:
        return {"log": self._log.id, "shards": place, "blocks": blocks}

    def _checked(self, cursor: Cursor) -> int:
        if cursor.get("log") != self._log.id:
            raise StateError(
                f"{self.directory}: the state was saved with another spool ({cursor.get('log')}, not {self._log.id})",
                hint="open the spool of that run, or begin without the state",
            )
        return int(cursor["shards"])

    def _take(self) -> None:
        with disk.reported(self.directory, full=FREE_SPACE):
            if self._writer is None:
                self._log.refresh()
            elif shards := self._discovery.untaken():
                self._writer.append(shards)

    def _received(self) -> list[Arrival]:
        arrivals: list[Arrival] = []
        place, skipped, size = self._place, self._blocks, 0
        while place < self._log.end and size < MOST_BYTES:
            try:
                blocks = self._blocks_of(self._log[place])
            except MillstreamError:
                if arrivals:  # they come first
                    break
                raise
            before, after = self._cursor(place), self._cursor(place + 1)
            arrivals += arrivals_of(blocks, skipped=skipped, before=before, after=after)
            place, skipped, size = place + 1, 0, size + sum(block.nbytes for block in blocks)
        self._counts.add("shards", count=place - self._place)
        self._counts.add("received", count=sum(len(arrival.block) for arrival in arrivals))
        self._place, self._blocks = place, 0
        return arrivals

    def _blocks_of(self, shard: Shard) -> list[RolloutBlock]:
        path = self._path(shard)
        try:
            return [block for block, _ in iter_blocks(_mapped(path))]
        except FileNotFoundError:
            if self._damaged(shard).exists():
                return []
            raise StateError(
                f"{path}: this shard was taken, and is gone",
                hint="commit a state only when all ranks have reached it, and resume from the last committed one",
            ) from None
        except MillstreamError as error:
            if self._on_bad == "error":
                hint = 'on_bad="skip" moves damaged shards away, counts them and continues'
                raise StoreError(f"{path}: {error.message}", hint=hint) from error
            self._quarantine(shard, error)
            return []
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}", hint="look at the permissions and the disk") from error

    def _quarantine(self, shard: Shard, error: MillstreamError) -> None:
        self._counts.add("damaged")
        log.warning("%s: damaged, left out: %s", self._path(shard), error.message)
        if self._writer is not None:
            with disk.reported(self._path(shard)):
                disk.make_directory(self.directory / DAMAGED)
                disk.rename(self._path(shard), self._damaged(shard))

    def _remove_released(self) -> None:
        with disk.reported(self.directory, full=FREE_SPACE):
            for shard in set(self._discovery.taken()) - set(self._log.kept()):
                disk.remove(self._path(shard))

    def _path(self, shard: Shard) -> Path:
        return self.directory / shard.producer / (shard.name + SUFFIX)

    def _damaged(self, shard: Shard) -> Path:
        return self.directory / DAMAGED / f"{shard.producer}-{shard.name}{SUFFIX}"


def is_spool(path: Path) -> bool:
    """Whether a folder is a spool: it has a consumer, or producers."""
    return (path / _ARRIVALS).exists() or any(path.glob(f"*/{SESSION}"))


def _only_consumer(path: Path) -> Lock:
    return Lock(
        path,
        busy=f"{path.parent}: another consumer takes from this spool",
        hint="wait for it to end; other ranks of the same run pass follow=True",
    )


def _mapped(path: Path) -> mmap.mmap:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not os.fstat(fd).st_size:
            raise StoreError(
                f"{path}: an empty shard", hint="its producer puts the same rollouts again if it is not sure"
            )
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
