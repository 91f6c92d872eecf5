"""Rows that a trainer takes while they are still being made: a maker in the background, and what it has made so far."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from millstream.errors import BusyError, ClosedError, StoreError
from millstream.loaders import RowSource
from millstream.stages import after_fork
from millstream.stats import OnProgress, Progress
from millstream.storage import staging_folder
from millstream.store import TokenStore, open_unfinished, stamp_of

if TYPE_CHECKING:
    from millstream.loaders.growing.stream_source import StreamSource

_LOOK_S = 0.02
_ANYWAY_S = 1.0
_BUSY_S = 0.1
_log = logging.getLogger("millstream.loaders")

Make = Callable[[OnProgress], None]
MakeMember = Callable[[TokenStore, bool], RowSource]
"""(store, whether it is complete) -> its part in the run."""


class _Stopped(Exception):  # noqa: N818 - it never leaves this module
    """The loader was closed."""


class BackgroundPrepare:
    """A store that comes to be at `output`. One process makes it, all others follow; if the maker dies, one takes over.

    `make` makes the whole store of the files `sources`, or raises BusyError while another process does.
    """

    def __init__(self, output: Path, make: Make, sources: Sequence[str]) -> None:
        self.output, self._sources = output, sources
        self._unfinished = staging_folder(output) / output.name
        self._make = make
        self._error: BaseException | None = None
        self._store: TokenStore | None = None  # as it was found last; opened again when there is news
        self._stopping = threading.Event()
        after_fork(self._forget)
        self._begin()

    def _forget(self) -> None:
        """In a forked child: a thread that is not here may hold the lock of the event."""
        stopped, self._stopping = self._stopping.is_set(), threading.Event()
        if stopped:
            self._stopping.set()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._work, name="millstream-maker", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self.output.exists() and not self._stopping.is_set():
                try:
                    self._make(self._report)
                except BusyError:
                    self._stopping.wait(_BUSY_S)
        except _Stopped:
            _log.info("%s: is left unfinished; the next loader resumes it", self.output)
        except BaseException as error:
            self._error = error

    def _report(self, progress: Progress) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def look(self) -> tuple[TokenStore | None, bool]:
        """Give what is there so far, and whether that is all."""
        if self.output.exists():
            if self._store is None or self._store.path != self.output:
                self._store = TokenStore(self.output)
            return self._store, True
        error, self._error = self._error, None
        if error is not None:
            raise error  # once: the next call tries again, as a full disk may have room by then
        try:
            self._store = open_unfinished(self._unfinished, self._sources, self._store)
            return self._store, False
        except (StoreError, OSError):  # it was finished, and moved, while we looked
            return None, False

    def wait(self, documents: int) -> tuple[TokenStore, bool]:
        """Wait until there are more than so many documents, or all of them."""
        seen: object = None
        due = 0.0
        while True:
            now = (self.output.exists(), self._error, stamp_of(self._unfinished))
            if now != seen or time.monotonic() >= due:  # looking takes time from the maker
                seen, due = now, time.monotonic() + _ANYWAY_S
                store, complete = self.look()
                if store is not None and (complete or store.documents > documents):
                    return store, complete
            if self._stopping.is_set():
                raise ClosedError("this loader was closed while it waited for its rows", hint="make a new one")
            if not self._thread.is_alive() and not self.output.exists() and self._error is None:
                self._begin()  # in a forked child: its parent may end before all is made
            self._stopping.wait(_LOOK_S)

    def lost(self, store: TokenStore) -> bool:
        """Whether files of a store that was found are gone: it was finished and moved, or is being made anew."""
        layout = store.layout
        lost = self.output.exists() or not all(layout.path_of(shard).exists() for shard in range(len(layout.table)))
        if lost and store is self._store:
            self._store = None
        return lost

    def stop(self) -> None:
        """Stop making soon; what was made stays, and the next loader resumes there."""
        self._stopping.set()

    def close(self) -> None:
        """Stop making."""
        self.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()


class GrowingSource(Protocol):
    """A source of a run whose rows are still being made, or made again: what of it is there, and a wait for more."""

    name: str
    ends: ClassVar[bool]
    """Whether all of it is made one day, for good."""
    way_to_know: ClassVar[str]
    """What to do to know what is not known yet."""

    @property
    def member(self) -> RowSource | None:
        """The source's part in the run, as it was given last."""
        ...

    def count(self, epoch: int, offset: int) -> int:
        """How many rows can be used from a place of an epoch on."""
        ...

    def more(self, epoch: int, offset: int, count: int) -> tuple[RowSource, bool]:
        """Wait until so many rows can be used from a place on, or until more is known; gives the source's part in the
        run, and whether all of it is made for good."""
        ...

    def knows(self, epoch: int, first: int, last: int | None) -> bool:
        """Whether it is known which rows lie at the places of an epoch from `first` to `last`, or to its end."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether all rows are made by now, for good."""
        ...

    def lost(self, store: TokenStore) -> bool:
        """Whether files of a store that was found are gone: they were moved, dropped, or are made anew."""
        ...

    @property
    def made_so_far(self) -> str:
        """What is made, in words."""
        ...

    def saved(self, epoch: int, offset: int) -> dict[str, Any] | None:
        """What a state keeps of a place; None: nothing."""
        ...

    @property
    def held_bytes(self) -> int | None:
        """Bytes of rows in memory; None where they lie on a disk."""
        ...

    def close(self) -> None:
        """Stop making rows; what was made stays, and the next loader resumes there."""
        ...


