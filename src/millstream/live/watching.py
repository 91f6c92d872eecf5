"""Notifications of the operating system -> the paths that something happened to. They are hints: whoever takes them
looks at the files, and what a notification was lost for is found by looking at everything now and then."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

_MOST_HINTS = 1 << 14
_REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "lustre", "beegfs", "ceph", "gpfs", "afs", "glusterfs", "virtiofs")


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
