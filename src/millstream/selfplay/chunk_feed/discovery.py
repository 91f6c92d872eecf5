"""Discovery: a growing folder -> `FileFound`, `FileRemoved`, and `ScanComplete` once, after the first scan.

`Watcher` turns notifications of the operating system into paths. They are hints: the files are looked at, and a scan of
everything now and then finds what no notification told of.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from millstream.errors import LoaderError, SourceError
from millstream.selfplay import Arrival, FileFound, FileRemoved, Folder, ScanComplete, sort_key
from millstream.settings import local_path
from millstream.stages import INPUT, SourceStage

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

_log = logging.getLogger("millstream.selfplay")
_POLL_S = 1.0
_FIRST_QUIET_S = 0.2
"""How long files that are new at the start are looked at before they count as complete."""
_UNTOLD_QUIET_S = 2.0
"""The same for files without a notification that they were closed, while others have one."""
_ALL_AGAIN_S = 30.0
"""How often everything is looked at while the system tells of changes: it loses some when there are too many."""
_TICK_S = 1.0
"""How often a folder that is watched is asked whether it is still the same, and files whether they changed."""
_AWAY_S = 2.0
"""How long a folder may be away before its files are gone: it may be about to be replaced."""
_SHARE = 0.02
"""The share of the time that is spent on looking at everything."""
_MOST_HINTS = 1 << 14
_REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "lustre", "beegfs", "ceph", "gpfs", "afs", "glusterfs", "virtiofs")


class Discovery(SourceStage[Arrival]):
    """Finds the files in a folder and all below it, and with `watch` those that come later, without end.

    Files come when they are complete: first all that are there, by name; then `ScanComplete`; then each as it is
    closed, or moved to the folder. Hidden and temporary names (`.a`, `a.tmp`, `a.part`, `a~`) are passed over. A file
    that was removed, renamed or changed is `FileRemoved`, and found again under its new name or content.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> for name in ("b.tar", "a.tar", "c.tmp"):
    ...     _ = (folder / name).write_bytes(bytes(1024))
    >>> discovery = Discovery(folder, watch=False)
    >>> discovery.start()
    >>> [Path(each.path).name if isinstance(each, FileFound) else each for each in discovery.output()]
    ['a.tar', 'b.tar', ScanComplete()]

    Args:
        path: The folder. To be watched it need not exist yet, and it may go and come back.
        watch: Whether to go on after the first look.
        poll_s: Look at everything so often; None: be told by the system where that works (Linux, with the extra
            `watch`, not over a network), else once a second. Never more than a fiftieth of the time is spent on it.
        settings: As for every stage.
    """

    gives = FileFound
    loses_nothing = True

    def __init__(
        self, path: str | os.PathLike[str], *, watch: bool = True, poll_s: float | None = None, **settings: Any
    ) -> None:
        if poll_s is not None and not (isinstance(poll_s, int | float) and poll_s > 0):
            raise LoaderError(f"poll_s={poll_s!r} is no time between two looks", hint="pass seconds, or None")
        local_path(path, "a folder of games", SourceError)
        if os.path.isfile(path):
            raise SourceError(f"{os.fspath(path)} is a file, and no folder", hint="pass the folder that it lies in")
        super().__init__(**{"capacity": 1024, **settings})
        self._root, self._watch, self._poll_s = os.path.abspath(path), watch, poll_s
        self._folder = Folder(self._root, self.count)
        self._told = threading.Event()
        self._watcher: Watcher | None = None
        self._look_at_s = 0.0
        self._away_since_s: float | None = None

    def loops(self) -> Sequence[Callable[[], None]]:
        """One loop, which leaves no watcher behind however it ends."""
        return [self._send_all]

    def wake(self) -> None:
        """End the wait for something to happen."""
        self._told.set()

    def gauges(self) -> dict[str, float]:
        """Files that are known, files that may still be written, whether the system tells of changes; and, while the
        folder is not there, that it is missing."""
        missing = {} if os.path.isdir(self._root) else {"folder_missing": 1.0}
        told = float(self._watcher is not None)
        return {**missing, "files": len(self._folder), "open": self._folder.waiting, "watching": told}

    @property
    def unreadable(self) -> dict[str, str]:
        """Files and folders that could not be looked at, and why."""
        return dict(self._folder.unreadable)

    def produce(self) -> Iterator[Arrival]:
        """Look, then wait for changes."""
        if not os.path.isdir(self._root):
            if not self._watch:
                raise SourceError(f"{self._root}: there is no such folder", hint="pass watch=True to wait for it")
            _log.warning("%s is not there yet; waiting for it", self._root)
        if self._watch:
            self._arm()
        yield from self._first_look()
        yield ScanComplete()
        while self._watch and not self.stopping.is_set():
            yield from self._changes()

    def _send_all(self) -> None:
        try:
            with closing(self.produce()) as arrivals:  # type: ignore[type-var]
                self.send(arrivals)
        finally:
            self._disarm()

    def _first_look(self) -> list[FileFound]:
        """All files that are complete, by name: those that are new only if they have not changed for a moment."""
        self._look()
        events = self._folder.settle(_FIRST_QUIET_S)
        if self._folder.waiting:
            self.stopping.wait(_FIRST_QUIET_S)
            self._look()
            events += self._folder.settle(0.9 * _FIRST_QUIET_S)
        if not self._watch and self._folder.waiting:
            self.count("still being written", self._folder.waiting)
        found = {
            event.path: event for event in events if isinstance(event, FileFound) and self._folder.knows(event.path)
        }
        return sorted(found.values(), key=lambda each: each.sort_key)

    def _changes(self) -> list[FileFound | FileRemoved]:
        """What happened, or nothing after a while."""
        with self._clocks.waiting(INPUT):
            self._told.wait(self._patience_s())
        self._told.clear()  # before anything is looked at, so that no call meanwhile is missed
        if self.stopping.is_set():
            return []
        if self._poll_s is None and (self._watcher is None or not self._watcher.sees):
            self._arm()
        events: list[FileFound | FileRemoved] = []
        if self._watcher is not None:
            hints, lost = self._watcher.take()
            for path in sorted(hints, key=sort_key):
                events += self._folder.check(path, closed=hints[path])
            if lost:
                self._look_at_s = 0.0
        if time.monotonic() >= self._look_at_s:
            events += self._look()
        return [*events, *self._folder.settle(self._quiet_s())]

    def _patience_s(self) -> float:
        left_s = self._look_at_s - time.monotonic()
        return max(0.001, min(left_s, _TICK_S) if self._watcher is not None else left_s)

    def _quiet_s(self) -> float:
        """Between two looks a file may not change; the clock may be a little early."""
        return _UNTOLD_QUIET_S if self._watcher is not None else 0.9 * (self._poll_s or _POLL_S)

    def _look(self) -> list[FileRemoved]:
        began_s = time.monotonic()
        away_s = self._away_s(began_s)
        gone = self._folder.look() if away_s is None or away_s >= _AWAY_S else []
        ended_s = time.monotonic()
        if gone and away_s is not None:
            _log.warning("%s is gone, and with it %d files; waiting for it", self._root, len(gone))
        every_s = _ALL_AGAIN_S if self._watcher is not None else self._poll_s or _POLL_S
        if away_s is not None:
            every_s = min(every_s, _AWAY_S)
        self._look_at_s = ended_s + max(every_s, (ended_s - began_s) / _SHARE)
        return gone

    def _away_s(self, now_s: float) -> float | None:
        """How long the folder has not been there; None if it is."""
        if os.path.isdir(self._root):
            self._away_since_s = None
        elif self._away_since_s is None:
            self._away_since_s = now_s
        return None if self._away_since_s is None else now_s - self._away_since_s

    def _arm(self) -> None:
        """Be told of changes, before everything is looked at, so that none falls between."""
        self._disarm()
        self._look_at_s = 0.0
        if self._poll_s is None and os.path.isdir(self._root):
            self._watcher = watched(self._root, self._told.set)
            if self._watcher is None:
                self._poll_s = _POLL_S
                _log.info("%s is looked at every %s s: the system does not tell of changes", self._root, _POLL_S)

    def _disarm(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()


class Watcher:
    """Collects hints about a folder and all below it.

    Args:
        root: The folder; it must exist.
        woken: Called whenever there is a hint.
    """

    def __init__(self, root: str, woken: Callable[[], None]) -> None:
        from watchdog import events
        from watchdog.observers.inotify import InotifyObserver

        self._root, self._real = root, os.path.realpath(root)
        self._woken = woken
        self._lock = Lock()
        self._closed: dict[str, bool] = {}
        self._lost = False
        status = Path(self._real).stat()
        self._watched = (status.st_dev, status.st_ino)
        # A folder that was moved out is still watched; when it comes back, watchdog finds its old watch, and says so.
        warnings.filterwarnings("ignore", "Callback with id .* already exists", RuntimeWarning, "watchdog")
        self._observer = InotifyObserver(generate_full_events=True)
        kinds: list[type[FileSystemEvent]] = [  # and not that a file was opened or read, as we do all the time
            events.FileClosedEvent,
            events.FileCreatedEvent,
            events.FileMovedEvent,
            events.FileDeletedEvent,
            events.DirCreatedEvent,
            events.DirMovedEvent,
            events.DirDeletedEvent,
        ]
        self._observer.schedule(self, self._real, recursive=True, event_filter=kinds)  # type: ignore[arg-type]
        try:
            self._observer.start()
        except BaseException:
            self._observer.on_thread_stop()
            raise

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by watchdog, on its thread."""
        complete = event.event_type in ("closed", "moved") and not event.is_directory
        source, target = os.fsdecode(event.src_path), os.fsdecode(event.dest_path)
        with self._lock:
            if source:
                self._hint(source, closed=complete and not target)
            if target:
                self._hint(target, closed=complete)
        self._woken()

    def take(self) -> tuple[dict[str, bool], bool]:
        """Hints since the last call, with whether the file was closed or moved there; and whether some were lost."""
        with self._lock:
            taken = self._closed, self._lost
            self._closed, self._lost = {}, False
        return taken

    @property
    def sees(self) -> bool:
        """Whether the folder is still the one that is watched. The next one may have its number, but not its watch."""
        try:
            status = Path(self._root).stat()
        except OSError:
            return False
        works = all(emitter.should_keep_running() and emitter.is_alive() for emitter in self._observer.emitters)
        return works and (status.st_dev, status.st_ino) == self._watched

    def close(self) -> None:
        """Stop watching; no thread is left."""
        self._observer.stop()
        self._observer.join()

    def _hint(self, path: str, *, closed: bool) -> None:
        if len(self._closed) >= _MOST_HINTS:
            self._closed, self._lost = {}, True
        path = self._root + path.removeprefix(self._real)
        self._closed[path] = self._closed.get(path, False) or closed


def watched(root: str, woken: Callable[[], None]) -> Watcher | None:
    """Watch a folder; None where that does not work: watchdog or inotify is missing, or other machines write."""
    if _is_remote(root):
        return None
    try:
        return Watcher(root, woken)
    except (ImportError, OSError):
        return None


def _is_remote(root: str) -> bool:
    """Whether the folder lies on a file system whose changes may be made by others, unseen by this machine."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    path = os.path.realpath(root)
    kinds: dict[str, Any] = {}
    for mount in mounts:
        told, _, kind = mount.partition(" - ")
        kinds[told.split(" ")[4]] = kind.split(" ")[0]
    while path not in kinds and path != os.sep:
        path = os.path.dirname(path)
    return str(kinds.get(path, "")).startswith(_REMOTE)