def stream_of(source: GrowingSource | None) -> StreamSource | None:
    """A source as a stream, if it is one."""
    return None if source is None or source.ends else cast("StreamSource", source)


class GrowingStore:
    """A store that is made once: what of it is there."""

    ends: ClassVar[bool] = True
    held_bytes: int | None = None
    way_to_know: ClassVar[str] = "continue training, or call loader.wait() to wait until all rows are made"

    def __init__(self, name: str, growth: BackgroundPrepare, member: MakeMember) -> None:
        self.name, self._growth, self._make = name, growth, member
        self._found: RowSource | None = None

    @property
    def member(self) -> RowSource | None:
        """The store's part in the run, as it was given last."""
        return self._found

    def count(self, epoch: int, offset: int) -> int:
        """How many rows can be used from a place of the first epoch on: the last one ends when all rows are made."""
        windows = None if self._found is None else self._found.windows
        return max(0, windows.samples - offset) if windows is not None and epoch == 0 else 0

    def more(self, epoch: int = 0, offset: int = 0, count: int = 0) -> tuple[RowSource, bool]:
        """Wait for more documents; gives their part in the run, and whether they are all."""
        growth, found = self._growth, self._found
        while True:
            store, complete = growth.wait(0 if found is None else found.store.documents)
            try:
                member = self._make(store, complete)
            except StoreError:
                if complete or not growth.lost(store):
                    raise
            else:
                if complete:
                    growth.close()
                self._found = member
                return member, complete

    def knows(self, epoch: int, first: int, last: int | None) -> bool:
        """Whether rows are made."""
        return last is not None and self.count(epoch, last) > 0

    @property
    def is_complete(self) -> bool:
        """Whether all rows are made by now."""
        return self._growth.look()[1]

    def lost(self, store: TokenStore) -> bool:
        """Whether files of a store that was found are gone: it was finished and moved, or is made anew."""
        return self._growth.lost(store)

    @property
    def made_so_far(self) -> str:
        """What is made, in words."""
        return f"{0 if self._found is None else self._found.store.documents} rows are made so far"

    def saved(self, epoch: int, offset: int) -> None:
        """The order of its rows follows from its files."""

    def close(self) -> None:
        """Stop making rows; what was made stays, and the next loader resumes there."""
        self._growth.close()
