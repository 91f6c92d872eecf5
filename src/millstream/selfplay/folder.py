"""A folder and all below it -> which files in it are complete, and which were removed. Nothing here waits.

A file is complete when its writer closed it or moved it here, or when it has not changed for a while. An archive must
also have its end, or not have changed for a long while. A file that changes later counts as removed and is found again.
Links are followed only where they lead to something that is not found without them, so that nothing is found twice.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

SortKey = tuple[str, str, str]
_NUMBER = re.compile("0*([0-9]+)")
_NOWHERE = {errno.ELOOP: "link in a circle", errno.ENOENT: "link to nowhere"}
_OLD_S = 60.0
"""What has not changed for so long is complete, whatever it looks like."""
_ANOTHER = "link to another file here"
_PACKED = (".gz", ".tar")
_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".swp", ".lock", "~")


def sort_key(path: str) -> SortKey:
    """What files are sorted by: their names, which say when they were made, whatever folder they lie in. Numbers in
    names compare as such, so that `training.8.gz` is older than `training.40.gz`.

    >>> sorted(["b/1.tar", "a/10.tar", "a/2.tar", "a/1.tar", "a/1-b.tar"], key=sort_key)
    ['a/1-b.tar', 'a/1.tar', 'b/1.tar', 'a/2.tar', 'a/10.tar']
    """
    name = os.path.basename(path)
    return _NUMBER.sub(_by_size, name), name, path


def _by_size(number: re.Match[str]) -> str:
    """A number behind that of its digits; to whatever is no number it compares as a digit does."""
    return f"0{chr(len(number[1]))}{number[1]}"


@dataclass(frozen=True, slots=True)
class FileFound:
    """A file is there, and complete."""

    path: str
    size: int
    changed_ns: int

    @property
    def sort_key(self) -> SortKey:
        """Files come by their names."""
        return sort_key(self.path)


@dataclass(frozen=True, slots=True)
class FileRemoved:
    """A file that was found is not there any more, or is not what it was."""

    path: str


@dataclass(frozen=True, slots=True)
class ScanComplete:
    """All files that were there at the start have been told; said once."""


Arrival = FileFound | FileRemoved | ScanComplete


def is_wanted(name: str) -> bool:
    """Whether a file or folder of this name is looked at: neither hidden nor temporary.

    >>> [name for name in ("a.gz", ".a.gz", "a.gz.tmp", "a.gz~") if is_wanted(name)]
    ['a.gz']
    """
    return not name.startswith(".") and not name.lower().endswith(_TEMPORARY)


@dataclass(slots=True)
class _Waiting:
    """A file that may still be written."""

    stamp: int
    since_s: float


class _Entries(NamedTuple):
    """The files and the folders in a folder, what is neither (links to nowhere, files of a bad disk), and which of the
    files are links."""

    files: dict[str, os.stat_result]
    folders: list[str]
    broken: dict[str, OSError]
    links: list[str]


class Folder:
    """The files of a folder.

    Args:
        root: The folder; it need not exist yet. When it goes, all its files are gone.
        count: Told the reason for whatever is passed over.
    """

    def __init__(self, root: str, count: Callable[[str], None]) -> None:
        self.root = root
        self._count = count
        self._known: dict[str, dict[str, int]] = {}  # folder -> name -> stamp; a name is all that is kept of a path
        self._waiting: dict[str, _Waiting] = {}
        self.unreadable: dict[str, str] = {}
        """What could not be read, and why; each is counted once."""
        self._tops = {root: os.path.realpath(root)}  # and links to folders elsewhere, with where they lead to
        self._followed: dict[str, str] = {}  # the links that were followed before, and lead there still
        self._left_out: set[str] = set()  # links to other files here: each is counted once

    @property
    def waiting(self) -> int:
        """How many files may still be written."""
        return len(self._waiting)

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def knows(self, path: str) -> bool:
        """Whether a file was found, and is not gone."""
        folder, name = os.path.split(path)
        return name in self._known.get(folder, ())

    def look(self, top: str | None = None) -> list[FileRemoved]:
        """List the folder, or one below it. New files wait until they are complete."""
        top = top or self.root
        listed, hidden, gone = set[str](), set[str](), list[FileRemoved]()
        for folder, files in self._listed(top, hidden):
            listed.add(folder)
            missing = self._known.get(folder, {}).keys() - files.keys()
            gone += [self._forget(folder, name) for name in missing if os.path.join(folder, name) not in hidden]
            for name, status in files.items():
                self._see(folder, name, status)
        for folder in [each for each in self._known if _lies_in(each, top) and each not in listed]:
            if not any(_lies_in(folder, each) for each in hidden):
                gone += self._forget_folder(folder)
        return sorted(gone, key=lambda each: each.path)

    def check(self, path: str, *, closed: bool) -> list[FileFound | FileRemoved]:
        """Look at one path that something happened to; a file that was closed, or moved here, is complete."""
        if not _is_looked_at(path, self.root):
            return []
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return [*self._miss(path)]
        except OSError:
            return []  # unknown now; the next scan will tell
        if S_ISDIR(status.st_mode):
            return [*self.look(path)]
        if os.path.islink(path) and self._leads_to_another(path):
            return [*self._miss(path)]
        self._see(*os.path.split(path), status)
        return self._settle(path, status, 0.0, time.monotonic()) if closed else []

    def settle(self, quiet_s: float) -> list[FileFound | FileRemoved]:
        """Files that wait, and have not changed for so long: by name."""
        now_s, events = time.monotonic(), []
        for path in list(self._waiting):
            try:
                status = os.stat(path)
            except OSError:
                del self._waiting[path]
                continue
            self._see(*os.path.split(path), status)
            events += self._settle(path, status, quiet_s, now_s)
        return sorted(events, key=_order)

    def _see(self, folder: str, name: str, status: os.stat_result) -> None:
        """Let a file wait that is new or changed; if it waits already, and changed again, from now on."""
        path, stamp = os.path.join(folder, name), _stamp(status)
        if not S_ISREG(status.st_mode) or self._known.get(folder, {}).get(name) == stamp:
            self._waiting.pop(path, None)
            return
        waiting = self._waiting.get(path)
        if waiting is None or waiting.stamp != stamp:
            self._waiting[path] = _Waiting(stamp, time.monotonic())

    def _settle(self, path: str, status: os.stat_result, quiet_s: float, now_s: float) -> list[FileFound | FileRemoved]:
        waiting = self._waiting.get(path)
        if waiting is None:
            return []
        quiet_for_s = max(now_s - waiting.since_s, 0.0)
        is_old = quiet_for_s >= _OLD_S or time.time() - status.st_mtime >= _OLD_S
        looks_open = quiet_for_s < quiet_s or (path.endswith(".tar") and not _has_end(path, status.st_size))
        if looks_open and not is_old:
            return []
        del self._waiting[path]
        folder, name = os.path.split(path)
        gone: list[FileFound | FileRemoved] = [self._forget(folder, name)] if self.knows(path) else []
        self._known.setdefault(folder, {})[name] = waiting.stamp
        return [*gone, FileFound(path, status.st_size, status.st_mtime_ns)]

    def _miss(self, path: str) -> list[FileRemoved]:
        """Forget a path where nothing is any more, and all below it."""
        self._waiting.pop(path, None)
        if self.knows(path):
            return [self._forget(*os.path.split(path))]
        below = [each for each in self._known if _lies_in(each, path)]
        return [gone for each in below for gone in self._forget_folder(each)]

    def _forget(self, folder: str, name: str) -> FileRemoved:
        names = self._known[folder]
        del names[name]
        if not names:
            del self._known[folder]
        return FileRemoved(os.path.join(folder, name))

    def _forget_folder(self, folder: str) -> list[FileRemoved]:
        return [self._forget(folder, name) for name in sorted(self._known[folder])]

    def _listed(self, top: str, hidden: set[str]) -> list[tuple[str, dict[str, os.stat_result]]]:
        """Each folder with its files; what cannot be read now is unknown, and is added to `hidden`."""
        self._look_at_links_anew(top)
        listed, left = list[tuple[str, _Entries]](), [top] if self._is_followed(top) else []
        while left:
            folder = left.pop()
            try:
                entries = _entries(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._hide(folder, "folder", error, hidden)
                continue
            self.unreadable.pop(folder, None)
            for path, why in entries.broken.items():
                self._hide(path, "file", why, hidden)
            left += filter(self._is_followed, entries.folders)
            listed.append((folder, entries))
        return [(folder, self._without_others(folder, entries)) for folder, entries in listed]

    def _look_at_links_anew(self, top: str) -> None:
        """Forget links to folders at or below `top`, and those that lead elsewhere by now."""
        same = {
            link: target
            for link, target in self._tops.items()
            if link != self.root and os.path.realpath(link) == target
        }
        others = {link: target for link, target in same.items() if not _lies_in(link, top)}
        self._tops = {self.root: os.path.realpath(self.root), **others}
        self._followed = same

    def _is_followed(self, folder: str) -> bool:
        """Whether a folder is not listed already; a link may lead to one that is, even to one above it."""
        if folder == self.root or not os.path.islink(folder):
            return True
        target = os.path.realpath(folder)
        if _lies_in(self._tops[self.root], target) or self._is_listed(target):
            return False
        if folder not in self._followed and _is_in_one(target, self._followed.values()):
            return False  # it is found by the name that it has, whichever of them is listed first
        self._tops[folder] = target
        return True

    def _without_others(self, folder: str, entries: _Entries) -> dict[str, os.stat_result]:
        """The files of a folder without links to others; not before all folders are known that these may lie in."""
        for name in entries.links:
            if self._leads_to_another(path := os.path.join(folder, name)):
                self._waiting.pop(path, None)
                del entries.files[name]
        return entries.files

    def _leads_to_another(self, link: str) -> bool:
        """Whether a link leads to a file that is found by its own name, and is read in the same way by that."""
        target = os.path.realpath(link)
        if _packing(target) != _packing(link) or not self._is_listed(target):
            return False
        if link not in self._left_out:
            self._left_out.add(link)
            self._count(_ANOTHER)
        return True

    def _is_listed(self, path: str) -> bool:
        """Whether a path without links in it is looked at, by whatever name."""
        return _is_in_one(path, self._tops.values())

    def _hide(self, path: str, noun: str, error: OSError, hidden: set[str]) -> None:
        """Count once what cannot be read. Nothing lies behind a link that leads nowhere; of others this is unknown."""
        reason = _NOWHERE.get(error.errno or 0)
        if reason is None:
            hidden.add(path)
        if path not in self.unreadable:
            reason = reason or f"{noun}: {(error.strerror or 'unreadable').lower()}"
            self.unreadable[path] = reason
            self._count(reason)


def _entries(folder: str) -> _Entries:
    found = _Entries({}, [], {}, [])
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_wanted(entry.name):
                continue
            try:
                if entry.is_dir():
                    found.folders.append(entry.path)
                    continue
                found.files[entry.name] = entry.stat()
                if entry.is_symlink():
                    found.links.append(entry.name)
            except FileNotFoundError as error:
                if entry.is_symlink():  # else it went away meanwhile
                    found.broken[entry.path] = error
            except OSError as error:
                found.broken[entry.path] = error
    return found


def _is_looked_at(path: str, top: str) -> bool:
    """Whether no name on the way from a folder down to a path is hidden or temporary."""
    return all(map(is_wanted, PurePath(os.path.relpath(path, top)).parts))


def _is_in_one(path: str, tops: Iterable[str]) -> bool:
    return any(_lies_in(path, top) and _is_looked_at(path, top) for top in tops)


def _packing(name: str) -> str:
    """How a file of this name would be read: a link may give a file the ending that it lacks."""
    return next((ending for ending in _PACKED if name.endswith(ending)), "")


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _stamp(status: os.stat_result) -> int:
    return hash((status.st_ino, status.st_size, status.st_mtime_ns))


def _has_end(path: str, size: int) -> bool:
    """Whether an archive ends with the empty blocks that close it."""
    if size < 1024 or size % 512:
        return False
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(-1024, os.SEEK_END)
            return file.read(1024) == bytes(1024)
    except OSError:
        return False


def _order(event: FileFound | FileRemoved) -> tuple[bool, SortKey]:
    """What is gone first, so that a file that was replaced is gone before it is found."""
    return isinstance(event, FileFound), sort_key(event.path)
